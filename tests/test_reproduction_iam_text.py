"""The numbers in docs/reproduction-iam.md are those of the committed results, or the paper's."""

import json

from committed_results import ROOT, paper_table, scores, told
from holdfast.data.tiny_counterparts import COUNTERPARTS
from holdfast.reports import METHOD_NAMES
from holdfast.reproduction.cifar import PAPER_METHODS

TEXT = told("reproduction-iam.md")


def replaced(method: str, tasks: int) -> dict:
    return scores(f"iam/replaced/{method}-t{tasks}-natural-s0.json")


def test_what_a_replacement_costs():
    hoc, er = (replaced(method, 31)["AA_tau"] for method in ("simplex_hoc", "er"))
    costs = [100 * (hoc[at - 2] - hoc[at - 1]) for at in (11, 21)]
    gains = [100 * (hoc[19] - hoc[10]), 100 * (hoc[30] - hoc[20])]
    assert (
        "costs d-Simplex-HOC {:.1f} and {:.1f} points and the tasks behind each bring {:.1f} and {:.1f}".format(
            *costs, *gains
        )
        in TEXT
    )
    assert f"ER loses {100 * (er[9] - er[10]):.1f} at the first and has lost {100 * (er[0] - er[30]):.1f}" in TEXT
    for method in ("simplex_hoc", "er"):
        up_to = [f"{100 * value:.1f}" for value in replaced(method, 7)["AA_tau"]]
        assert ", ".join(f"**{value}**" if task in (3, 5) else value for task, value in enumerate(up_to, 1)) in TEXT


def compatible(path: str, *, across: bool) -> tuple[int, int]:
    """Compatible pairs of 31 models, within a stretch between replacements or across one, and of how many."""
    matrix = scores(path)["matrix"]
    pairs = [(new, old) for new in range(31) for old in range(new) if (stretch(new) != stretch(old)) == across]
    return sum(matrix[new][old] > matrix[old][old] for new, old in pairs), len(pairs)


def stretch(model: int) -> int:
    return (model >= 10) + (model >= 20)


def test_where_pairs_are_compatible():
    def said(path: str, across: bool) -> str:
        return "{} of {}".format(*compatible(f"iam/{path}", across=across))

    usual, slow = "replaced/simplex_hoc-t31-natural-s0.json", "ablation/simplex_hoc-t31-natural-s0-rate-0.0001.json"
    assert f"between replacements {said(usual, False)} are compatible" in TEXT
    assert f"those across a replacement {said(usual, True)}, short" in TEXT
    assert f"{said(slow, False)} and {said(slow, True)}, and AC is 0.58" in TEXT
    fd, hoc = (f"iam/architectures/{name}-t31-natural-s0.json" for name in ("simplex_fd", "simplex_hoc"))
    (a, all_across), (b, _) = compatible(fd, across=True), compatible(hoc, across=True)
    (c, _), (d, all_within) = compatible(fd, across=False), compatible(hoc, across=False)
    assert f"d-Simplex-FD has {a} of {all_across} pairs compatible and d-Simplex-HOC {b}" in TEXT
    assert f"within a stretch {c} and {d} of {all_within}" in TEXT


def test_whose_items_are_buried():
    def shares(path: str, models: int) -> tuple[float, float]:
        versions = json.loads((ROOT / "results/iam" / path).read_text(encoding="utf-8"))["mixed"]["versions"][:models]
        return tuple(100 * sum(one[name] for one in versions) for name in ("share_of_gallery", "share_of_hits"))

    kept, hits = shares("replaced/simplex_hoc-t7-natural-s0.json", 4)
    assert f"{kept:.0f} % of the gallery, take {hits:.2f} % of the first places" in TEXT
    alone = "none/simplex_hoc-t31-natural-s0.json"
    assert "64 %, take 38 % of the first places" in TEXT
    assert [round(share) for share in shares(alone, 20)] == [64, 38]
    kept, hits = shares(alone, 10)
    assert f"the first ten's, {kept:.0f} %, take {hits:.1f} %" in TEXT
    assert f"which has {shares('replaced/fan-t7-natural-s0.json', 4)[1]:.1f} % of the first places" in TEXT


def test_the_order_of_the_methods_across_replacements():
    printed = paper_table("table6")
    here = sorted(PAPER_METHODS, key=lambda method: -replaced(method, 7)["AA"])
    there = sorted(PAPER_METHODS, key=lambda method: -printed[method]["7"][1])
    assert here[:4] == there[:4]
    assert f"({', '.join(METHOD_NAMES[method] for method in here[:4])})" in TEXT
    assert here != there
    last = [100 * replaced(method, 7)["AA"] for method in here[4:]], [printed[method]["7"][1] for method in there[4:]]
    assert "within {:.1f} points here and {:.1f} there".format(*(max(some) - min(some) for some in last)) in TEXT


def test_what_other_architectures_bring():
    er, fd, hoc = (
        scores(f"iam/architectures/{name}-t31-natural-s0.json") for name in ("er", "simplex_fd", "simplex_hoc")
    )

    def across(record: dict) -> list[str]:
        return [f"{100 * record['AA_tau'][at]:.1f}" for at in (9, 10, 19, 20, 30)]

    assert "{} to {} and {} to {}, and ends at {} (paper".format(*across(hoc)) in TEXT
    assert "falls at both ({} to {}, {} to {}) and ends at {}".format(*across(fd)) in TEXT
    assert f"loses {100 * (er['AA_tau'][9] - er['AA_tau'][10]):.1f} points at the first" in TEXT
    assert er["AA_tau"][19] is not None
    assert er["AA_tau"][20] is None
    cells = [100 * hoc["matrix"][row][column] for row, column in ((30, 30), (30, 0), (0, 0))]
    assert "finds {:.1f} % on its own gallery and {:.1f} % on that of the first ResNet-18".format(*cells) in TEXT
    assert f"{cells[2]:.1f} %. In AC" in TEXT
    assert f"{hoc['AC']:.2f} against {fd['AC']:.2f} of d-Simplex-FD" in TEXT
    assert f"it has {hoc['AC_tau'][10]:.2f} against {fd['AC_tau'][10]:.2f} up to task 11" in TEXT


def test_how_many_classes_of_pre_training_resemble_the_test():
    test = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}
    assert f"Of the 200 classes {sum(look in test for look in COUNTERPARTS.values())} resemble one of CIFAR10" in TEXT

"""The numbers in docs/reproduction.md are those of the committed results, or the paper's."""

import json
import re
import statistics
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.data.tiny_counterparts import COUNTERPARTS
from holdfast.reports import METHOD_NAMES
from holdfast.reproduction.cifar import PAPER_METHODS

ROOT = Path(__file__).parents[1]
TEXT = " ".join((ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8").split())
TRIPLE = re.compile(r"(\d\.\d\d) / (\d+\.\d) / (\d+\.\d)(?: at (\d+))?")


def scores(path: str, protocol: str = "template") -> dict:
    return json.loads((ROOT / "results" / path).read_text(encoding="utf-8"))["protocols"][protocol]


def of_paper_set(method: str, tasks: int, protocol: str = "template") -> dict:
    return scores(f"cifar100-10/paper/{method}-t{tasks}-natural-s0.json", protocol)


def of_tuned_set(method: str, tasks: int, name: str, protocol: str = "template") -> float:
    files = sorted((ROOT / "results/cifar100-10/tuned").glob(f"{method}-t{tasks}-natural-s*.json"))
    return statistics.fmean(scores(str(path), protocol)[name] for path in files)


def replaced(method: str, tasks: int) -> dict:
    return scores(f"iam/replaced/{method}-t{tasks}-natural-s0.json")


def measured() -> Iterator[tuple[int, str]]:
    """Tasks and AC / AA / ACA of every run, and of the mean over the seeds of each."""
    groups: dict[Path, list[dict]] = {}
    for path in sorted((ROOT / "results").glob("*/*/*-t*-s*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if "template" not in record.get("protocols", {}):
            continue
        same = path.with_name(re.sub(r"-s\d+", "", path.name))
        groups.setdefault(same, []).append(record["protocols"]["template"])
    for group in groups.values():
        if any(one["AA"] is None for one in group):  # features of unequal sizes
            continue
        for chosen in [*([one] for one in group), group]:
            ac, aa, aca = (statistics.fmean(one[name] for one in chosen) for name in ("AC", "AA", "ACA"))
            yield len(group[0]["matrix"]), f"{ac:.2f} / {100 * aa:.1f} / {100 * aca:.1f}"


def printed_in_the_paper() -> Iterator[tuple[int, str]]:
    for rows in paper_table("table2").values():
        for tasks, (ac, aa, aca) in rows.items():
            yield int(tasks), f"{ac:.2f} / {aa:.1f} / {aca:.1f}"


def paper_table(name: str) -> dict:
    return tomllib.loads((ROOT / f"src/holdfast/reproduction/paper/{name}.toml").read_text(encoding="utf-8"))


def test_every_triple_is_somebodys():
    known = {*measured(), *printed_in_the_paper()}
    found = TRIPLE.findall(TEXT)
    assert len(found) >= 20
    for *numbers, tasks in found:
        triple = " / ".join(numbers)
        assert any(triple == one and tasks in ("", str(count)) for count, one in known), (triple, tasks)


@pytest.mark.parametrize("method", PAPER_METHODS)
def test_the_sum_of_both_self_tests_at_two_tasks(method):
    matrix = of_paper_set(method, 2)["matrix"]
    _, aa, aca = paper_table("table2")[method]["2"]
    name, here, there = METHOD_NAMES[method], 100 * (matrix[0][0] + matrix[1][1]), 3 * aa - aca
    said = {
        "er": f"a sum of {there:.1f} (here {here:.1f})",
        "bct": f"{name} {here:.1f} and {100 * matrix[1][0]:.1f} ({there:.1f} and {aca:.1f})",
    }
    assert said.get(method, f"{name} {here:.1f} ({there:.1f})") in TEXT


def test_who_is_compatible_by_instance():
    by_instance = {
        (method, tasks): of_paper_set(method, tasks, "instance")["AC"] for method in PAPER_METHODS for tasks in (7, 16)
    }
    hoc = [
        by_instance["simplex_hoc", 7],
        by_instance["simplex_hoc", 16],
        of_paper_set("simplex_hoc", 31, "instance")["AC"],
    ]
    assert "its AC is {:.2f} at 7 and {:.2f} at 16 tasks".format(*hoc) in TEXT
    assert f"and {hoc[2]:.2f} at 31. FAN has {by_instance['fan', 7]:.2f} and {by_instance['fan', 16]:.2f}" in TEXT
    assert f"CVS {by_instance['cvs', 7]:.2f} and {by_instance['cvs', 16]:.2f}, all others 0.00" in TEXT
    named = {"simplex_hoc", "fan", "cvs"}
    assert all(ac < 0.005 for (method, _), ac in by_instance.items() if method not in named)
    ours = [of_tuned_set("simplex_hoc_views", tasks, "AC", "instance") for tasks in (7, 16, 31)]
    said = "(AC {:.2f}, {:.2f} and {:.2f} against {:.2f}, {:.2f} and {:.2f})".format(*ours, *hoc)
    assert said in TEXT


def test_who_is_ahead_of_our_own_method():
    def ahead(method: str, tasks: int) -> str:
        gain = of_paper_set(method, tasks)["AA"] - of_tuned_set("simplex_hoc_views", tasks, "AA")
        return f"{100 * gain:.1f}"

    assert f"FAN's AA is {ahead('fan', 2)} above it at 2 tasks and {ahead('fan', 7)} at 7" in TEXT
    assert f"where CVS's is {ahead('cvs', 7)} above it" in TEXT


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


def test_what_the_first_model_decides():
    """AC at 7 tasks with another bar for the first gallery; all compatible pairs of these methods are on that one."""

    def with_bar(folder: str, method: str, bar: float | None = None) -> float:
        matrix = scores(f"cifar100-10/{folder}/{method}-t7-natural-s0.json")["matrix"]
        bars = [row[i] for i, row in enumerate(matrix)]
        assert not any(matrix[new][old] > bars[old] for new in range(7) for old in range(1, new))
        return sum(row[0] > (bars[0] if bar is None else bar) for row in matrix[1:]) / 21

    low, middle, high = (
        scores(f"cifar100-10/{name}-t7-natural-s0.json")["matrix"][0][0]
        for name in ("paper/er", "tuned/bct", "tuned/fan")
    )
    assert f"finds {100 * low:.1f} % on its own gallery in the `paper` set, {100 * middle:.1f} in" in TEXT
    assert f"{100 * high:.1f} in those of FAN and AdvBCT-ER" in TEXT
    tuned = {f"{with_bar('tuned', method, low):.2f}" for method in ("bct", "advbct")}
    assert f"would have {tuned.pop()} each instead of {with_bar('tuned', 'bct'):.2f}" in TEXT
    assert not tuned
    three = ("er", "bct", "advbct")
    said = "{:.2f}, {:.2f} and {:.2f} instead of {:.2f}, {:.2f} and {:.2f}"
    bars = [*(with_bar("paper", method, high) for method in three), *(with_bar("paper", method) for method in three)]
    assert said.format(*bars) in TEXT


def test_what_the_kernels_may_cost():
    record = json.loads((ROOT / "results/bench/executor_accuracy-h200.json").read_text(encoding="utf-8"))
    over = {row["executor"]: row for row in record["over_seeds"]}
    aa = [100 * over[executor]["AA"] for executor in ("fused", "graph")]
    assert "AA is {:.1f} with them and {:.1f} without".format(*aa) in TEXT
    far, error = (100 * over["fused"][name] for name in ("AA_minus_first", "standard_error"))
    assert f"a mean difference of {far:.1f} with a standard error of {error:.1f}" in TEXT
    aca = [
        100 * statistics.fmean(row["ACA"] for row in record["rows"] if row["executor"] == executor) for executor in over
    ]
    assert "ACA is {1:.1f} and {0:.1f}".format(*aca) in TEXT


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


def self_tests(method: str, tasks: int) -> list[str]:
    matrix = of_paper_set(method, tasks)["matrix"]
    return [f"{100 * row[i]:.1f}" for i, row in enumerate(matrix)]


def test_an_update_is_a_stride():
    """Why one lambda does not serve every number of tasks."""
    hoc = {tasks: self_tests("simplex_hoc", tasks) for tasks in (2, 7, 16, 31)}
    er = {tasks: self_tests("er", tasks) for tasks in (2, 7, 16, 31)}
    first = [hoc[tasks][1] for tasks in (2, 7, 16, 31)]
    gains = [float(reached) - float(hoc[2][0]) for reached in first]
    assert f"lifts the self-test by {min(gains):.1f} to {max(gains):.1f} points" in TEXT
    assert f"from {hoc[2][0]} to {first[0]} with 90 new classes" in TEXT
    assert "to {} with 15 and 4,200, {} with 6 and 1,750, {} with 3 and 910".format(*first[1:]) in TEXT
    assert f"ER's goes from {er[2][0]} to {er[2][1]}, {er[7][1]}, {er[16][1]} and {er[31][1]}" in TEXT
    after_forty = (hoc[7][2], hoc[16][5], hoc[31][10])
    assert "has {} if they came in 2 updates, {} in 5 and {} in 10".format(*after_forty) in TEXT


def test_the_curves_of_table_8():
    def found(axis: str, value: str) -> dict:
        if value == {"lambda": "0.1", "rho": "5"}[axis]:
            return of_paper_set("simplex_hoc", 16)
        return scores(f"cifar100-10/ablation/simplex_hoc-t16-natural-s0-{axis}-{value}.json")

    below = []
    for axis, values in paper_table("table8").items():
        if axis == "K":
            continue
        here = [found(axis, f"{float(value):g}") for value in values]
        assert ", ".join(f"{one['AC']:.2f}" for one in here) in TEXT
        assert ", ".join(f"{ac:.2f}" for ac, _, _ in values.values()) in TEXT
        below += [aa - 100 * one["AA"] for one, (_, aa, _) in zip(here, values.values())]
        best = max(range(len(here)), key=lambda i: here[i]["ACA"])
        assert best == max(range(len(here)), key=lambda i: [*values.values()][i][2])
    assert f"AA lies {min(below):.1f} to {max(below):.1f} points below the paper's" in TEXT


def test_by_how_much_pairs_are_lost_in_another_order():
    def lost(tasks: int) -> list[float]:
        matrix = scores(f"cifar100-10/tuned/simplex_hoc_views-t{tasks}-icarl-s0.json")["matrix"]
        gains = (matrix[new][old] - matrix[old][old] for new in range(tasks) for old in range(new))
        return [-100 * gain for gain in gains if not gain > 0]

    assert len(lost(7)) == 9
    assert max(lost(7)) < 0.5
    assert f"{sum(loss < 1 for loss in lost(16))} of {len(lost(16))} at 16 by less than one" in TEXT

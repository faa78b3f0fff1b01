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


def test_the_order_of_the_methods_across_replacements():
    printed = paper_table("table6")
    here = sorted(PAPER_METHODS, key=lambda method: -replaced(method, 7)["AA"])
    there = sorted(PAPER_METHODS, key=lambda method: -printed[method]["7"][1])
    assert here[:4] == there[:4]
    assert f"({', '.join(METHOD_NAMES[method] for method in here[:4])})" in TEXT
    assert here != there
    last = [100 * replaced(method, 7)["AA"] for method in here[4:]], [printed[method]["7"][1] for method in there[4:]]
    assert "within {:.1f} points here and {:.1f} there".format(*(max(some) - min(some) for some in last)) in TEXT


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

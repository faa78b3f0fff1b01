"""The numbers in docs/reproduction.md are those of the committed results, or the paper's."""

import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from committed_results import ROOT, of_paper_set, of_tuned_set, over_seeds, paper_table, scores, told
from holdfast.reports import METHOD_NAMES
from holdfast.reproduction.cifar import PAPER_METHODS

TEXT = told("reproduction.md")
TRIPLE = re.compile(r"(\d\.\d\d) / (\d+\.\d) / (\d+\.\d)(?: at (\d+))?")


def measured() -> Iterator[tuple[int, str]]:
    """Tasks and AC / AA / ACA of every run, and of the mean over the seeds of each, by template and by instance."""
    groups: dict[tuple[Path, str], list[dict]] = {}
    for path in sorted((ROOT / "results").glob("*/*/*-t*-s*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        same = path.with_name(re.sub(r"-s\d+", "", path.name))
        for protocol, found in record.get("protocols", {}).items():
            groups.setdefault((same, protocol), []).append(found)
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
    def found(method: str, tasks: int, name: str = "AC") -> float:
        return over_seeds(f"cifar100-10/paper/{method}-t{tasks}-natural-s*.json", name, "instance")

    by_instance = {(method, tasks): found(method, tasks) for method in PAPER_METHODS for tasks in (7, 16)}
    hoc = [found("simplex_hoc", tasks) for tasks in (7, 16, 31)]
    assert "its AC is {:.2f} at 7 and {:.2f} at 16 tasks".format(*hoc) in TEXT
    assert f"and {hoc[2]:.2f} at 31. FAN has {by_instance['fan', 7]:.2f} and {by_instance['fan', 16]:.2f}" in TEXT
    said = f"CVS {by_instance['cvs', 7]:.2f} and {by_instance['cvs', 16]:.2f} (n = 3), all others 0.01 at most"
    assert said in TEXT
    named = {"simplex_hoc", "fan", "cvs"}
    assert all(ac < 0.015 for (method, _), ac in by_instance.items() if method not in named)
    ours = [of_tuned_set("simplex_hoc_views", tasks, "AC", "instance") for tasks in (7, 16, 31)]
    said = "(AC {:.2f}, {:.2f} and {:.2f} against {:.2f}, {:.2f} and {:.2f})".format(*ours, *hoc)
    assert said in TEXT
    more = [
        100 * (of_tuned_set("simplex_hoc_views", tasks, "AA", "instance") - found("simplex_hoc", tasks, "AA"))
        for tasks in (7, 16, 31)
    ]
    assert "with AA {:.1f}, {:.1f} and {:.1f} points higher".format(*more) in TEXT


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


def test_where_distillation_falls_short():
    def found(path: str) -> tuple[float, float, float]:
        matrix = scores(f"cifar100-10/{path}.json")["matrix"]
        crossed = [matrix[new][old] for new in range(7) for old in range(new)]
        own = [matrix[model][model] for model in range(7)]
        return 100 * statistics.fmean(own), 100 * statistics.fmean(crossed), 100 * matrix[6][0]

    er, below = found("questions/er-t7-natural-s0-again"), []
    assert "| {:.1f} | {:.1f} | {:.1f} |".format(*er) in TEXT
    changes = ("questions/simplex_fd-t7-natural-s0-all", "-weight-15", "-squared")
    for path in (
        "questions/simplex_fd-t7-natural-s0-again",
        changes[0],
        changes[0] + changes[1],
        changes[0] + changes[2],
    ):
        own = found(path)
        assert "| {:.1f} | {:.1f} | {:.1f} |".format(*own) in TEXT
        below.append([f"{er[1] - own[1]:.1f}", f"{er[0] - own[0]:.1f}"])
    half, base_5, base_15, squared = below
    said = f"{half[0]} and {base_5[0]} points below ER's, self-tests {half[1]} and {base_5[1]}."
    assert said in TEXT
    assert f"({base_15[0]} and {base_15[1]}, {squared[0]} and {squared[1]})" in TEXT


def by_distance(path: str, nearest: int, farthest: int, galleries: range = range(31)) -> tuple[float, float]:
    """Of pairs so many updates apart: the compatible share, and by how many points the newer model is ahead."""
    matrix = scores(f"cifar100-10/{path}.json")["matrix"]
    pairs = [(t, k) for t in range(len(matrix)) for k in range(t) if k in galleries and nearest <= t - k <= farthest]
    gains = [matrix[t][k] - matrix[k][k] for t, k in pairs]
    return sum(gain > 0 for gain in gains) / len(gains), 100 * statistics.fmean(gains)


def test_which_pairs_are_lost_at_31_tasks():
    hoc, ours = (
        [f"{name}-t31-natural-s{seed}" for seed in range(3)]
        for name in ("paper/simplex_hoc", "tuned/simplex_hoc_views")
    )
    far, near = ([by_distance(path, *between) for path in hoc] for between in ((25, 30), (1, 15)))
    said = "updates apart {:.2f}, {:.2f} and {:.2f} are compatible, their cross-tests {:.1f}, {:.1f} and {:.1f} points"
    assert said.format(*(share for share, _ in far), *(-gain for _, gain in far)) in TEXT
    assert "of those up to 15 apart {:.2f}, {:.2f} and {:.2f}.".format(*(share for share, _ in near)) in TEXT

    def mean_share(paths: list[str], nearest: int, farthest: int, galleries: range = range(31)) -> float:
        return statistics.fmean(by_distance(path, nearest, farthest, galleries)[0] for path in paths)

    near, far = ([mean_share(paths, *between) for paths in (ours, hoc)] for between in ((1, 5), (21, 30)))
    said = "ours has {:.2f} and d-Simplex-HOC {:.2f}, from 21 on ours has {:.2f} and d-Simplex-HOC {:.2f}"
    assert said.format(*near, *far) in TEXT
    early_and_late = [
        mean_share(paths, 1, 5, galleries) for paths in (ours, hoc) for galleries in (range(5), range(15, 20))
    ]
    said = "ours has {:.2f} on galleries 1 to 5 and {:.2f} on 16 to 20, d-Simplex-HOC {:.2f} and {:.2f}"
    assert said.format(*early_and_late) in TEXT
    late = [
        (matrix[k + 1][k + 1] - matrix[k][k], matrix[k][k] - matrix[k + 1][k])
        for matrix in (scores(f"cifar100-10/{path}.json")["matrix"] for path in ours)
        for k in range(15, 30)
    ]
    rise, loss = (100 * statistics.fmean(values) for values in zip(*late))
    assert f"{rise:.2f} points above its predecessor's on average" in TEXT
    assert f"on that one's gallery {loss:.2f} below" in TEXT


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

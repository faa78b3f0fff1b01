"""The numbers in docs/reproduction.md are those of the committed results, or the paper's."""

import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from committed_results import ROOT, of_paper_set, of_tuned_set, over_seeds, paper_table, scores, self_tests, told
from holdfast.reports import METHOD_NAMES
from holdfast.reproduction import Results
from holdfast.reproduction.cifar import OURS, PAPER_METHODS
from holdfast.reproduction.exhibit import EVERYTHING
from holdfast.reproduction.exhibits import EXHIBITS

TEXT = told("reproduction.md")
TRIPLE = re.compile(r"(\d\.\d\d) / (\d+\.\d) / (\d+\.\d)(?: at (\d+))?")


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
        gain = over_seeds(f"cifar100-10/paper/{method}-t{tasks}-natural-s*.json", "AA")
        return f"{100 * (gain - of_tuned_set('simplex_hoc_views', tasks, 'AA')):.1f}"

    assert f"FAN's AA is {ahead('fan', 2)} above it at 2 tasks and {ahead('fan', 7)} at 7" in TEXT
    assert f"where CVS's is {ahead('cvs', 7)} above it (n = 3)" in TEXT
    others = ", ".join(ahead(method, 2) for method in ("advbct", "cvs", "bct"))
    assert f"by {others} and {ahead('er', 2)}" in TEXT


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


def test_how_far_an_update_goes():
    """Why one lambda does not serve every number of tasks."""
    hoc, er = (
        {tasks: self_tests(f"cifar100-10/paper/{method}-t{tasks}-natural-s0.json") for tasks in (2, 7, 16, 31)}
        for method in ("simplex_hoc", "er")
    )
    lifts = [hoc[tasks][1] - hoc[tasks][0] for tasks in hoc]
    assert f"lifts the self-test by {min(lifts):.1f} to {max(lifts):.1f} points" in TEXT
    said = "from {:.1f} to {:.1f} with 90 new classes and 24,710 steps, to {:.1f} with 15 and 4,200, to {:.1f} with 6"
    assert said.format(hoc[2][0] - 0.001, *(hoc[tasks][1] for tasks in hoc)) in TEXT  # 32.25 rounds either way
    assert "goes from {:.1f} to {:.1f}, {:.1f}, {:.1f} and {:.1f}".format(er[2][0], *(er[t][1] for t in er)) in TEXT
    at_forty = {7: 2, 16: 5, 31: 10}
    ours, theirs = ([run[tasks][model] for tasks, model in at_forty.items()] for run in (hoc, er))
    assert "has {:.1f} if they came in 2 updates, {:.1f} in 5 and {:.1f} in 10".format(*ours) in TEXT
    assert "ER has {:.1f}, {:.1f} and {:.1f}, the other way round".format(*theirs) in TEXT
    by_lambda = [ablated("lambda", value) for value in ("0", "0.05", "0.1", "0.25", "0.5", "1")]
    assert (
        "by {:.1f}, {:.1f}, {:.1f}, {:.1f}, {:.1f} and {:.1f} with λ".format(*(b - a for a, b, *_ in by_lambda)) in TEXT
    )
    by_slots = [b - a for a, b, *_ in (ablated("K", value) for value in ("200", "500", "1000", "5000", "10000"))]
    assert f"lifts by {min(by_slots):.1f} to {max(by_slots):.1f}" in TEXT


def ablated(axis: str, value: str) -> list[float]:
    """Self-tests of a row of Table 8."""
    changed = "" if (axis, value) == ("lambda", "0.1") else f"-{axis}-{value}"
    return self_tests(f"cifar100-10/{'ablation' if changed else 'paper'}/simplex_hoc-t16-natural-s0{changed}.json")


def test_where_distillation_falls_short():
    def found(path: str) -> tuple[float, float, float]:
        matrix = scores(f"cifar100-10/{path}.json")["matrix"]
        crossed = [matrix[new][old] for new in range(7) for old in range(new)]
        own = [matrix[model][model] for model in range(7)]
        return 100 * statistics.fmean(own), 100 * statistics.fmean(crossed), 100 * matrix[6][0]

    er, below = found("paper/er-t7-natural-s0"), []
    assert "| {:.1f} | {:.1f} | {:.1f} |".format(*er) in TEXT
    changes = ("questions/simplex_fd-t7-natural-s0-all", "-weight-15", "-squared")
    for path in ("paper/simplex_fd-t7-natural-s0", changes[0], changes[0] + changes[1], changes[0] + changes[2]):
        own = found(path)
        assert "| {:.1f} | {:.1f} | {:.1f} |".format(*own) in TEXT
        below.append([f"{er[1] - own[1]:.1f}", f"{er[0] - own[0]:.1f}"])
    half, base_5, base_15, squared = below
    said = f"{half[0]} and {base_5[0]} points below ER's, self-tests {half[1]} and {base_5[1]}."
    assert said in TEXT
    assert f"({base_15[0]} and {base_15[1]}, {squared[0]} and {squared[1]})" in TEXT


def by_distance(path: str, nearest: int, farthest: int) -> tuple[float, float]:
    """Of pairs so many updates apart: the compatible share, and by how many points the newer model is ahead."""
    matrix = scores(f"cifar100-10/{path}.json")["matrix"]
    models = range(len(matrix))
    gains = [matrix[t][k] - matrix[k][k] for t in models for k in range(t) if nearest <= t - k <= farthest]
    return sum(gain > 0 for gain in gains) / len(gains), 100 * statistics.fmean(gains)


def test_which_pairs_are_lost_at_31_tasks():
    hoc, ours = "paper/simplex_hoc-t31-natural-s0", "tuned/simplex_hoc_views-t31-natural-s0"
    far, gain = by_distance(hoc, 25, 30)
    assert far == 0
    near = by_distance(hoc, 1, 15)[0]
    assert f"{-gain:.1f} points below the bar on average; of those up to 15 apart {near:.2f} are" in TEXT
    near, far = ([by_distance(path, *between)[0] for path in (ours, hoc)] for between in ((1, 5), (21, 30)))
    assert (
        "({:.2f} and {:.2f} are compatible), from 21 on ours has {:.2f} and d-Simplex-HOC {:.2f}".format(*near, *far)
        in TEXT
    )
    matrix = scores(f"cifar100-10/{ours}.json")["matrix"]
    late = range(15, 30)
    rise = 100 * statistics.fmean(matrix[k + 1][k + 1] - matrix[k][k] for k in late)
    loss = 100 * statistics.fmean(matrix[k][k] - matrix[k + 1][k] for k in late)
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


def test_by_how_much_pairs_are_lost_in_another_order():
    def lost(tasks: int) -> list[float]:
        matrix = scores(f"cifar100-10/tuned/simplex_hoc_views-t{tasks}-icarl-s0.json")["matrix"]
        gains = (matrix[new][old] - matrix[old][old] for new in range(tasks) for old in range(new))
        return [-100 * gain for gain in gains if not gain > 0]

    assert len(lost(7)) == 9
    assert max(lost(7)) < 0.5
    assert f"{sum(loss < 1 for loss in lost(16))} of {len(lost(16))} at 16 by less than one" in TEXT


def test_how_many_goals_are_met():
    rows = EXHIBITS["goals"].rows(Results(ROOT / "results"), EVERYTHING)
    own = [row for row in rows if row["method"] == OURS and not row["aim"]]
    words = dict(enumerate(["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]))
    met = sum(row["met"] for row in own)
    missed = [-row["margin"] for row in own if not row["met"] and row["score"] != "AC"]
    short = [-row["margin"] for row in own if not row["met"] and row["score"] == "AC"]
    assert f"Of its {words[len(own)]} goals it meets {words[met]}" in TEXT
    said = f"misses by {100 * min(missed):.1f} to {100 * max(missed):.1f} points, or {max(short):.2f} of AC"
    assert said in TEXT
    for row in own:
        if not row["met"]:
            shown = f"{-row['margin']:.2f}" if row["score"] == "AC" else f"{-100 * row['margin']:.1f}"
            (line,) = re.findall(rf"\| {row['tasks']} \| [^|]+ \| [^|]+ \| [^|]+ \| ([^|]+) \|", TEXT)
            assert f"{row['score']} by {shown}" in line

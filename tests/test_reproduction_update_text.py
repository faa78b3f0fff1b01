"""What docs/reproduction.md says of a single update, and of features that shrink, is what the committed results say."""

import json
import statistics

from committed_results import ROOT, self_tests, told

TEXT = told("reproduction.md")


def lift(path: str) -> float:
    """By how many points the first update raises the self-test."""
    first, second, *_ = self_tests(f"cifar100-10/{path}.json")
    return second - first


def ablated(axis: str, value: str) -> list[float]:
    """Self-tests of a row of Table 8; its centre by the code of the other rows."""
    centre = (axis, value) == ("lambda", "0.1")
    run = "simplex_hoc-t16-natural-s0"
    return self_tests(
        f"cifar100-10/questions/{run}-again.json" if centre else f"cifar100-10/ablation/{run}-{axis}-{value}.json"
    )


def lengths(file: str) -> dict[tuple[str, int], float]:
    """Mean length of raw features, by run and model."""
    record = json.loads((ROOT / "results/bench" / file).read_text(encoding="utf-8"))
    return {(row["run"], row["model"]): row["length"] for row in record["rows"]}


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


def test_how_lambda_decides_the_first_update():
    at = {7: "questions/simplex_hoc-t7-natural-s0-", 2: "questions/simplex_hoc-t2-natural-s0-"}
    seven = [lift(at[7] + change) for change in ("again", "lambda-0.2", "lambda-0.3")]
    two = [lift("paper/simplex_hoc-t2-natural-s0"), *(lift(at[2] + f"lambda-{value}") for value in ("0.3", "0.6"))]
    assert "at 7 by {:.1f}, {:.1f} and {:.1f} with 0.1, 0.2 and 0.3".format(*seven) in TEXT
    assert "at 2 by {:.1f}, {:.1f} and {:.1f} with 0.1, 0.3 and 0.6".format(*two) in TEXT
    free = sum(self_tests(f"cifar100-10/{at[2]}lambda-0.6.json"))
    distilled = sum(self_tests("cifar100-10/paper/simplex_fd-t2-natural-s0.json"))
    replayed = sum(self_tests("cifar100-10/paper/er-t2-natural-s0.json"))
    said = f"add up to {free:.1f} (λ 0.6) and {distilled:.1f} (d-Simplex-FD) where ER has {replayed:.1f}"
    assert said in TEXT
    # None of what questions 2 to 6 change lets the first update go farther.
    changes = ("frobenius", "negatives-paper", "negatives-masked", "cosine", "independent", "decay-1e-4", "decay-0")
    assert max(lift(at[7] + change) for change in (*changes, "decay-norms")) < 4


def test_how_features_shrink():
    length = lengths("feature_length-h200.json") | lengths("feature_length_held-h200.json")

    def both(run: str) -> tuple[float, float]:
        return length[run, 1], length[run, 2]

    natural = "simplex_hoc-t{}-natural-s0-{}"
    (first, sixteen), (same, seven) = both(natural.format(16, "again")), both(natural.format(7, "again"))
    assert first == same
    said = f"from {first:.1f} after the first task to {sixteen:.1f} after the first update at 16 tasks, "
    assert said + f"{seven:.1f} at 7" in TEXT
    assert "from {:.1f} to {:.1f} at 2".format(*both("simplex_hoc-t2-icarl-s0")) in TEXT
    shrunk, kept = (both(natural.format(2, f"lambda-{value}"))[1] for value in ("0.3", "0.6"))
    assert f"to {shrunk:.1f} with λ 0.3 and not at all with 0.6 ({kept:.1f})" in TEXT
    assert "from {:.1f} to {:.1f} with 1,000 slots".format(*both("simplex_hoc_views-t7-natural-s0-K-1000")) in TEXT
    assert "from {:.1f} to {:.1f} at 7 tasks".format(*both("simplex_hoc_views-t7-natural-s0-again")) in TEXT
    held = [both(natural.format(tasks, "length-25"))[1] for tasks in (2, 7, 16)]
    assert f"Raw features are then {min(held):.1f} to {max(held):.1f} long after the update" in TEXT
    firsts, seconds = zip(*(both(natural.format(7, f"decay-{change}")) for change in ("1e-4", "0", "norms")))
    assert "({:.1f} with 1e-4, {:.1f} with none, {:.1f} with norms spared)".format(*firsts) in TEXT
    assert "second model's are {:.1f}, {:.1f} and {:.1f} all the same".format(*seconds) in TEXT


def test_what_holding_the_length_does():
    question = "questions/simplex_hoc-t{}-natural-s0-{}"
    held = [lift(question.format(tasks, "length-25")) for tasks in (2, 7, 16)]
    free = [lift("paper/simplex_hoc-t2-natural-s0"), *(lift(question.format(tasks, "again")) for tasks in (7, 16))]
    said = (
        "{3:.1f} instead of {0:.1f} points at 2 tasks, {4:.1f} instead of {1:.1f} at 7 and {5:.1f} instead of {2:.1f}"
    )
    assert said.format(*free, *held) in TEXT
    larger = [lift(question.format(2, "lambda-0.3")), lift(question.format(7, "lambda-0.2"))]
    larger.append(ablated("lambda", "0.25")[1] - ablated("lambda", "0.25")[0])
    assert "λ 0.3 lifts by {:.1f} at 2, 0.2 by {:.1f} at 7 and 0.25 by {:.1f} at 16".format(*larger) in TEXT


def test_what_holding_the_length_does_to_a_small_network():
    """On two cores."""

    def mean_lift(tasks: int, change: str = "") -> float:
        return statistics.fmean(lift(f"small/simplex_hoc-t{tasks}-natural-s{seed}{change}") for seed in range(3))

    free, held = ([mean_lift(tasks, change) for tasks in (2, 7, 16)] for change in ("", "-length-28"))
    said = (
        "lifts by {3:.1f} instead of {0:.1f} points at 2 tasks, {4:.1f} instead of {1:.1f} at 7 and {5:.1f} instead of"
    )
    assert said.format(*free, *held) in TEXT
    assert f"{free[2]:.1f} at 16 (n = 3)" in TEXT
    short = [mean_lift(tasks, "-length-7") for tasks in (2, 7)]
    assert "lifts by {:.1f} at 2 tasks and {:.1f} at 7 (n = 3, on another processor".format(*short) in TEXT
    first = [
        [
            self_tests(f"cifar100-10/small/simplex_hoc-t{tasks}-natural-s{seed}{change}.json")[0]
            for change in ("", "-length-7")
        ]
        for tasks in (2, 7)
        for seed in range(3)
    ]
    assert f"moves first models by {max(abs(one - other) for one, other in first):.1f} points at most" in TEXT
    others = lift("small/er-t2-natural-s0"), lift("small/simplex_hoc-t2-natural-s0-lambda-0.6")
    assert "ER's first update lifts by {:.1f} at 2 tasks, and λ 0.6 by {:.1f}".format(*others) in TEXT
    length = lengths("feature_length-2cores.json")
    runs = [f"simplex_hoc-t{tasks}-natural-s0" for tasks in (2, 7, 16)]
    shrunk = [length[name, 2] for name in runs]
    assert "from {:.1f} to {:.1f}, {:.1f} and {:.1f} at 2, 7 and 16 tasks".format(length[runs[0], 1], *shrunk) in TEXT

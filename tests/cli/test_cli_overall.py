"""The time left for all runs of a sweep, by a made-up clock."""

import io
import re

import pytest
import torch

from holdfast.cli import progress
from holdfast.cli.progress import Position
from holdfast.cli.sweep_progress import OVERALL_SECONDS, Bars, Lines, OverallProgress, sweep_display
from holdfast.train.events import RunEnded, StepsDone, TaskBegan, TasksPlanned
from holdfast.train.experiments.assemble import SharedData
from papers.sweeps.plan import plan, remaining_steps
from papers.sweeps.sweep import SweepOptions, run_all

PLAN = TasksPlanned([40, 60])
DONE = RunEnded()


def begin(task, step=0):
    return TaskBegan(task, step, 0, 2, "eager")


def pulse(task, step):
    return StepsDone(task, step)


@pytest.fixture
def now(monkeypatch):
    """Seconds, to be changed."""
    clock = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    return clock


@pytest.fixture
def follow(now):
    """An ``OverallProgress`` of runs a, b, c and a function that lets it hear what happens at a second."""
    positions = {name: Position() for name in "abc"}
    overall = OverallProgress(positions)

    def hear(second, name, *events):
        now[0] = 1000.0 + second
        for event in events:
            if event.kind != "failed":
                positions[name].follow(event)
            overall.follow(name, event)

    overall.hear = hear
    return overall


def test_queued_runs_count(follow):
    follow.remaining = {"a": 100, "b": 100, "c": 300}
    follow.hear(0, "a", PLAN)
    assert follow.seconds_left() is None
    follow.hear(5, "a", begin(1))  # from now on the clock runs: reading data is no training
    follow.hear(15, "a", pulse(1, 20))
    assert follow.left == 80 + 100 + 300
    assert follow.seconds_left() == 10 / 20 * 480
    follow.hear(15, "b", PLAN, begin(1), pulse(1, 30))
    assert follow.seconds_left() == 10 / 50 * 450
    assert follow.text() == "0 of 3 done, 1:30 left"


def test_steps_done_before_count_neither_as_speed_nor_as_left(follow):
    """Run a goes on at step 10 of its second task, c was finished before."""
    follow.remaining = {"a": 60, "b": 100, "c": 0}
    follow.hear(0, "c", DONE)
    assert follow.text() == "1 of 3 done"
    follow.hear(0, "a", PLAN)
    assert follow.left == 60 + 100  # its first task is done
    follow.hear(0, "a", begin(2, 10))
    assert (follow.done, follow.left) == (0, 50 + 100)
    assert follow.seconds_left() is None
    follow.hear(4, "a", pulse(2, 30))
    assert (follow.done, follow.left) == (20, 30 + 100)
    assert follow.seconds_left() == 4 / 20 * 130


def test_plain_lines_say_it_when_a_run_ends_and_else_once_a_minute(now, capsys):
    lines = Lines(["a", "b", "c"])
    lines.expect(lambda: dict.fromkeys("abc", 100))
    for event in (PLAN, begin(1)):
        lines("a", event)
    for second in range(1, 91):
        now[0] = 1000.0 + second
        lines("a", pulse(1, second))
    lines("a", DONE)
    shown = [line for line in capsys.readouterr().err.splitlines() if line.startswith("all runs")]
    assert shown == [
        f"all runs: 0 of 3 done, {progress.clock(300 - OVERALL_SECONDS - 1)} left",
        "all runs: 1 of 3 done, 3:20 left",
    ]


def test_a_terminal_shows_it_above_the_runs(now, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    bars = sweep_display(["a", "b"])
    assert isinstance(bars, Bars)
    with bars:
        bars.expect(lambda: dict.fromkeys("ab", 100))
        for event in (PLAN, begin(1)):
            bars("a", event)
        now[0] += 10
        bars("a", pulse(1, 20))
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).replace("\r", "\n")
    shown = [line.rstrip() for line in drawn.splitlines() if line.strip()]
    first, second, third = shown[-3:]
    assert first.startswith("all runs ")
    assert first.endswith("0 of 2 done, 1:30 left")
    assert second.endswith("task 1/2  0:40 left")
    assert third.endswith("waiting")
    assert max(map(len, shown)) <= 80


def test_remaining_steps_are_those_that_runs_announce(tiny_recipe, tmp_path):
    """Counted before anything begins, with what is done already left out."""
    runs = plan([str(tiny_recipe)], methods=["er", "simplex_hoc"], tasks=[2, 3], settings=["train.epochs=1"])
    shared, announced = SharedData(), {}
    before = remaining_steps(runs, tmp_path, shared)

    def stop_in_the_second_task(name, event):
        if event.kind == "plan":
            announced[name] = event.steps
        if event.kind == "begin" and event.task == 2 and "-er-" in name:
            raise ValueError("enough")

    run_all(runs, tmp_path, SweepOptions(torch.device("cpu")), shared=shared, watch=stop_in_the_second_task)
    assert before == {name: sum(steps) for name, steps in announced.items()}
    assert len(set(before.values())) == 2
    assert remaining_steps(runs, tmp_path, shared) == {
        name: sum(steps[1:]) if "-er-" in name else 0 for name, steps in announced.items()
    }

"""What one sees while a verb works: rows in a terminal, and warnings everywhere."""

import io
import re

import pytest

from holdfast.cli.progress import ProgressDisplay, RunPosition
from holdfast.train.events import (
    EpochEnded,
    EvaluationBegan,
    FeaturesBegan,
    Note,
    RunEnded,
    RunWarning,
    StepsDone,
    TaskBegan,
    TaskEnded,
    TasksPlanned,
)

EVENTS = [
    TasksPlanned([4, 6]),
    TaskBegan(1, 0, 4, 2, "eager"),
    StepsDone(1, 1),
    EpochEnded(1, 1, 4, 0.1, 1.0, {"ce": 1.5, "nce": 0.25}, 1.0),
    TaskEnded(1, 2),
    FeaturesBegan(1),
    TaskBegan(2, 0, 6, 4, "eager"),
    EpochEnded(2, 1, 3, 0.1, 1.0, {"ce": 1.0}, 1.0),
    EvaluationBegan(),
    RunEnded(),
]
SENTENCES = (Note("15 epochs instead of 30"), RunWarning("3 held-out images are gone; left out"))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def terminal_text(monkeypatch):
    """A function that returns what a terminal of 100 columns has been sent from now on, without colours."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    return lambda: re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).replace("\r", "\n")


def test_steps_of_the_whole_run_are_counted():
    position = RunPosition()
    done = []
    for event in EVENTS:
        position.follow(event)
        done.append(position.done)
    assert done == [0, 0, 1, 4, 4, 4, 4, 7, 10, 10]
    assert (position.tasks, position.steps) == (2, 10)


def test_a_resumed_run_is_shown_where_it_is():
    """Task 1 was found finished, task 2 goes on at its third step: six of ten steps are done."""
    position = RunPosition()
    for event in (EVENTS[0], TaskBegan(2, 2, 6, 4, "eager")):
        position.follow(event)
    assert position.done == 6


@pytest.mark.parametrize(("quiet", "notes"), [(False, 1), (True, 0)])
def test_elsewhere_there_are_warnings_alone(quiet, notes, capsys):
    with ProgressDisplay("models/2", quiet=quiet) as display:
        display("fitting", 1, 2)
        for event in (*EVENTS, *SENTENCES):
            display.follow(event)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "models/2: warning: 3 held-out images are gone; left out"
    assert lines[:-1] == ["models/2: note: 15 epochs instead of 30"] * notes


def test_each_run_has_a_row_and_several_have_one_for_all(monkeypatch):
    drawn = terminal_text(monkeypatch)
    with ProgressDisplay(runs=2) as display:
        for event in EVENTS[:4]:
            display.watch("er", event)
        display.watch("bct", SENTENCES[1])
        display.watch("bct", RunEnded())
        display.decoding("birds", 64, 1000)
    shown = drawn()
    assert "er: task 1/2, epoch 1" in shown
    assert "ce 1.500 nce 0.250" in shown
    assert "1 of 2 done" in shown
    assert "64 of 1,000 images" in shown
    assert shown.count("bct: warning: 3 held-out images are gone; left out") == 1


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        ({"stage": "fitting [1]", "done": 0, "total": 2}, "register: fitting [1]"),
        ({"copied": 2000, "rate": 10.0}, "2,000 vectors copied, 10 a second"),
        ({"moved": 5, "total": 10, "share": 0.5, "rate": 1.0, "seconds_left": 5}, "5 of 10, 50.00 % backfilled, 1.0"),
    ],
)
def test_an_error_begins_on_a_line_of_its_own(figures, text, monkeypatch):
    drawn = terminal_text(monkeypatch)

    def register() -> None:
        with ProgressDisplay("register") as display:
            display.show(figures)
            raise ValueError("no bridge connects the models")

    with pytest.raises(ValueError, match="no bridge connects the models"):
        register()
    assert text in drawn()
    assert drawn().endswith("\n")

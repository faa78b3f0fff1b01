"""What one sees while a run goes on."""

import io

import pytest

from holdfast.cli import progress
from holdfast.cli.progress import Bar, Lines, Position, ProgressLine, StageProgress, run_display
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


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by a second at every look."""
    seconds = iter(range(10_000))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(seconds)))


def test_steps_of_the_whole_run_are_counted():
    position = Position()
    done = []
    for event in EVENTS:
        position.follow(event)
        done.append(position.done)
    assert done == [0, 0, 1, 4, 4, 4, 4, 7, 10, 10]
    assert (position.tasks, position.steps) == (2, 10)


def test_a_resumed_run_is_shown_where_it_is(clock):
    """Task 1 was found finished, task 2 goes on at its third step: six of ten steps are done, and none by us."""
    position = Position()
    position.follow(EVENTS[0])
    position.follow(TaskBegan(2, 2, 6, 4, "eager"))
    assert position.done == 6
    assert position.seconds_left() is None
    position.follow(StepsDone(2, 4))
    assert position.seconds_left() == 1.0  # two steps took the one second there was, two are left


def test_plain_lines(clock, capsys):
    lines = Lines("er")
    for event in EVENTS:
        lines(event)
    printed = capsys.readouterr()
    assert printed.out == ""
    shown = printed.err.splitlines()
    assert shown[0] == "er: task 1/2, step 0/10"
    assert shown[1].startswith("er: task 1/2, epoch 1, step 4/10, ce 1.500 nce 0.250, 0:")
    assert shown[1].endswith(" left")
    assert shown[-1].startswith("er: done, step 10/10")
    assert len(shown) == 5  # two tasks begun, one ended, the matrix, the end


@pytest.mark.parametrize(("events", "erased"), [([], True), (EVENTS[:4], False)])
def test_a_bar_goes_if_nothing_was_trained(events, erased, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    monkeypatch.setenv("TERM", "xterm")
    bar = Bar("er").__enter__()
    for event in events:
        bar(event)
    bar.__exit__(ValueError, ValueError("no such folder"), None)
    assert capsys.readouterr().err.endswith("\x1b[2K") is erased


def test_quiet(capsys):
    with run_display("models/2", quiet=True) as watch:
        for event in (*EVENTS, Note("15 epochs instead of 30"), RunWarning("3 held-out images are gone; left out")):
            watch(event)
    assert capsys.readouterr() == ("", "models/2: warning: 3 held-out images are gone; left out\n")
    assert isinstance(run_display("er"), Lines)  # stderr is no terminal here


class OneLine(io.StringIO):
    """Ends the display's thread after a line."""

    def __init__(self, display):
        super().__init__()
        self._display = display

    def flush(self):
        self._display.__exit__(None, None, None)
        self._display._ended.set()


def test_the_time_left_in_a_stage(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    display = StageProgress("check", quiet=False)
    for done in (10, 20, 30):
        now[0] += 11
        display("gallery.npz", done, 100)
    stream = OneLine(display)
    display._print_lines(stream)
    assert stream.getvalue() == "check: gallery.npz, 30 %, 1:17 left\n"
    display("queries.npz", 50, 100)
    assert display._left() == ""  # the first block of another stage only starts its clock


def test_the_error_of_a_task_begins_on_a_line_of_its_own(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)

    def register() -> None:
        with ProgressLine("register", quiet=False) as line:
            line.show({"stage": "fitting", "done": 0, "total": 2})
            raise ValueError("no bridge connects the models")

    with pytest.raises(ValueError, match="no bridge connects the models"):
        register()
    assert terminal.getvalue() == "\rregister: fitting: 0 of 2\x1b[K\r\x1b[K"

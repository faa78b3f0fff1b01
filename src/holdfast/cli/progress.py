"""What one sees while a run goes on: a bar in a terminal, plain lines elsewhere; always on stderr.

Ctrl-C while a model trains: the step under way is finished, so that training can be kept where it is.

What one sees while pictures are decoded: plain lines on stderr, which bars let pass above them.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from types import FrameType, TracebackType
from typing import Any, Self

from holdfast.wording import counted

LINE_SECONDS = 10.0


def watcher(name: str, *, quiet: bool = False) -> "Silent | Bar | Lines":
    """The display that suits stderr."""
    if quiet:
        return Silent()
    return Bar(name) if sys.stderr.isatty() else Lines(name)


class Position:
    """Follows the events of a run: how many steps of all are done, and what the last losses were."""

    def __init__(self) -> None:
        self.tasks = self.steps = self.done = self.task = 0
        self._before = [0]
        self._started: tuple[float, int] | None = None
        self.losses = ""
        self.stage = "reading data"

    def follow(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "plan":
            self._before = [0, *accumulate(event["steps"])]
            self.tasks, self.steps = len(event["steps"]), self._before[-1]
        elif kind == "begin":
            self.task = event["task"]
            self.stage = f"task {self.task}/{self.tasks}"
        elif kind == "features":
            self.stage = f"task {event['task']}/{self.tasks}, features"
        elif kind == "matrix":
            self.done, self.stage = self.steps, "compatibility matrix"
        elif kind == "done":
            self.stage = "done"
        if kind == "epoch":
            self.stage = f"task {self.task}/{self.tasks}, epoch {event['epoch']}"
            self.losses = " ".join(f"{name} {value:.3f}" for name, value in event["terms"].items())
        if kind in ("begin", "epoch", "pulse"):
            self.done = self._before[self.task - 1] + event["step"]
            self._started = self._started or (time.monotonic(), self.done)

    @property
    def begun_at(self) -> int | None:
        """How many steps were done already when its training began here; None before."""
        return None if self._started is None else self._started[1]

    @property
    def done_here(self) -> int:
        return 0 if self._started is None else self.done - self._started[1]

    def seconds_left(self) -> float | None:
        if self._started is None or not self.done_here:
            return None
        return (time.monotonic() - self._started[0]) / self.done_here * (self.steps - self.done)


class Display:
    """Something that is shown while a block runs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass


class Silent(Display):
    def __call__(self, event: dict[str, Any]) -> None:
        pass


class Lines(Display):
    """A line when a task begins or ends, and in between at most one every ten seconds."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._position = Position()
        self._printed = time.monotonic()

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] in ("warning", "note"):
            sys.stderr.write(f"{self._name}: {event['event']}: {event['text']}\n")
            return
        self._position.follow(event)
        due = time.monotonic() - self._printed > LINE_SECONDS
        if event["event"] in ("begin", "task", "matrix", "done") or (event["event"] in ("epoch", "pulse") and due):
            self._printed = time.monotonic()
            left = self._position.seconds_left()
            parts = [self._position.stage, f"step {self._position.done}/{self._position.steps}", self._position.losses]
            if left:
                parts.append(f"{clock(left)} left")
            sys.stderr.write(f"{self._name}: {', '.join(part for part in parts if part)}\n")
            sys.stderr.flush()


class Bar(Display):
    """One line that is drawn over: name, stage, bar, losses, time left."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._position = Position()
        self._progress = Progress(
            TextColumn("{task.fields[title]}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[detail]}"),
            console=Console(stderr=True),
        )
        self._row = self._progress.add_task("", title=name, detail="", total=None)
        self._name = name

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] in ("warning", "note"):
            self._progress.console.print(f"{self._name}: {event['event']}: {event['text']}", markup=False)
            return
        position = self._position
        position.follow(event)
        left = position.seconds_left()
        detail = "  ".join(part for part in (position.losses, f"{clock(left)} left" if left else "") if part)
        if event["event"] == "done":
            detail = ""
        self._progress.update(
            self._row,
            total=position.steps or None,
            completed=position.done,
            title=f"{self._name}  {position.stage}",
            detail=detail,
        )


def clock(seconds: float) -> str:
    """m:ss, or h:mm:ss from an hour on."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


Watch = Callable[[dict[str, Any]], None]


@contextmanager
def between_steps(watch: Watch) -> Iterator[Watch]:
    """``watch``, out of which the KeyboardInterrupt comes: ``fit`` saves a checkpoint there and passes it on.

    Raised inside a step it would leave weights and optimizer half changed, and all since the last checkpoint be lost.
    A second Ctrl-C does not wait, nor does the first while nothing trains. Elsewhere than in the main thread, and where
    somebody else handles SIGINT, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread() or (
        signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield watch
        return
    training = asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked or not training:
            raise KeyboardInterrupt
        asked = True

    def watched(event: dict[str, Any]) -> None:
        nonlocal training, asked
        if event["event"] == "begin":
            training = True
        elif event["event"] not in ("epoch", "pulse", "note", "warning"):
            training = False
        watch(event)
        if asked:
            training = asked = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)
    try:
        yield watched
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


FIRST_SECONDS = 2.0
"""What takes no longer needs no word."""


class DecodingLines:
    """A line after ``FIRST_SECONDS``, then one in ten seconds with the time left, and one at the end."""

    def __init__(self) -> None:
        self._began = self._due = 0.0
        self._said = False

    def __call__(self, name: str, done: int, total: int) -> None:
        now = time.monotonic()
        if not done:
            self._began, self._due, self._said = now, now + FIRST_SECONDS, False
        elif done == total and self._said:
            self._say(f"decoded {name}: {counted(total, 'image')} in {clock(now - self._began)}")
        elif done < total and now >= self._due:
            left = (now - self._began) / done * (total - done)
            self._say(f"decoding {name}: {done:,} of {counted(total, 'image')}, {clock(left)} left")
            self._due, self._said = now + LINE_SECONDS, True

    def _say(self, line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def decoding_lines(*, quiet: bool) -> DecodingLines | None:
    return None if quiet else DecodingLines()

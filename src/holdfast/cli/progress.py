"""Progress of a run, of decoding and of counted items on stderr, as a bar in a terminal, else as lines; and Ctrl-C."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import accumulate
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

import typer

from holdfast.core.wording import counted, per_cent
from holdfast.train.events import (
    EpochEnded,
    EvaluationBegan,
    Event,
    FeaturesBegan,
    RunEnded,
    RunWarning,
    StepsDone,
    TaskBegan,
    TaskEnded,
    TasksPlanned,
    TextEvent,
)

if TYPE_CHECKING:
    from holdfast.train.engine import Cancellation

LINE_SECONDS = 4.0
"""Seconds between two lines of progress. Nobody should wait more than five seconds without a sign of life."""


def run_display(name: str, *, quiet: bool = False) -> "Warnings | Bar | Lines":
    """The display of a run: warnings alone if ``quiet``, a bar if stderr is a terminal, else lines."""
    if quiet:
        return Warnings(name)
    return Bar(name) if sys.stderr.isatty() else Lines(name)


class Position:
    """How far a run is, from its events: stage, steps done, last losses, time left."""

    def __init__(self) -> None:
        self.tasks = self.steps = self.done = self.task = 0
        self._before = [0]
        self._started: tuple[float, int] | None = None
        self.losses = ""
        self.stage = "reading data"

    def follow(self, event: Event) -> None:
        if isinstance(event, TasksPlanned):
            self._before = [0, *accumulate(event.steps)]
            self.tasks, self.steps = len(event.steps), self._before[-1]
        elif isinstance(event, TaskBegan):
            self.task = event.task
            self.stage = self._name_of(self.task)
        elif isinstance(event, EpochEnded):
            self.stage = f"{self._name_of(self.task)}, epoch {event.epoch}"
            self.losses = " ".join(f"{name} {value:.3f}" for name, value in event.terms.items())
        elif isinstance(event, FeaturesBegan):
            self.stage = f"{self._name_of(event.task)}, features"
        elif isinstance(event, EvaluationBegan):
            self.done, self.stage = self.steps, "compatibility matrix"
        elif isinstance(event, RunEnded):
            self.stage = "done"
        if isinstance(event, TaskBegan | EpochEnded | StepsDone):
            self.done = self._before[self.task - 1] + event.step
            self._started = self._started or (time.monotonic(), self.done)

    def _name_of(self, task: int) -> str:
        return "training" if self.tasks == 1 else f"task {task}/{self.tasks}"

    @property
    def steps_before(self) -> int | None:
        """Steps that were done before this session began to train; None if it has not begun."""
        return None if self._started is None else self._started[1]

    @property
    def steps_in_session(self) -> int:
        """Steps done since this session began to train."""
        return 0 if self._started is None else self.done - self._started[1]

    def seconds_left(self) -> float | None:
        if self._started is None or not self.steps_in_session:
            return None
        return (time.monotonic() - self._started[0]) / self.steps_in_session * (self.steps - self.done)


class Display:
    """The base of displays that are shown while a block runs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass


class Warnings(Display):
    """A line for each warning, and nothing else."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunWarning):
            sys.stderr.write(f"{self._name}: {event.kind}: {event.text}\n")


class Lines(Display):
    """A line when a task begins or ends, and in between at most one every ``LINE_SECONDS``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._position = Position()
        self._printed = time.monotonic()

    def __call__(self, event: Event) -> None:
        if isinstance(event, TextEvent):
            sys.stderr.write(f"{self._name}: {event.kind}: {event.text}\n")
            return
        self._position.follow(event)
        due = time.monotonic() - self._printed > LINE_SECONDS
        if isinstance(event, TaskBegan | TaskEnded | EvaluationBegan | RunEnded) or (
            isinstance(event, EpochEnded | StepsDone) and due
        ):
            self._printed = time.monotonic()
            left, steps = self._position.seconds_left(), self._position.steps
            step = f"step {self._position.done}/{steps}" if steps else ""  # none is planned for what is finished
            parts = [self._position.stage, step, self._position.losses]
            if left:
                parts.append(f"{clock(left)} left")
            sys.stderr.write(f"{self._name}: {', '.join(part for part in parts if part)}\n")
            sys.stderr.flush()


class Bar(Display):
    """One line that is redrawn: name, stage, bar, losses, time left."""

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
        if error is not None and not self._position.tasks:  # refused before training: an empty bar says nothing
            self._progress.live.transient = True
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        if isinstance(event, TextEvent):
            self._progress.console.print(f"{self._name}: {event.kind}: {event.text}", markup=False)
            return
        position = self._position
        position.follow(event)
        left = position.seconds_left()
        detail = "  ".join(part for part in (position.losses, f"{clock(left)} left" if left else "") if part)
        if isinstance(event, RunEnded):
            detail = ""
        self._progress.update(
            self._row,
            total=position.steps or None,
            completed=position.done,
            title=f"{self._name}  {position.stage}",
            detail=detail,
        )


def clock(seconds: float) -> str:
    """A duration as m:ss, or h:mm:ss from one hour."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


@contextmanager
def exit_on_interrupt(
    resume: str | Callable[[], str] = "finished work is kept; run the same command again to resume",
    *,
    alone: bool = True,
) -> Iterator[None]:
    """Exit with status 130 and one line on stderr after Ctrl-C or SIGTERM; typer alone would print "Aborted".

    resume: what is kept and how to resume, for the message; or a function that returns it.
    alone: False for one of several ranks, which wait for each other. SIGTERM then ends the process at once, as usual.
    """
    with _handling(signal.SIGTERM, _interrupt) if alone else nullcontext():
        try:
            yield
        except KeyboardInterrupt:
            typer.echo(f"holdfast: interrupted; {resume if isinstance(resume, str) else resume()}", err=True)
            raise typer.Exit(130) from None


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def cancel_on_interrupt() -> Iterator["Cancellation"]:
    """A token that Ctrl-C and SIGTERM set while training runs, so that ``fit`` saves a checkpoint between two steps.

    A second signal raises KeyboardInterrupt at once, and so does the first one while nothing trains. In a thread other
    than the main one, and if the program has a handler of its own, signals are not changed.
    """
    from holdfast.train.engine import Cancellation

    cancel = Cancellation()

    def handle(number: int, frame: FrameType | None) -> None:
        if cancel.requested or not cancel.watched:
            raise KeyboardInterrupt
        cancel.cancel()

    with _handling(signal.SIGINT, handle), _handling(signal.SIGTERM, handle):
        yield cancel


_OWN_HANDLERS = (signal.default_int_handler, signal.SIG_DFL, _interrupt)
"""Python's handlers, and the one of this module. A program that replaced them keeps its own."""


@contextmanager
def _handling(number: signal.Signals, handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call ``handler`` at a signal, in the main thread of a program without a handler of its own."""
    before = signal.getsignal(number)
    if threading.current_thread() is not threading.main_thread() or before not in _OWN_HANDLERS:
        yield
        return
    signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


FIRST_SECONDS = 2.0
"""Decoding that takes no longer is not reported."""


class DecodingLines:
    """Progress of decoding: a line after ``FIRST_SECONDS``, then one every ``LINE_SECONDS``, and one at the end."""

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
    """The progress of decoding on stderr, or None if ``quiet``."""
    return None if quiet else DecodingLines()


class CountProgress(Display):
    """Items done, items a second and time left on stderr: a bar in a terminal, else lines.

    Called with the number of items done and the number of all. The clock starts at the first call, so that the time
    to load a model is not counted.

    name: of the verb.
    quiet: show nothing.
    """

    def __init__(self, name: str, *, quiet: bool) -> None:
        self._name, self._quiet = name, quiet
        self._first: tuple[float, int] | None = None
        self._due = time.monotonic() + FIRST_SECONDS
        self._bar: Any = None

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[detail]}")
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._row = self._bar.add_task(self._name, total=None, detail="")
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        if self._quiet:
            return
        now = time.monotonic()
        self._first = self._first or (now, done)
        fresh, seconds = done - self._first[1], now - self._first[0]
        detail = f"{done:,} of {total:,}"
        if fresh and seconds > 0:
            detail += f", {fresh / seconds:,.0f} a second, {clock(seconds / fresh * (total - done))} left"
        if self._bar is not None:
            self._bar.update(self._row, completed=done, total=total, detail=detail)
        elif now >= self._due:
            self._due = now + LINE_SECONDS
            sys.stderr.write(f"{self._name}: {detail}\n")
            sys.stderr.flush()


class StageProgress(Display):
    """The stage, the share done and the time left on stderr: a bar in a terminal, else a line every few seconds.

    Called with (stage, done, total). Lines come from a thread, also if a stage does not report for a while. The clock
    of a stage starts at its first call, so that the time of its first block is not counted.

    name: of the verb.
    quiet: show nothing.
    """

    def __init__(self, name: str, *, quiet: bool) -> None:
        self._name, self._quiet = name, quiet
        self._began = time.monotonic()
        self._stage, self._done, self._total = "starting", 0, 0
        self._stage_began, self._done_before = self._began, 0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._bar: Any = None

    def __enter__(self) -> Self:
        if self._quiet:
            return self
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._row = self._bar.add_task(self._stage, total=None, left="")
        else:
            self._thread = threading.Thread(target=self._print_lines, args=(sys.stderr,), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._thread is not None:
            self._ended.set()
            self._thread.join()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage != self._stage:
            self._stage_began, self._done_before = time.monotonic(), done
        self._stage, self._done, self._total = stage, done, total
        if self._bar is not None:
            known = {"completed": done, "total": total} if done else {"completed": 0, "total": None}
            shown = stage if len(stage) <= 40 else f"...{stage[-37:]}"
            self._bar.update(self._row, description=shown.replace("[", "\\["), left=self._left(), **known)

    def _left(self) -> str:
        """The time left in the stage; empty while it is unknown."""
        done = self._done - self._done_before
        if done <= 0:
            return ""
        return f"{clock((time.monotonic() - self._stage_began) / done * (self._total - self._done))} left"

    def _print_lines(self, stream: TextIO) -> None:
        while not self._ended.wait(LINE_SECONDS):
            share = f"{100 * self._done / self._total:.0f} %" if self._done and self._total else ""
            time_left = self._left() or f"{clock(time.monotonic() - self._began)} so far"
            parts = [self._stage, share, time_left]
            stream.write(f"{self._name}: {', '.join(part for part in parts if part)}\n")
            stream.flush()


class ProgressLine:
    """Progress of a gallery's task on stderr: a line that is overwritten in a terminal, else a line now and then.

    At the end of the context the line is removed from a terminal, so that an error begins on a line of its own.
    """

    def __init__(self, verb: str, *, quiet: bool) -> None:
        self._verb, self._quiet, self._terminal = verb, quiet, sys.stderr.isatty()
        self._printed = time.monotonic()

    def show(self, figures: dict[str, Any]) -> None:
        """Show the progress of a registration, a migration to another engine, a backfill or a rollback."""
        if "stage" in figures:
            self.write(f"{figures['stage']}: {figures['done']} of {figures['total']}")
        elif "copied" in figures:
            self.write(f"{counted(figures['copied'], 'vector')} copied, {figures['rate']:.0f} a second")
        else:
            left = "" if figures["seconds_left"] is None else f"{clock(figures['seconds_left'])} left"
            share = f"{per_cent(figures['share'])} % backfilled" if "share" in figures else ""
            parts = [f"{figures['moved']} of {figures['total']}", share, f"{figures['rate']:.1f} items/s", left]
            self.write(", ".join(part for part in parts if part))

    def write(self, text: str) -> None:
        now = time.monotonic()
        if self._quiet or (now - self._printed < LINE_SECONDS and not self._terminal):
            return
        self._printed = now
        line = f"{self._verb}: {text}"
        sys.stderr.write(f"\r{line}\x1b[K" if self._terminal else f"{line}\n")
        sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._quiet and self._terminal:
            sys.stderr.write("\r\x1b[K")

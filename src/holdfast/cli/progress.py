"""Progress on stderr, drawn in a terminal and nowhere else; warnings, which are lines everywhere; and Ctrl-C."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

import typer

from holdfast.cli import show
from holdfast.core.wording import counted, per_cent
from holdfast.train.events import (
    EpochEnded,
    EvaluationBegan,
    Event,
    FeaturesBegan,
    Note,
    RunEnded,
    StepsDone,
    TaskBegan,
    TasksPlanned,
    TextEvent,
)

if TYPE_CHECKING:
    from rich.progress import Progress

    from holdfast.train.engine import Cancellation


class ProgressDisplay:
    """Rows on stderr while a block runs: what is being done, how far it is, and the time left.

    They are drawn in a terminal only, and removed at the end. Warnings and notes stay, and are printed everywhere.

    name: of the verb or of what is made; it begins each row and line.
    quiet: draw nothing, and print warnings alone.
    runs: how many runs will be watched; several have a row for all of them.
    """

    def __init__(self, name: str = "", *, quiet: bool = False, runs: int = 1) -> None:
        self._name, self._quiet, self._planned = name, quiet, runs
        self._drawn: Progress | None = None
        self._rows: dict[str, Any] = {}
        self._runs: dict[str, RunPosition] = {}

    def __enter__(self) -> Self:
        if not (self._quiet or show.quiet) and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            text, detail = (
                TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[detail]")
            )
            self._drawn = Progress(
                text, BarColumn(), TimeRemainingColumn(), detail, console=Console(stderr=True), transient=True
            )
            self._drawn.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._drawn is not None:
            self._drawn.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show how far a stage is; a stage takes the place of the one before."""
        self.draw("", f"{self._name}: {stage}", done, total, f"{done:,} of {total:,}" if total else "")

    def count(self, done: int, total: int) -> None:
        """Show how many items are done."""
        self.draw("", self._name, done, total, f"{done:,} of {total:,}")

    def decoding(self, name: str, done: int, total: int) -> None:
        """Show how far the decoding of a set is (``report_decoding``)."""
        self.draw("decoding", f"decoding {name}", done, total, f"{done:,} of {counted(total, 'image')}")

    def write(self, text: str) -> None:
        """Show a text in place of the one before."""
        self.draw("", self._name, None, None, text)

    def show(self, figures: dict[str, Any]) -> None:
        """Show the progress of a registration, a move to another engine, a backfill or a rollback of a gallery."""
        if "stage" in figures:
            self(figures["stage"], figures["done"], figures["total"])
        elif "copied" in figures:
            self.write(f"{counted(figures['copied'], 'vector')} copied, {figures['rate']:.0f} a second")
        else:
            share = f"{per_cent(figures['share'])} % backfilled" if "share" in figures else ""
            parts = [f"{figures['moved']:,} of {figures['total']:,}", share, f"{figures['rate']:.1f} items/s"]
            detail = ", ".join(part for part in parts if part)
            self.draw("", self._name, figures["moved"], figures["total"], detail)

    def follow(self, event: Event) -> None:
        """Show an event of the one run that this display is of."""
        self.watch(self._name, event)

    def watch(self, run: str, event: Event) -> None:
        """Show an event of a run; each run has a row."""
        if isinstance(event, TextEvent):
            if not (self._quiet and isinstance(event, Note)):
                self.say(f"{run}: {event.kind}: {event.text}")
            return
        position = self._runs.setdefault(run, RunPosition())
        position.follow(event)
        if self._planned > 1:
            ended = sum(one.stage == "done" for one in self._runs.values())
            self.draw("all runs", "all runs", ended, self._planned, f"{ended:,} of {self._planned:,} done")
        self.draw(run, f"{run}: {position.stage}", position.done, position.steps, position.losses)

    def say(self, line: str) -> None:
        """Print a line that stays, above the rows."""
        if self._drawn is None:
            sys.stderr.write(line + "\n")
        else:
            self._drawn.console.print(line, markup=False, highlight=False)

    def draw(self, row: str, text: str, done: int | None, total: int | None, detail: str) -> None:
        """Draw one row; ``total`` is None or 0 while it is unknown."""
        if self._drawn is None:
            return
        if row not in self._rows:
            self._rows[row] = self._drawn.add_task(text, total=None, detail="")
        self._drawn.update(self._rows[row], description=text, completed=done, total=total or None, detail=detail)


class RunPosition:
    """How far a run is, from its events: stage, steps done, last losses."""

    def __init__(self) -> None:
        self.tasks = self.steps = self.done = self.task = 0
        self._before = [0]
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

    def _name_of(self, task: int) -> str:
        return "training" if self.tasks == 1 else f"task {task}/{self.tasks}"


@contextmanager
def exit_on_interrupt(
    resume: str | Callable[[], str] = "finished work is kept; run the same command again to resume",
) -> Iterator[None]:
    """Exit with status 130 and one line on stderr after Ctrl-C or SIGTERM; typer alone would print "Aborted".

    resume: what is kept and how to resume, for the message; or a function that returns it.
    """
    with _handling(signal.SIGTERM, _interrupt):
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

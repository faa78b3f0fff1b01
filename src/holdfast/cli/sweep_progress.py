"""Progress of many runs on stderr: a bar per run in a terminal, lines elsewhere, and the time left for all of them."""

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from holdfast.cli.progress import Display, Position, clock
from holdfast.train.events import Event, RunEnded, RunFailed, RunWarning, TaskBegan, TextEvent

OVERALL_SECONDS = 60.0
"""Seconds between two lines about all runs, while none of them ends."""


def sweep_display(names: Sequence[str], *, quiet: bool = False) -> "Warnings | Lines | Bars":
    """The display of many runs: warnings alone if ``quiet``, bars if stderr is a terminal, else lines."""
    if quiet:
        return Warnings()
    return Bars(names) if sys.stderr.isatty() else Lines(names)


class Warnings(Display):
    """A line for each warning of a run, and nothing else."""

    def expect(self, remaining: Callable[[], Mapping[str, int]]) -> None:
        pass

    def __call__(self, name: str, event: Event) -> None:
        if isinstance(event, RunWarning):
            sys.stderr.write(f"{name}: {event.kind}: {event.text}\n")


class _ShownFailures:
    """The failures that have been shown. Each reason is shown for one run only; ``failure_lines`` counts the rest."""

    def __init__(self) -> None:
        self._reasons: set[str] = set()

    def contains(self, name: str, event: Event) -> bool:
        """Whether the failure was shown before; it is recorded as shown."""
        if not isinstance(event, RunFailed):
            return False
        reason = _without_run_name(name, event.text)
        shown = reason in self._reasons
        self._reasons.add(reason)
        return shown


class Lines(Display):
    """A line when a run begins a task, ends or fails, with its time left.

    If there are several runs, also a line about all of them when one ends, and every ``OVERALL_SECONDS``.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._positions = {name: Position() for name in names}
        self._overall = OverallProgress(self._positions)
        self._printed_overall = time.monotonic()
        self._lock = threading.Lock()
        self._shown = _ShownFailures()

    def expect(self, remaining: Callable[[], Mapping[str, int]]) -> None:
        """Set the remaining steps by run. The function is called only if they are shown."""
        if len(self._positions) > 1:
            self._overall.remaining = remaining()

    def __call__(self, name: str, event: Event) -> None:
        with self._lock:
            self._print_run(name, event)
            self._overall.follow(name, event)
            if len(self._positions) > 1:
                self._print_overall(ended=isinstance(event, RunEnded | RunFailed))

    def _print_run(self, name: str, event: Event) -> None:
        position = self._positions[name]
        if isinstance(event, TextEvent):
            if not self._shown.contains(name, event):
                self._print(f"{name}: {event.kind}: {event.text}")
            return
        position.follow(event)
        if isinstance(event, TaskBegan | RunEnded):
            left = position.seconds_left()
            losses = f", {position.losses}" if position.losses else ""
            self._print(f"{name}: {position.stage}{losses}{f', {clock(left)} left' if left else ''}")

    def _print_overall(self, *, ended: bool) -> None:
        due = ended or time.monotonic() - self._printed_overall > OVERALL_SECONDS
        if due and self._overall.seconds_left():
            self._printed_overall = time.monotonic()
            self._print(f"all runs: {self._overall.text()}")

    def _print(self, line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class Bars(Display):
    """One bar for each run, in the order of the plan; if there are several, a bar for all of them above.

    It is above because the last bars are cut off if there are more runs than lines in the terminal.
    """

    def __init__(self, names: Sequence[str]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[detail]}"),
            console=Console(stderr=True),
        )
        self._positions = {name: Position() for name in names}
        self._overall = OverallProgress(self._positions)
        self._all = (
            self._progress.add_task("all runs", detail=self._overall.text(), total=None) if len(names) > 1 else None
        )
        self._rows = {name: self._progress.add_task(name, detail="waiting", total=None) for name in names}
        self._lock = threading.Lock()
        self._shown = _ShownFailures()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def expect(self, remaining: Callable[[], Mapping[str, int]]) -> None:
        """Set the remaining steps by run. The function is called only if they are shown."""
        if self._all is not None:
            self._overall.remaining = remaining()

    def __call__(self, name: str, event: Event) -> None:
        with self._lock:
            self._update_run(name, event)
            self._overall.follow(name, event)
            if self._all is not None:
                done, left = self._overall.done, self._overall.left
                total = done + left or None
                self._progress.update(self._all, total=total, completed=done, detail=self._overall.text())

    def _update_run(self, name: str, event: Event) -> None:
        position, row = self._positions[name], self._rows[name]
        if isinstance(event, TextEvent):
            if not self._shown.contains(name, event):
                self._progress.console.print(f"{name}: {event.kind}: {event.text}", markup=False)
            self._progress.update(row, detail=event.kind)
            return
        position.follow(event)
        left = position.seconds_left()
        detail = f"{position.stage}{f'  {clock(left)} left' if left and not isinstance(event, RunEnded) else ''}"
        self._progress.update(row, total=position.steps or None, completed=position.done, detail=detail)


class OverallProgress:
    """Steps done in this session and steps left, over all runs, including those that wait.

    remaining: steps of each run before it begins, as far as they are known. An unknown run counts as the mean of the
    known ones until its own plan arrives.
    """

    def __init__(self, positions: Mapping[str, Position]) -> None:
        self.remaining: Mapping[str, int] = {}
        self._positions = positions
        self._ended: dict[str, str] = {}
        self._started: float | None = None

    def follow(self, name: str, event: Event) -> None:
        """Update from an event; the run's own position must have been updated before."""
        if isinstance(event, RunEnded | RunFailed):
            self._ended[name] = event.kind
        elif isinstance(event, TaskBegan) and self._started is None:
            self._started = time.monotonic()

    @property
    def done(self) -> int:
        """Steps of all runs in this session."""
        return sum(position.steps_in_session for position in self._positions.values())

    @property
    def left(self) -> float:
        """Steps that are left, of all runs."""
        known = {name: steps for name in self._positions if (steps := self._session_steps(name)) is not None}
        usual = sum(known.values()) / len(known) if known else 0.0
        waiting = (name for name in self._positions if name not in self._ended)
        return sum(max(0, known.get(name, usual) - self._positions[name].steps_in_session) for name in waiting)

    def _session_steps(self, name: str) -> int | None:
        """Steps of a run in this session, done and left; None if unknown."""
        position = self._positions[name]
        if position.steps_before is not None:
            return position.steps - position.steps_before
        return self.remaining.get(name, position.steps or None)

    def seconds_left(self) -> float | None:
        """Estimated from the speed since the first run began; None before its first steps, and if nothing is left."""
        if self._started is None or not self.done:
            return None
        return (time.monotonic() - self._started) / self.done * self.left or None

    def text(self) -> str:
        ends = list(self._ended.values())
        failed = f", {ends.count('failed')} failed" if "failed" in ends else ""
        left = self.seconds_left()
        return f"{ends.count('done')} of {len(self._positions)} done{failed}{f', {clock(left)} left' if left else ''}"


def _without_run_name(name: str, reason: str) -> str:
    """The reason with the run's name (and folder) replaced, so that equal reasons can be grouped."""
    return reason.replace(name, "RUN")


def failure_lines(failed: Mapping[str, str]) -> list[str]:
    """One line per reason: the first run that failed for it, and how many others did."""
    groups: dict[str, list[str]] = {}
    for name, reason in failed.items():
        groups.setdefault(_without_run_name(name, reason), []).append(name)
    return [
        f"{first}{f' and {len(others)} more' if others else ''} failed: {failed[first]}"
        for first, *others in groups.values()
    ]

"""What one sees while many runs go on: a bar for each in a terminal, plain lines elsewhere; always on stderr.

How far many runs are together, and the time left for all of them.

Failures of many runs, each reason once: data that is not there fails every run in the same way.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from holdfast.cli.progress import Display, Position, clock

ALL_SECONDS = 60.0
"""How often plain lines say how long all runs will take, while none of them ends."""


def sweep_watcher(names: Sequence[str], *, quiet: bool = False) -> "Silent | Lines | Bars":
    """The display of many runs that suits stderr."""
    if quiet:
        return Silent()
    return Bars(names) if sys.stderr.isatty() else Lines(names)


class Silent(Display):
    """Nothing to see."""

    def expect(self, ahead: Callable[[], Mapping[str, int]]) -> None:
        pass

    def __call__(self, name: str, event: dict[str, Any]) -> None:
        pass


class _Told:
    """Which failures have been shown; the same one of another run is left to the count at the end."""

    def __init__(self) -> None:
        self._reasons: set[str] = set()

    def before(self, name: str, event: dict[str, Any]) -> bool:
        if event["event"] != "failed":
            return False
        reason = but_for_the_run(name, event["text"])
        known = reason in self._reasons
        self._reasons.add(reason)
        return known


class Lines(Display):
    """A line when a run begins a task, ends or fails, with the time left for it.

    With several runs also one for all of them, when one has ended and else once in ``ALL_SECONDS``.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._positions = {name: Position() for name in names}
        self._overall = Overall(self._positions)
        self._said_all = time.monotonic()
        self._lock = threading.Lock()
        self._told = _Told()

    def expect(self, ahead: Callable[[], Mapping[str, int]]) -> None:
        """What ``Overall`` is told of the steps ahead."""
        if len(self._positions) > 1:
            self._overall.ahead = ahead()

    def __call__(self, name: str, event: dict[str, Any]) -> None:
        with self._lock:
            self._say_one(name, event)
            self._overall.follow(name, event)
            if len(self._positions) > 1:
                self._say_all(ended=event["event"] in ("done", "failed"))

    def _say_one(self, name: str, event: dict[str, Any]) -> None:
        position = self._positions[name]
        if event["event"] in ("warning", "note", "failed"):
            if not self._told.before(name, event):
                self._say(f"{name}: {event['event']}: {event['text']}")
            return
        position.follow(event)
        if event["event"] in ("begin", "done"):
            left = position.seconds_left()
            losses = f", {position.losses}" if position.losses else ""
            self._say(f"{name}: {position.stage}{losses}{f', {clock(left)} left' if left else ''}")

    def _say_all(self, *, ended: bool) -> None:
        due = ended or time.monotonic() - self._said_all > ALL_SECONDS
        if due and self._overall.seconds_left():
            self._said_all = time.monotonic()
            self._say(f"all runs: {self._overall.text()}")

    def _say(self, line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class Bars(Display):
    """One bar for each run, in the order of the plan; of several runs, one for all above them.

    Above: where there are more runs than the terminal has lines, the last ones are not seen.
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
        self._overall = Overall(self._positions)
        self._all = (
            self._progress.add_task("all runs", detail=self._overall.text(), total=None) if len(names) > 1 else None
        )
        self._rows = {name: self._progress.add_task(name, detail="waiting", total=None) for name in names}
        self._lock = threading.Lock()
        self._told = _Told()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def expect(self, ahead: Callable[[], Mapping[str, int]]) -> None:
        """What ``Overall`` is told of the steps ahead."""
        if self._all is not None:
            self._overall.ahead = ahead()

    def __call__(self, name: str, event: dict[str, Any]) -> None:
        with self._lock:
            self._show_one(name, event)
            self._overall.follow(name, event)
            if self._all is not None:
                done, left = self._overall.done, self._overall.left
                total = done + left or None
                self._progress.update(self._all, total=total, completed=done, detail=self._overall.text())

    def _show_one(self, name: str, event: dict[str, Any]) -> None:
        position, row = self._positions[name], self._rows[name]
        if event["event"] in ("warning", "note", "failed"):
            if not self._told.before(name, event):
                self._progress.console.print(f"{name}: {event['event']}: {event['text']}", markup=False)
            self._progress.update(row, detail=event["event"])
            return
        position.follow(event)
        left = position.seconds_left()
        detail = f"{position.stage}{f'  {clock(left)} left' if left and event['event'] != 'done' else ''}"
        self._progress.update(row, total=position.steps or None, completed=position.done, detail=detail)


class Overall:
    """Counts the steps that are done in this sitting and those ahead, of runs that wait too.

    ahead: steps that a run has before it when it begins, as far as they are known; of others their own plan tells when
    they begin, and until then they are taken for as long as the mean of those that are known.
    """

    def __init__(self, positions: Mapping[str, Position]) -> None:
        self.ahead: Mapping[str, int] = {}
        self._positions = positions
        self._ended: dict[str, str] = {}
        self._started: float | None = None

    def follow(self, name: str, event: dict[str, Any]) -> None:
        """After the run's own position has followed the event."""
        if event["event"] in ("done", "failed"):
            self._ended[name] = event["event"]
        elif event["event"] == "begin" and self._started is None:
            self._started = time.monotonic()

    @property
    def done(self) -> int:
        """Steps of all runs since they were begun or went on."""
        return sum(position.done_here for position in self._positions.values())

    @property
    def left(self) -> float:
        known = {name: steps for name in self._positions if (steps := self._whole(name)) is not None}
        usual = sum(known.values()) / len(known) if known else 0.0
        waiting = (name for name in self._positions if name not in self._ended)
        return sum(max(0, known.get(name, usual) - self._positions[name].done_here) for name in waiting)

    def _whole(self, name: str) -> int | None:
        """Steps of a run in this sitting."""
        position = self._positions[name]
        if position.begun_at is not None:
            return position.steps - position.begun_at
        return self.ahead.get(name, position.steps or None)

    def seconds_left(self) -> float | None:
        """At the speed since the first run began; None before its first steps and where nothing is left."""
        if self._started is None or not self.done:
            return None
        return (time.monotonic() - self._started) / self.done * self.left or None

    def text(self) -> str:
        ends = list(self._ended.values())
        failed = f", {ends.count('failed')} failed" if "failed" in ends else ""
        left = self.seconds_left()
        return f"{ends.count('done')} of {len(self._positions)} done{failed}{f', {clock(left)} left' if left else ''}"


def but_for_the_run(name: str, reason: str) -> str:
    """A reason without the run's own name, which is also its folder's."""
    return reason.replace(name, "RUN")


def failure_lines(failed: Mapping[str, str]) -> list[str]:
    """A line for each reason, with the first run that failed for it and how many others did."""
    groups: dict[str, list[str]] = {}
    for name, reason in failed.items():
        groups.setdefault(but_for_the_run(name, reason), []).append(name)
    return [
        f"{first}{f' and {len(others)} more' if others else ''} failed: {failed[first]}"
        for first, *others in groups.values()
    ]

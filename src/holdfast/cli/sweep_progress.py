"""What one sees while many runs go on: a bar for each in a terminal, plain lines elsewhere; always on stderr."""

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from holdfast.cli.failures import but_for_the_run
from holdfast.cli.overall import Overall
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

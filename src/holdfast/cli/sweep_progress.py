"""What one sees while many runs go on: a bar for each in a terminal, plain lines elsewhere; always on stderr."""

import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from holdfast.cli.failures import but_for_the_run
from holdfast.cli.progress import Display, Position, clock


def sweep_watcher(names: Sequence[str], *, quiet: bool = False) -> "Silent | Lines | Bars":
    """The display of many runs that suits stderr."""
    if quiet:
        return Silent()
    return Bars(names) if sys.stderr.isatty() else Lines(names)


class Silent(Display):
    """Nothing to see."""

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
    """A line when a run begins a task, ends or fails, with the time left for it."""

    def __init__(self, names: Sequence[str]) -> None:
        self._positions = {name: Position() for name in names}
        self._lock = threading.Lock()
        self._told = _Told()

    def __call__(self, name: str, event: dict[str, Any]) -> None:
        with self._lock:
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

    def _say(self, line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class Bars(Display):
    """One bar for each run, in the order of the plan."""

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
        self._rows = {name: self._progress.add_task(name, detail="waiting", total=None) for name in names}
        self._lock = threading.Lock()
        self._told = _Told()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def __call__(self, name: str, event: dict[str, Any]) -> None:
        with self._lock:
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

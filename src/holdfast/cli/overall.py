"""How far many runs are together, and the time left for all of them."""

import time
from collections.abc import Mapping
from typing import Any

from holdfast.cli.progress import Position, clock


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

"""How far a check is, and how long it will take: a bar in a terminal, a line every ten seconds elsewhere; on stderr."""

import sys
import time
from types import TracebackType
from typing import Any, Self

from holdfast.cli.progress import LINE_SECONDS, clock


class CheckProgress:
    """Called with (stage, done, total); every stage starts its own clock. Says nothing if ``quiet``."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._stage = ""
        self._started = self._printed = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}")
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._row = self._bar.add_task("reading", total=None, left="")
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self._quiet:
            return
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._started, self._before = stage, now, done
        # The first block of a stage starts the clock: what it took is not known.
        fresh = done - self._before
        left = f"{clock((now - self._started) / fresh * (total - done))} left" if fresh > 0 else ""
        if self._bar is not None:
            shown = stage if len(stage) <= 40 else f"...{stage[-37:]}"
            self._bar.update(self._row, description=shown.replace("[", "\\["), completed=done, total=total, left=left)
        elif now - self._printed > LINE_SECONDS:
            self._printed = now
            sys.stderr.write(f"check: {stage}, {100 * done / total:.0f} %{', ' if left else ''}{left}\n")
            sys.stderr.flush()

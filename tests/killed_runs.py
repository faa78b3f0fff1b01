"""Work that dies at a chosen moment, in a child of this process, and the files that must not depend on it."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.core import storage
from holdfast.train.events import Event

DEAD = 9


def exit_code(work: Callable[[], object]) -> int:
    """Do the work in a child; its exit code: 0, ``DEAD``, 1 after an exception, negative after a signal."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_at_sync(count: int) -> None:
    """End this process without a word at its n-th call for the disk."""
    calls = iter(range(1, 10_000))
    sync = storage._sync

    def dying_sync(path: Path) -> None:
        if next(calls) == count:
            os._exit(DEAD)
        sync(path)

    storage._sync = dying_sync


def kill_at(moment: tuple[str, int, int | None] | None) -> Callable[[Event], None]:
    """A receiver of events that kills this process at the event of this kind, task and epoch."""

    def watch(event: Event) -> None:
        if (event.kind, getattr(event, "task", None), getattr(event, "epoch", None)) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    return watch


def lasting(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The scores of a run, and its models and features."""
    protocols = json.loads((folder / "metrics.json").read_text())["protocols"]
    files = [*folder.glob("models/*/*"), *folder.glob("features/**/*.npy")]
    return protocols, {str(file.relative_to(folder)): file.read_bytes() for file in files}

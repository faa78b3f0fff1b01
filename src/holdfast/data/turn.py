"""One process at a time: the others wait, and find what the first has made."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a POSIX system: there nobody waits
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def own_turn(place: Path) -> Iterator[None]:
    """Wait until no other process, or thread, has its turn at ``place``; a killed one's ends with it.

    Held by a lock file beside ``place`` that goes with the last holder. On a file system without locks nobody waits.
    """
    if fcntl is None:
        yield
        return
    lock = place.with_name(f".{place.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = lock.open("a")
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        if _still_there(lock, file.fileno()):
            break
        file.close()  # its holder removed it while we waited: whoever comes now waits at another file
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        file.close()


def _still_there(lock: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(lock), os.fstat(handle))
    except FileNotFoundError:
        return False

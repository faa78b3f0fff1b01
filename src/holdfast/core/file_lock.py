"""A lock file that keeps other processes and threads out. The system releases it if the process is killed."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from holdfast.core.errors import HoldfastError

PATIENCE = 2.0
"""Seconds before a lock counts as taken. A killed process that was starting another one at that moment leaves a copy of
itself that holds the lock until the other program runs."""


def acquire_lock(path: Path, *, busy: HoldfastError | None = None) -> BaseFileLock:
    """Lock the file at ``path`` and return the lock; its ``release()`` frees it. The folder must exist.

    busy: raised if the lock is still taken after ``PATIENCE``. None waits until it is free.
    The file stays after the release: removing it would let two waiting processes lock two different files.
    """
    lock = FileLock(path, thread_local=False)  # a gallery may be opened and closed in different threads
    try:
        lock.acquire(timeout=-1 if busy is None else PATIENCE)
    except Timeout:
        assert busy is not None
        raise busy from None
    return lock


@contextlib.contextmanager
def locked(path: Path, *, busy: HoldfastError | None = None) -> Iterator[None]:
    """Hold the lock at ``path`` inside the block; the arguments are those of ``acquire_lock``."""
    lock = acquire_lock(path, busy=busy)
    try:
        yield
    finally:
        lock.release()

"""Settings of the whole process that are changed while some thread needs it, and restored after the last one."""

import sys
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class ProcessSetting(Generic[Value]):
    """A context in which a setting has another value, for any number of threads at once.

    read, write: get and set the setting.
    changed: the value inside, from the one before. The first thread to enter sets it, the last to leave restores it.
    """

    def __init__(
        self, read: Callable[[], Value], write: Callable[[Value], object], changed: Callable[[Value], Value]
    ) -> None:
        self._read, self._write, self._changed = read, write, changed
        self._lock = threading.Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = self._read()
                self._write(self._changed(self._before))
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._write(self._before)


SHORT_TURNS = ProcessSetting(sys.getswitchinterval, sys.setswitchinterval, lambda before: min(before, 0.0005))
"""Threads take turns every 0.5 ms, not every 5 ms: for threads that often need the interpreter for microseconds."""

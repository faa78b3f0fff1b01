"""A time limit that is the same for all callers, with one timer for all of them."""

import asyncio
from types import TracebackType
from typing import Any


class Deadlines:
    """Ends blocks of code that take too long. Use it in one event loop.

    seconds: time limit of each block.

    ``asyncio.timeout`` sets and removes a timer for each block, which takes longer than the rest of a small request.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._running: dict[_Deadline, float] = {}  # until when; in order of start, and so of end
        self._timer: asyncio.TimerHandle | None = None

    def limit(self) -> "_Deadline":
        """A context that raises ``TimeoutError`` in the task that entered it if it takes longer than ``seconds``."""
        return _Deadline(self)

    def start(self, deadline: "_Deadline", loop: asyncio.AbstractEventLoop) -> None:
        self._running[deadline] = loop.time() + self.seconds
        if self._timer is None:
            self._timer = loop.call_later(self.seconds, self._end_late_ones, loop)

    def end(self, deadline: "_Deadline") -> None:
        self._running.pop(deadline, None)

    def _end_late_ones(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        while self._running:
            deadline, until = next(iter(self._running.items()))
            if until > loop.time():
                self._timer = loop.call_at(until, self._end_late_ones, loop)
                return
            del self._running[deadline]
            deadline.expire()


class _Deadline:
    """One block. It cancels its task, as ``asyncio.timeout`` does, and turns the cancellation into an error."""

    __slots__ = ("_all", "_cancelling", "_expired", "_task")

    def __init__(self, all: Deadlines) -> None:
        self._all, self._expired = all, False

    def expire(self) -> None:
        self._expired = True
        self._task.cancel()

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "only in a task"
        self._task: asyncio.Task[Any] = task
        self._cancelling = task.cancelling()
        self._all.start(self, task.get_loop())

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._all.end(self)
        if self._expired:
            others = self._task.uncancel() > self._cancelling  # somebody else has cancelled the task, too
            if not others and kind is asyncio.CancelledError:
                raise TimeoutError from error

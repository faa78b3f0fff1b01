"""How training is stopped from outside without losing steps, and how a run reports its progress."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from holdfast.train.events import OnEvent, ignore_event


class Cancelled(KeyboardInterrupt):
    """Training was stopped by a ``Cancellation``.

    A subclass of ``KeyboardInterrupt``, so that code which handles Ctrl-C handles it too, and ``except Exception``
    does not.
    """


class Cancellation:
    """A token that stops the training it is passed to (``fit(..., cancel=token)``).

    ``fit`` looks at the token between two steps. Once ``cancel`` was called it saves a checkpoint, if it has a file for
    it, and raises ``Cancelled``. One token may be shared by several runs in threads.

    Example::

        token = Cancellation()
        threading.Timer(60, token.cancel).start()
        fit(encoder, method, task, images, checkpoint=CheckpointFile(path), cancel=token)
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._watching = 0

    def cancel(self) -> None:
        """Request the stop. May be called from any thread, more than once."""
        self._event.set()

    @property
    def requested(self) -> bool:
        """Whether ``cancel`` was called."""
        return self._event.is_set()

    def raise_if_requested(self) -> None:
        """Raise ``Cancelled`` if ``cancel`` was called."""
        if self.requested:
            raise Cancelled

    @property
    def watched(self) -> bool:
        """Whether training is running that will stop soon after ``cancel``. A signal handler waits for it only then."""
        return self._watching > 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Mark a block that looks at the token between its steps and again after the block."""
        with self._lock:
            self._watching += 1
        try:
            yield
        finally:
            with self._lock:
                self._watching -= 1


@dataclass(frozen=True)
class RunControl:
    """How a run reports progress and is stopped.

    on_event: called with each progress event (holdfast.train.events).
    cancel: stops the run between two steps.
    """

    on_event: OnEvent = ignore_event
    cancel: Cancellation = field(default_factory=Cancellation)

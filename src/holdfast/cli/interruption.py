"""Ctrl-C while a model trains: the step under way is finished, so that training can be kept where it is."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Watch = Callable[[dict[str, Any]], None]


@contextmanager
def between_steps(watch: Watch) -> Iterator[Watch]:
    """``watch``, out of which the KeyboardInterrupt comes: ``fit`` saves a checkpoint there and passes it on.

    Raised inside a step it would leave weights and optimizer half changed, and all since the last checkpoint be lost.
    A second Ctrl-C does not wait, nor does the first while nothing trains. Elsewhere than in the main thread, and where
    somebody else handles SIGINT, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread() or (
        signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield watch
        return
    training = asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked or not training:
            raise KeyboardInterrupt
        asked = True

    def watched(event: dict[str, Any]) -> None:
        nonlocal training, asked
        if event["event"] == "begin":
            training = True
        elif event["event"] not in ("epoch", "pulse", "note", "warning"):
            training = False
        watch(event)
        if asked:
            training = asked = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)
    try:
        yield watched
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)

"""Work of a step that nothing needs yet, carried out beside what follows it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Aside:
    """A second stream for the old model's features, which a step needs only after the new model's.

    A step of a small network is a chain of short kernels that leaves most of a GPU idle. Captured in a graph, what is
    done ``beside`` becomes a branch of it, and ``join`` is where the branch ends.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream

    @contextmanager
    def beside(self) -> Iterator[None]:
        """What is done inside comes after all that was done before, but not before what follows."""
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """What follows comes after what was done beside; memory freed from here on is free for both."""
        torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)


class _Streams(threading.local):
    def __init__(self) -> None:
        self.known: dict[torch.device, torch.cuda.Stream] = {}


_streams = _Streams()


def aside_on(device: torch.device) -> Aside:
    """This thread's own: a matrix product's workspace belongs to a stream, and neighbours must not share one.

    Streams come round again after 32 of one priority, and those that steps are captured on have the usual one.
    """
    if device not in _streams.known:
        _streams.known[device] = torch.cuda.Stream(device, priority=-1)
    return Aside(_streams.known[device])

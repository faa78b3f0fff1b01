"""Work of a step that nothing needs yet, carried out beside what follows it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

from holdfast.side_streams import SideStream


class Aside:
    """A second stream for the old model's features, which a step needs only after the new model's.

    A step of a small network is a chain of short kernels that leaves most of a GPU idle. Captured in a graph, what is
    done ``beside`` becomes a branch of it, which ends where what is ``joined`` does.
    """

    def __init__(self, held: SideStream) -> None:
        self._held = held  # as long as this is used, though the thread that made it has ended
        self._stream = held.stream

    @contextmanager
    def beside(self) -> Iterator[None]:
        """What is done inside comes after all that was done before, but not before what follows."""
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            yield

    @contextmanager
    def joined(self) -> Iterator[None]:
        """What follows comes after what was done beside; memory freed from there on is free for both.

        Also where something inside fails: a graph cannot be ended with a branch left open, and memory given back on the
        way out must not be filled again while it is still being read beside.
        """
        try:
            yield
        except BaseException:
            with suppress(RuntimeError):  # in a graph that is spoilt already this fails too, but does not know why
                self._join()
            raise
        self._join()

    def _join(self) -> None:
        torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)


class _Streams(threading.local):
    def __init__(self) -> None:
        self.known: dict[torch.device, SideStream] = {}


_streams = _Streams()


def aside_on(device: torch.device) -> Aside:
    """This thread's own: a matrix product's workspace belongs to a stream, and neighbours must not share one.

    Memory that was freed beside is used again beside, after what the stream that is current then has done: steps of one
    thread that run on different streams must have been waited for before the next ones begin.
    """
    if device not in _streams.known:
        _streams.known[device] = SideStream(device)
    return Aside(_streams.known[device])

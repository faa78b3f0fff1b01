"""CUDA streams beside those that training runs on, no two holders of which have the same."""

import gc
import threading
import weakref

import torch

from holdfast.errors import HoldfastError

PRIORITIES = (-1, -2, -3)
"""Not 0, which the streams have that steps are captured on. A GPU that knows fewer gives the nearest it has."""

PER_PRIORITY = 32
"""Streams of one priority, which torch hands out in turn, over and over, to whoever asks in a process."""

_held: set[tuple[torch.device, int]] = set()
_one_asks = threading.RLock()
"""One that its thread can take again: a holder may be collected, and give back, while another is being made."""


class SideStream:
    """Holds a stream that nobody else who asked here has; it is free again when this object is gone.

    Two holders of one would do worse than wait for each other: what one does while the other's stream is captured
    becomes a part of that graph, or ruins it. Kept is who holds a stream and not the stream: torch's streams do not
    tell weak references to them that they are gone, which ends in a crash at the next look.
    """

    def __init__(self, device: torch.device) -> None:
        found = _take_free_stream(device)
        if found is None:
            gc.collect()  # a holder that nobody knows any more may be a part of a cycle
            found = _take_free_stream(device)
        if found is None:
            raise HoldfastError(f"{device} has no stream left for another training; run fewer at a time")
        self.stream, key = found
        weakref.finalize(self, _give_back, key).atexit = False


def _take_free_stream(device: torch.device) -> tuple[torch.cuda.Stream, tuple[torch.device, int]] | None:
    with _one_asks:
        for priority in PRIORITIES:
            for _ in range(PER_PRIORITY):
                stream = torch.cuda.Stream(device, priority=priority)
                key = (stream.device, stream.cuda_stream)  # its device: the one asked for may have no number
                if key not in _held:
                    _held.add(key)
                    return stream, key
    return None


def _give_back(key: tuple[torch.device, int]) -> None:
    with _one_asks:
        _held.discard(key)

"""CUDA streams beside those that training runs on, no two holders of which have the same."""

import threading
from weakref import WeakValueDictionary

import torch

from holdfast.errors import HoldfastError

PRIORITIES = (-1, -2, -3)
"""Not 0, which the streams have that steps are captured on. A GPU that knows fewer gives the nearest it has."""

PER_PRIORITY = 32
"""Streams of one priority, which torch hands out in turn, over and over, to whoever asks."""

_held: "WeakValueDictionary[tuple[torch.device, int], torch.cuda.Stream]" = WeakValueDictionary()
_one_asks = threading.Lock()


def side_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream that nobody else who asked here has; it is free again when the object returned is gone.

    Two holders of one would do worse than wait for each other: what one does while the other's stream is captured
    becomes a part of that graph, or ruins it.
    """
    with _one_asks:
        for priority in PRIORITIES:
            for _ in range(PER_PRIORITY):
                stream = torch.cuda.Stream(device, priority=priority)
                key = (stream.device, stream.cuda_stream)  # its device: the one asked for may have no number
                if key not in _held:
                    _held[key] = stream
                    return stream
    raise HoldfastError(f"{device} has no stream left for another training; run fewer at a time")

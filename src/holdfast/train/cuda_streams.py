"""CUDA streams for work beside training. No two holders share a stream."""

import gc
import threading
import weakref

import torch

from holdfast.core.errors import HoldfastError

PRIORITIES = (-1, -2, -3)
"""Not 0: steps are captured on streams of priority 0. A GPU with fewer priorities uses the nearest."""

PER_PRIORITY = 32
"""Streams of one priority in a process. torch hands them out in turn and starts again after the last."""

_held: set[tuple[torch.device, int]] = set()
_lock = threading.RLock()
"""Reentrant: garbage collection may release a stream while the same thread takes another."""


class SideStream:
    """Holds a stream that no other ``SideStream`` holds. The stream is free again when this object is collected.

    Two holders of one stream would break CUDA graphs: work of one, done while the other captures, would become part of
    the graph or make the capture fail. The table stores the stream's handle, not the stream: a weak reference to a
    torch stream is not cleared when the stream is destroyed.
    """

    def __init__(self, device: torch.device) -> None:
        found = _take_free_stream(device)
        if found is None:
            gc.collect()  # an unused holder may be part of a reference cycle
            found = _take_free_stream(device)
        if found is None:
            raise HoldfastError(f"{device} has no free stream for another training; run fewer at a time")
        self.stream, key = found
        weakref.finalize(self, _release, key).atexit = False


def _take_free_stream(device: torch.device) -> tuple[torch.cuda.Stream, tuple[torch.device, int]] | None:
    with _lock:
        for priority in PRIORITIES:
            for _ in range(PER_PRIORITY):
                stream = torch.cuda.Stream(device, priority=priority)
                key = (stream.device, stream.cuda_stream)  # the stream's device: ``device`` may have no index
                if key not in _held:
                    _held.add(key)
                    return stream, key
    return None


def _release(key: tuple[torch.device, int]) -> None:
    with _lock:
        _held.discard(key)

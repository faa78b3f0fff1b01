"""CUDA graphs that are captured and replayed beside those of other threads."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import torch

ONE_AT_A_TIME = threading.Lock()
"""Held while kernels are compiled or a graph is captured, which must not meet another thread's synchronisation."""


class _Ground(threading.local):
    """What the graphs of one thread share, task after task: a stream, and the memory of the one before.

    Memory that only the new graph could use would be asked of the driver for every task, and to give back the old
    one's the driver waits until the whole device, all neighbours included, is idle.
    """

    def __init__(self) -> None:
        self.streams: dict[torch.device, torch.cuda.Stream] = {}
        self.last: dict[torch.cuda.Stream, torch.cuda.CUDAGraph] = {}

    def stream(self, device: torch.device) -> torch.cuda.Stream:
        """The current one; in place of the default stream, which cannot be captured, one of this thread's own."""
        current = torch.cuda.current_stream(device)
        if current != torch.cuda.default_stream(device):
            return current
        if device not in self.streams:
            self.streams[device] = torch.cuda.Stream(device)
        return self.streams[device]


_ground = _Ground()


def stream_to_capture(device: torch.device) -> torch.cuda.Stream:
    """The stream that this thread's graphs are captured and replayed on."""
    return _ground.stream(device)


@contextmanager
def on_stream_to_capture(device: torch.device) -> Iterator[None]:
    """What is done inside comes after all before, and before all that follows; nothing changes on a CPU."""
    if device.type != "cuda":
        yield
        return
    outer, stream = torch.cuda.current_stream(device), stream_to_capture(device)
    stream.wait_stream(outer)
    with torch.cuda.stream(stream):
        yield
    outer.wait_stream(stream)


def capture(
    work: Callable[[], None], device: torch.device, generator: torch.Generator | None = None
) -> torch.cuda.CUDAGraph:
    """A graph of ``work``, which draws from ``generator`` if from any; ``stream_to_capture`` must be current.

    Not by ``torch.cuda.graph``, which first waits for the whole device and empties everybody's cache. Graphs of one
    thread share memory, so they may be replayed in turns but not side by side.
    """
    stream = torch.cuda.current_stream(device)
    graph = torch.cuda.CUDAGraph()
    if generator is not None:
        graph.register_generator_state(generator)
    before = _ground.last.get(stream)
    with ONE_AT_A_TIME:
        graph.capture_begin(None if before is None else before.pool(), capture_error_mode="thread_local")
        try:
            work()
        except BaseException:
            with suppress(RuntimeError):  # a graph spoilt on the way fails here too, but does not know why
                graph.capture_end()
            raise
        graph.capture_end()
    _ground.last[stream] = graph
    return graph

"""Ways to carry out the same training step: eagerly, compiled, as one CUDA graph, or as a graph of fused kernels.

CUDA graphs that are captured and replayed beside those of other threads.
"""

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import torch
from torch import nn

from holdfast.encoders import Encoder
from holdfast.errors import HoldfastError
from holdfast.training.kernels import fused_network, why_no_kernels
from holdfast.training.options import Executor
from holdfast.training.step import TrainingStep, aside_on

NEED_GPU = ("graph", "fused")
USE_AUTO = "use auto (--set train.executor=auto)"

WARM_UP = 3
"""Steps carried out eagerly before a graph is captured: libraries choose algorithms and allocate on the first ones.

One is enough where the process has captured such a step before: it makes the optimiser's buffers, which each task needs
anew, and the kernels are there already.
"""

_captured_before: set[Hashable] = set()


def make_executor(kind: Executor, step: TrainingStep) -> Callable[[], None]:
    """A function that carries out the next step each time it is called."""
    device = step.images.device
    kind = chosen_executor(kind, step)
    refuse_without_gpu(kind, device)
    if kind == "eager":
        return step
    if kind == "compiled":
        step = replace(step, compiled=torch.compile)
        return GraphedStep(step) if device.type == "cuda" else step
    if kind == "fused":
        if reason := _why_not_fused(step):
            raise HoldfastError(f"train.executor 'fused' cannot be used here: {reason}; {USE_AUTO}")
        step = replace(step, compiled=fused_network)
    return GraphedStep(step)


def chosen_executor(wanted: Executor, step: TrainingStep) -> Executor:
    """The executor that ``wanted`` means for this step: "auto" is "graph" on a GPU and "eager" elsewhere.

    The two give the same bits. "fused" rounds to bf16 in other places, so "auto" never means it.
    """
    if wanted != "auto":
        return wanted
    return "graph" if step.images.device.type == "cuda" else "eager"


def refuse_without_gpu(wanted: Executor, device: torch.device) -> None:
    """Raise where ``wanted`` needs a GPU and ``device`` is none."""
    if wanted in NEED_GPU and device.type != "cuda":
        raise HoldfastError(f"train.executor {wanted!r} needs a GPU, and this run is on {device.type}; {USE_AUTO}")


def _why_not_fused(step: TrainingStep) -> str:
    """Empty where there are kernels for every network of the step."""
    if step.options.precision != "bf16":
        return f"the kernels compute in bf16 and train.precision is {step.options.precision}"
    height, width = (step.options.resized_crop,) * 2 if step.options.resized_crop else step.images.height_width
    for network in (step.encoder, step.old):
        if network is not None and (reason := why_no_kernels(network, height, width)):
            return reason
    return ""


def kind_of(step: TrainingStep) -> Hashable:
    """Equal for steps that call the same kernels: those of one run's later tasks, and of the same method's other runs.

    None where each step is compiled by itself.
    """
    if step.compiled is torch.compile:
        return None
    method = step.method
    return (
        type(method),
        method.old_features,
        method.reads_view,
        step.kept is None,
        _network_kind(step.encoder),
        _network_kind(step.old),
        step.compiled,
        type(step.source),
        step.images.height_width,
        step.share.size,
        step.share.replayed,
        repr(replace(step.options, seed=0)),  # a recipe gives lists, which cannot be hashed
    )


def _network_kind(network: nn.Module | None) -> str:
    if not isinstance(network, Encoder):
        return repr(type(network))
    return f"{getattr(network.backbone, 'backbone_spec', type(network.backbone))} to {network.dim}"


class GraphedStep:
    """The step as one CUDA graph, replayed; the first steps are eager ones.

    It is captured on the stream that is current when it is made. That matters for runs side by side: graphs captured
    on torch's shared capture stream share a cuBLAS workspace, and corrupt each other when they are replayed at once.
    Steps made in one thread share memory, so they may be called in turns but not side by side.
    """

    def __init__(self, step: TrainingStep) -> None:
        self._step = step
        self._device = step.images.device
        self._stream = stream_to_capture(self._device)
        # What several ranks exchange goes through one channel, which must not be entered from two streams at once.
        if step.old is not None and step.share.alone:
            step.aside = aside_on(self._device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._kind = kind_of(step)
        self._known = self._kind is not None and self._kind in _captured_before
        self._eager_left = 1 if self._known else WARM_UP

    def __call__(self) -> None:
        current = torch.cuda.current_stream(self._device)
        if current == self._stream:
            self._next()
            return
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            self._next()
        current.wait_stream(self._stream)

    def _next(self) -> None:
        if self._graph is not None:
            self._graph.replay()
        elif self._eager_left:
            # The first call of a kernel compiles it: once, not once per neighbour.
            with contextlib.nullcontext() if self._known else ONE_AT_A_TIME:
                self._step()
            self._eager_left -= 1
        else:
            self._graph = capture(self._step, self._device, self._step.generator)
            _captured_before.add(self._kind)
            self._graph.replay()


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

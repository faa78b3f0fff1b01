"""How a training step is executed: eagerly, compiled, or as one CUDA graph, perhaps with kernels of other code.

CUDA graphs are captured and replayed so that several runs can train in threads of one process.
"""

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder
from holdfast.train.engine.fit_options import EXECUTORS, Executor
from holdfast.train.engine.step import TrainingStep, old_model_stream


@dataclass(frozen=True)
class Kernels:
    """Kernels that compute networks in a captured step.

    compiled: makes a function that computes a network.
    why_not: why a step cannot use the kernels; empty if it can.
    """

    compiled: Callable[[nn.Module], Callable[[Tensor], Tensor]]
    why_not: Callable[[TrainingStep], str]


_kernels: dict[str, Kernels] = {}


def register_kernels(name: str, kernels: Kernels) -> None:
    """Add an executor: a CUDA graph of a step with networks computed by ``kernels``. "auto" never means it."""
    _kernels[name] = kernels
    if name not in EXECUTORS:
        EXECUTORS.append(name)


WARM_UP = 3
"""Eager steps before a graph is captured: libraries choose algorithms and allocate memory in the first ones.

One step is enough if the process has captured a step with the same kernels before: it allocates the optimiser's
buffers, which every task needs, and the kernels are compiled already.
"""

_captured_before: set[Hashable] = set()


def make_executor(kind: Executor, step: TrainingStep) -> Callable[[], None]:
    """A function that executes the next training step each time it is called."""
    device = step.images.device
    kind = chosen_executor(kind, step)
    refuse_without_gpu(kind, device)
    if kind != "eager" and _calls_own_code(step):
        raise HoldfastError(f"executor {kind!r} cannot be used with your own optimizer or augment; set it to auto")
    if kind == "eager":
        return step
    if kind == "compiled":
        step = replace(step, compiled=torch.compile)
        return GraphedStep(step) if device.type == "cuda" else step
    if kernels := _kernels.get(kind):
        if reason := kernels.why_not(step):
            raise HoldfastError(f"executor {kind!r} cannot be used here: {reason}; set it to auto")
        step = replace(step, compiled=kernels.compiled)
    return GraphedStep(step)


def chosen_executor(wanted: Executor, step: TrainingStep) -> Executor:
    """The executor that ``wanted`` means for this step: "auto" is "graph" on a GPU and "eager" elsewhere.

    The two give the same bits. A step with the user's own optimiser or augmentation is eager: a CUDA graph would repeat
    what Python code did once.
    """
    if wanted != "auto":
        return wanted
    return "graph" if step.images.device.type == "cuda" and not _calls_own_code(step) else "eager"


def _calls_own_code(step: TrainingStep) -> bool:
    return step.own_optimizer or step.own_augment is not None


def refuse_without_gpu(wanted: Executor, device: torch.device) -> None:
    """Raise if ``wanted`` needs a GPU and ``device`` is not one."""
    if (wanted == "graph" or wanted in _kernels) and device.type != "cuda":
        raise HoldfastError(f"executor {wanted!r} needs a GPU, and this run is on {device.type}; set it to auto")


def kernel_signature(step: TrainingStep) -> Hashable:
    """A value that is equal for steps that call the same kernels: later tasks, and other runs of the same method.

    None if each step is compiled separately.
    """
    if step.compiled is torch.compile:
        return None
    method = step.method
    return (
        type(method),
        tuple(name for name, _ in method.named_parameters()),  # options may add networks to a method
        method.old_features,
        method.reads_view,
        step.kept is None,
        _network_kind(step.encoder),
        _network_kind(step.old),
        step.compiled,
        type(step.source),
        step.images.height_width,
        step.batches.shape[1],
        step.replayed,
        repr(replace(step.options, seed=0)),  # options may hold lists, which cannot be hashed
    )


def _network_kind(network: nn.Module | None) -> str:
    if not isinstance(network, Encoder):
        return repr(type(network))
    return f"{getattr(network.backbone, 'backbone_spec', type(network.backbone))} to {network.dim}"


class GraphedStep:
    """The step as a CUDA graph that is replayed; the first steps are eager.

    The graph is captured on the stream that is current when this object is made. Graphs captured on torch's shared
    capture stream share a cuBLAS workspace and corrupt each other when they are replayed at the same time. Steps made
    in one thread share memory, so they may be called one after the other but not at the same time.
    """

    def __init__(self, step: TrainingStep) -> None:
        self._step = step
        self._device = step.images.device
        self._stream = stream_to_capture(self._device)
        if step.old is not None:
            step.old_stream = old_model_stream(self._device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._kind = kernel_signature(step)
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
            # The first call of a kernel compiles it: once, not in every thread.
            with contextlib.nullcontext() if self._known else CAPTURE_LOCK:
                self._step()
            self._eager_left -= 1
        else:
            self._graph = capture(self._step, self._device, self._step.generator)
            _captured_before.add(self._kind)
            self._graph.replay()


CAPTURE_LOCK = threading.Lock()
"""Held while kernels are compiled or a graph is captured: a synchronisation by another thread would break a capture."""


class _ThreadGraphs(threading.local):
    """The stream of one thread's graphs, and its last graph, the memory of which the next one uses.

    Otherwise every task would allocate its graph's memory from the driver, and freeing the memory of the last one waits
    until the whole device is idle, with all other runs on it.
    """

    def __init__(self) -> None:
        self.streams: dict[torch.device, torch.cuda.Stream] = {}
        self.last: dict[torch.cuda.Stream, torch.cuda.CUDAGraph] = {}

    def stream(self, device: torch.device) -> torch.cuda.Stream:
        """The current stream; instead of the default stream, which cannot be captured, one of this thread's own."""
        current = torch.cuda.current_stream(device)
        if current != torch.cuda.default_stream(device):
            return current
        if device not in self.streams:
            self.streams[device] = torch.cuda.Stream(device)
        return self.streams[device]


_graphs = _ThreadGraphs()


def stream_to_capture(device: torch.device) -> torch.cuda.Stream:
    """The stream that this thread's graphs are captured and replayed on."""
    return _graphs.stream(device)


@contextmanager
def on_stream_to_capture(device: torch.device) -> Iterator[None]:
    """Run a block on that stream, after all work before it and before all work after it; no effect on a CPU."""
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
    """Capture ``work`` as a graph. ``stream_to_capture`` must be the current stream.

    work: the function to capture.
    device: its device.
    generator: the random generator that it uses, if any.

    ``torch.cuda.graph`` is not used: it waits for the whole device and empties the shared memory cache. Graphs of one
    thread share memory, so they may be replayed one after the other but not at the same time.
    """
    stream = torch.cuda.current_stream(device)
    graph = torch.cuda.CUDAGraph()
    if generator is not None:
        graph.register_generator_state(generator)
    previous = _graphs.last.get(stream)
    with CAPTURE_LOCK:
        graph.capture_begin(None if previous is None else previous.pool(), capture_error_mode="thread_local")
        try:
            work()
        except BaseException:
            with suppress(RuntimeError):  # the graph is invalid; the first error says why
                graph.capture_end()
            raise
        graph.capture_end()
    _graphs.last[stream] = graph
    return graph

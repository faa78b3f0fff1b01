"""Ways to carry out the same training step: kernel by kernel, as one CUDA graph, or as a graph of fewer kernels."""

import threading
from collections.abc import Callable
from dataclasses import replace

import torch

from holdfast.engine.options import Executor
from holdfast.engine.step import TrainingStep
from holdfast.errors import HoldfastError
from holdfast.kernels import fused_network, has_kernels

WARM_UP = 3
"""Steps carried out eagerly before a graph is captured: libraries choose algorithms and allocate on the first ones."""

ONE_AT_A_TIME = threading.Lock()
"""Held while kernels are compiled or a graph is captured, which must not meet another thread's synchronisation."""


def make_executor(kind: Executor, step: TrainingStep) -> Callable[[], None]:
    """A function that carries out the next step each time it is called."""
    on_gpu = step.images.device.type == "cuda"
    if kind == "auto":
        kind = _best(step) if on_gpu else "eager"
    if kind == "eager":
        return step
    if kind == "compiled":
        step = replace(step, compiled=torch.compile)
        return GraphedStep(step) if on_gpu else step
    if not on_gpu:
        raise HoldfastError(f"train.executor {kind!r} needs a GPU; use eager or auto")
    if kind == "fused":
        if reason := _why_not_fused(step):
            raise HoldfastError(f"train.executor 'fused' cannot be used here: {reason}; use graph or auto")
        step = replace(step, compiled=fused_network)
    return GraphedStep(step)


def _best(step: TrainingStep) -> Executor:
    return "graph" if _why_not_fused(step) else "fused"


def _why_not_fused(step: TrainingStep) -> str:
    """Empty where there are kernels for every network of the step."""
    if step.options.precision != "bf16":
        return f"the kernels compute in bf16 and train.precision is {step.options.precision}"
    for network in (step.encoder, step.old):
        if network is not None and not has_kernels(network):
            return f"there are no kernels for {type(getattr(network, 'backbone', network)).__name__}, or no triton"
    return ""


class GraphedStep:
    """The step as one CUDA graph, replayed; the first few steps are eager ones.

    It is captured on the stream that is current when it is made. That matters for runs side by side: graphs captured
    on torch's shared capture stream share a cuBLAS workspace, and corrupt each other when they are replayed at once.
    """

    def __init__(self, step: TrainingStep) -> None:
        self._step = step
        self._device = step.images.device
        self._stream = torch.cuda.current_stream(self._device)
        if self._stream == torch.cuda.default_stream(self._device):
            self._stream = torch.cuda.Stream(self._device)  # the default stream cannot be captured
        self._graph: torch.cuda.CUDAGraph | None = None
        self._eager_left = WARM_UP

    def __call__(self) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            if self._eager_left:
                with ONE_AT_A_TIME:  # the first call of a kernel compiles it: once, not once per neighbour
                    self._step()
                self._eager_left -= 1
            else:
                if self._graph is None:
                    self._graph = self._captured()
                self._graph.replay()
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def _captured(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._step.generator)
        with ONE_AT_A_TIME, torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            self._step()
        return graph

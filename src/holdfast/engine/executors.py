"""Ways to carry out the same training step: eagerly, compiled, as one CUDA graph, or as a graph of fused kernels."""

import contextlib
from collections.abc import Callable, Hashable
from dataclasses import replace

import torch
from torch import nn

from holdfast.backbones import Encoder
from holdfast.engine.aside import aside_on
from holdfast.engine.graphs import ONE_AT_A_TIME, capture, stream_to_capture
from holdfast.engine.options import Executor
from holdfast.engine.step import TrainingStep
from holdfast.errors import HoldfastError
from holdfast.kernels import fused_network, why_no_kernels

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

"""The loop that computes features: a network applied to many images, batch by batch. All features come from here."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.train.encoders.preprocess import Input

PIXELS_AT_ONCE = {"cpu": 2**19, "cuda": 2**22}
"""Pixels of all images of a batch together: 512 images of 32 x 32 on a CPU. A GPU needs larger batches to be busy."""


def batch_size_for(device: torch.device, shape: Sequence[int]) -> int:
    """The batch size that suits the device, for inputs of ``shape``: C x H x W, or D for vectors."""
    return max(1, PIXELS_AT_ONCE.get(device.type, PIXELS_AT_ONCE["cpu"]) // math.prod(shape[-2:]))


def input_reader(preprocess: Input, items: Any, device: torch.device) -> Callable[[slice], Tensor]:
    """The argument ``read`` of ``compute_features`` for items that can be sliced.

    Pixels are copied to the device as uint8 and normalised there.
    """
    return lambda rows: preprocess.normalise(preprocess.stack(items[rows]).to(device))


@torch.no_grad()
def compute_features(
    network: nn.Module,
    count: int,
    read: Callable[[slice], Tensor],
    *,
    device: torch.device,
    batch_size: int,
    finish: Callable[[Tensor], Tensor] = lambda z: z,
    collect_on: torch.device | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Tensor:
    """Features of ``count`` images, float32 N x d: the network in eval mode, without gradients and without autocast.

    network: must be on ``device``. On CUDA its weights are stored as channels_last afterwards. The mode of each module
        (train or eval) is restored.
    read: returns the network's inputs for a slice of the images, on any device.
    finish: applied to the features of each batch while they are on ``device``.
    collect_on: device of the result; None for ``device``.
    progress: called after each batch with the number of images done.
    """
    on_cuda = device.type == "cuda"
    if on_cuda and not all(p.is_contiguous(memory_format=torch.channels_last) for p in _convolution_weights(network)):
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    dtype = next(network.parameters(), torch.empty(0)).dtype
    features = torch.empty(0)
    # With autocast the same image would get another vector.
    with eval_mode(network), torch.autocast(device.type, enabled=False):
        for start in range(0, max(count, 1), batch_size):
            x = read(slice(start, min(start + batch_size, count))).to(device, dtype)
            z = finish(network(_in_memory_format(x, on_cuda)).float())
            if start == 0:
                features = torch.empty(count, z.shape[1], device=device if collect_on is None else collect_on)
            features[start : start + len(z)] = z
            progress(start + len(z))
    return features


def _convolution_weights(network: nn.Module) -> Iterator[Tensor]:
    """Weights with four dimensions, which can be channels_last."""
    return (parameter for parameter in network.parameters() if parameter.ndim == 4)


def _in_memory_format(x: Tensor, on_cuda: bool) -> Tensor:
    """``x`` in the same memory format for all callers: another format can round differently."""
    return x.contiguous(memory_format=torch.channels_last) if on_cuda and x.ndim == 4 else x.contiguous()


@contextlib.contextmanager
def eval_mode(network: nn.Module) -> Iterator[None]:
    """Eval mode in the block; then restore the mode of each module, which may differ for frozen parts."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training

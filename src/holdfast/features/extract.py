"""Run a model over a set of images once."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from holdfast.backbones import Encoder
from holdfast.data import ImageSet
from holdfast.errors import HoldfastError
from holdfast.features.compact import compacted
from holdfast.geometry import unit
from holdfast.kernels import frozen_network, why_no_kernels

PIXELS_AT_ONCE = {"cpu": 2**19, "cuda": 2**22}
"""Of all images of a batch together: 512 of 32 x 32 on a CPU; a GPU wants more, or it waits for the host."""


@torch.no_grad()
def extract(
    encoder: Encoder,
    images: ImageSet,
    *,
    device: torch.device | str = "cpu",
    batch_size: int | None = None,
    basis: Tensor | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> np.ndarray:
    """Unit features of every image, N x d float32, in the set's order; float32 throughout, whatever trained it.

    batch_size: None takes as many as suit the device.
    basis: give compact features in it (features/compact.py); full ones then never exist for more than a batch.
    """
    preprocess = encoder.preprocess
    if preprocess is None:
        raise HoldfastError("the encoder has no preprocess; give it one, so that it knows what to do with images")
    device = torch.device(device)
    encoder = encoder.to(device).eval()
    if device.type == "cuda":
        encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    height, width, channels = images.images.shape[1:]
    numbers = channels if images.holds_vectors else height * width
    at_once = batch_size or max(1, PIXELS_AT_ONCE.get(device.type, 2**19) // numbers)
    basis = None if basis is None else basis.to(device)
    features = torch.empty((len(images), encoder.dim if basis is None else basis.shape[1]), device=device)
    by_kernels = device.type == "cuda" and not why_no_kernels(encoder, height, width)
    network = frozen_network(encoder) if by_kernels else encoder
    for start in range(0, len(images), at_once):
        pixels = torch.from_numpy(images.images[start : start + at_once]).to(device).permute(0, 3, 1, 2)
        z = unit(network(preprocess.normalise(pixels)))
        features[start : start + len(z)] = z if basis is None else compacted(z, basis)
        progress(start + len(z))
    return features.cpu().numpy()

"""Run a model over a set of images once."""

from collections.abc import Callable

import numpy as np
import torch

from holdfast.backbones import Encoder
from holdfast.data import ImageSet
from holdfast.errors import HoldfastError
from holdfast.geometry import unit


@torch.no_grad()
def extract(
    encoder: Encoder,
    images: ImageSet,
    *,
    device: torch.device | str = "cpu",
    batch_size: int = 512,
    progress: Callable[[int], None] = lambda done: None,
) -> np.ndarray:
    """Unit features of every image, N x d float32, in the set's order; float32 throughout, whatever trained it."""
    preprocess = encoder.preprocess
    if preprocess is None:
        raise HoldfastError("the encoder has no preprocess; give it one, so that it knows what to do with images")
    encoder = encoder.to(device).eval()
    features = np.empty((len(images), encoder.dim), dtype=np.float32)
    for start in range(0, len(images), batch_size):
        pixels = torch.from_numpy(images.images[start : start + batch_size]).to(device).permute(0, 3, 1, 2)
        z = unit(encoder(preprocess.normalise(pixels)))
        features[start : start + len(z)] = z.cpu().numpy()
        progress(start + len(z))
    return features

"""Features of a whole ``ImageSet``, for evaluation."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.train.data import ImageSet
from holdfast.train.encoders.compact import to_compact
from holdfast.train.encoders.encode_loop import batch_size_for, compute_features, input_reader
from holdfast.train.encoders.encoder import Encoder
from holdfast.train.geometry import unit


def extract(
    encoder: Encoder,
    images: ImageSet,
    *,
    device: torch.device | str = "cpu",
    batch_size: int | None = None,
    basis: Tensor | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> np.ndarray:
    """Unit features of every image, N x d float32, in the set's order. They equal those of ``encoder.encode``.

    encoder: must have a preprocess.
    images: the images.
    device: the encoder is moved there and stays there.
    batch_size: images at a time; None chooses it by device and image size.
    basis: if given, return compact features (encoders/compact.py). Full features then exist for one batch at a time.
    progress: called after each batch with the number of images done.

    >>> from holdfast import Encoder, Preprocess, build_backbone, extract, load_split
    >>> images = load_split("glyphs", "train", train_classes=2, test_classes=1, per_class_train=3, size=16)
    >>> preprocess = Preprocess(16, mean=(0.5,), std=(0.25,), colour="grey")
    >>> encoder = Encoder(build_backbone("small", width=4), preprocess=preprocess)
    >>> extract(encoder, images).shape
    (6, 16)
    """
    preprocess = encoder.preprocess
    if preprocess is None:
        raise HoldfastError("extract: the encoder has no preprocess; pass Encoder(..., preprocess=)")
    if batch_size is not None and batch_size < 1:
        raise HoldfastError(f"extract: batch_size must be at least 1, got {batch_size}")
    device = torch.device(device)
    encoder.to(device)
    basis = None if basis is None else basis.to(device)
    stored = images.images.reshape(len(images), -1) if images.holds_vectors else images.images
    features = compute_features(
        encoder.embedding_network,
        len(images),
        input_reader(preprocess, stored, device),
        device=device,
        batch_size=batch_size or batch_size_for(device, preprocess.input_shape),
        finish=lambda z: unit(z) if basis is None else to_compact(unit(z), basis),
        progress=progress,
    )
    return features.cpu().numpy()

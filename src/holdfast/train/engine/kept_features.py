"""Features that past models gave the images of the replay buffer."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.core.errors import HoldfastError
from holdfast.train.data.device_images import Images
from holdfast.train.encoders import Encoder
from holdfast.train.engine.survey import image_features
from holdfast.train.scenarios import Task


class KeptFeatures:
    """For each buffered image of a task, its features under every past model; a table on the device.

    task: the task that replays the buffer.
    images: its training set.
    past: features of the buffered images under each past model, in order, all of the same size.

    ``table``: B x M x d for the B images of the buffer and M past models. Zero if a model has no feature of an image,
    because the image joined the buffer later.
    """

    def __init__(self, task: Task, images: Images, past: "Sequence[BufferFeatures]") -> None:
        buffer = torch.from_numpy(task.buffer_indices).to(images.device)
        self._position = torch.full((len(images),), -1, device=images.device)
        self._position[buffer] = torch.arange(len(buffer), device=images.device)
        dim = past[-1].features.shape[1]
        self.table = torch.zeros(len(buffer), len(past), dim, device=images.device)
        for number, (rows, features) in enumerate(past):
            if features.shape[1] != dim:
                raise HoldfastError(
                    f"past model {number + 1} has features of size {features.shape[1]}, the last one of {dim}: "
                    "they cannot be compared"
                )
            position = self._position[rows.to(images.device)]
            buffered = position >= 0
            self.table[position[buffered], number] = features.to(images.device)[buffered]

    def __getitem__(self, indices: Tensor) -> Tensor:
        """B' x M x d for B' rows of the training set.

        All rows must be in the buffer: a row outside of it gives another image's features.
        """
        return self.table[self._position[indices]]


class BufferFeatures(NamedTuple):
    """Features of some images under one model. rows: B, of the training set; features: B x d, unit, float32."""

    rows: Tensor
    features: Tensor


def buffer_features(encoder: Encoder, images: Images, rows: np.ndarray) -> BufferFeatures:
    """Features of the images at ``rows``, not augmented and in eval mode, as a gallery stores them.

    After a task it is called with the rows of the next task's buffer.
    """
    if encoder.preprocess is None:
        raise HoldfastError("the encoder has no preprocess; pass one to Encoder(..., preprocess=...)")
    indices = torch.from_numpy(rows).to(images.device)
    z = image_features(encoder, encoder.preprocess, images, indices)
    return BufferFeatures(indices, F.normalize(z, dim=1))

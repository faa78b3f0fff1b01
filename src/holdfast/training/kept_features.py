"""What the buffer remembers of its images: the features they had under past models."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.data.device_images import DeviceImages, StreamedImages
from holdfast.encoders import Encoder
from holdfast.errors import HoldfastError
from holdfast.scenarios import Task
from holdfast.training.survey import features_of


class Remembered(NamedTuple):
    """What one model gave some images. rows: B of the training set; features: B x d, unit, float32."""

    rows: Tensor
    features: Tensor


def remember(encoder: Encoder, images: DeviceImages | StreamedImages, rows: np.ndarray) -> Remembered:
    """Features of the images as they are, not augmented, in eval mode: as galleries hold them.

    After a task this is asked for the rows of the next task's buffer.
    """
    if encoder.preprocess is None:
        raise HoldfastError("the encoder has no preprocess; give it one, so that it knows what to do with images")
    indices = torch.from_numpy(rows).to(images.device)
    z = features_of(encoder, encoder.preprocess, images, indices)
    return Remembered(indices, F.normalize(z, dim=1))


class KeptFeatures:
    """A table on the device: for each buffered image what every past model gave it.

    table: B x M x d for the B images of the task's buffer and M past models in order; zero where a model was not asked
    about the image, because its class came later. Indexed by rows of the training set; those outside the buffer have
    no place in it, and asking for one gives another image's features.
    """

    def __init__(self, task: Task, images: DeviceImages | StreamedImages, past: Sequence[Remembered]) -> None:
        buffer = torch.from_numpy(task.buffer_indices).to(images.device)
        self._place = torch.full((len(images),), -1, device=images.device)
        self._place[buffer] = torch.arange(len(buffer), device=images.device)
        dim = past[-1].features.shape[1]
        self.table = torch.zeros(len(buffer), len(past), dim, device=images.device)
        for number, (rows, features) in enumerate(past):
            if features.shape[1] != dim:
                raise HoldfastError(
                    f"past model {number + 1} has features of size {features.shape[1]}, the last one of {dim}: "
                    "they cannot be compared"
                )
            places = self._place[rows.to(images.device)]
            still = places >= 0
            self.table[places[still], number] = features.to(images.device)[still]

    def __getitem__(self, indices: Tensor) -> Tensor:
        """B' x M x d for B' rows of the training set, all of them in the buffer."""
        return self.table[self._place[indices]]

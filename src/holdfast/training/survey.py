"""One look at all images of a task through a model, for methods that ask for it.

An old model of which only the vectors are left: what it gave the training images, looked up instead of computed.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.data.augment import centre_crop
from holdfast.data.device_images import DeviceImages, StreamedImages
from holdfast.encoders import Encoder, Preprocess, VectorInput
from holdfast.encoders.encode_loop import compute_features
from holdfast.errors import HoldfastError
from holdfast.scenarios import Task

BATCH = 512


@dataclass
class ImageSurvey:
    """Features of the task's images and the buffer: raw, float32, in eval mode; of larger images the centre is seen.

    Each call runs the network: a method asks once and keeps what it needs. ``mirrored`` adds the mirrored images,
    where training flips at all.
    """

    encoder: Encoder
    preprocess: Preprocess | VectorInput
    reference: nn.Module | None
    images: DeviceImages | StreamedImages
    labels: Tensor
    task: Task
    flips: bool

    def new(self, *, mirrored: bool = False) -> tuple[Tensor, Tensor]:
        """Under the model in training."""
        return self._through(self.encoder, mirrored and self.flips)

    def old(self, *, mirrored: bool = False) -> tuple[Tensor, Tensor] | None:
        """Under the previous model, or None where there is none."""
        return None if self.reference is None else self._through(self.reference, mirrored and self.flips)

    def _through(self, network: nn.Module, mirrored: bool) -> tuple[Tensor, Tensor]:
        parts = [torch.from_numpy(rows) for rows in (self.task.new_indices, self.task.buffer_indices)]
        indices = torch.cat(parts).to(self.images.device)
        if isinstance(network, StoredReference):  # a mirrored image has the vector of the image
            return network(indices).repeat(2 if mirrored else 1, 1), self.labels[indices].repeat(2 if mirrored else 1)
        features = [
            features_of(network, self.preprocess, self.images, indices, mirror=mirror)
            for mirror in ((False, True) if mirrored else (False,))
        ]
        return torch.cat(features), self.labels[indices].repeat(2 if mirrored else 1)


def features_of(
    network: nn.Module,
    preprocess: Preprocess | VectorInput,
    images: DeviceImages | StreamedImages,
    indices: Tensor,
    *,
    mirror: bool = False,
) -> Tensor:
    """Raw features of some images of the set, float32 on their device, in eval mode; of larger images the centre."""

    def read(rows: slice) -> Tensor:
        pixels = centre_crop(images[indices[rows]], *preprocess.height_width)
        return preprocess.normalise(pixels.flip(-1) if mirror else pixels)

    return compute_features(network, len(indices), read, device=images.device, batch_size=BATCH)


class StoredReference(nn.Module):
    """Stands where ``fit`` takes the old model. Called with rows of the training set (B), it gives B x d.

    table: N x d, one vector for each image of the training set, in its order; zeros where there is none. A zero vector
    is like nothing: in a contrast it is a constant and moves no weight, and a class of zeros alone has no centre.
    A stored vector belongs to the image as it is: whatever augmentation shows the new model, z_old stays the same.
    """

    table: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        if table.ndim != 2 or not table.is_floating_point() or 0 in table.shape:
            raise HoldfastError(f"stored vectors must be numbers, N x d, found {table.dtype} of {tuple(table.shape)}")
        if not bool(table.isfinite().all()):
            raise HoldfastError("stored vectors hold NaN or infinity; leave those images out of the store")
        if not bool(table.any()):
            raise HoldfastError("stored vectors are all zero: the store knows none of the training images")
        self.register_buffer("table", table.float(), persistent=False)

    @property
    def dim(self) -> int:
        return int(self.table.shape[1])

    def forward(self, rows: Tensor) -> Tensor:
        return self.table[rows]

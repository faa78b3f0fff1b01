"""Features of all images of a task under the old and the new model, for methods that read them."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.train.data.augment import centre_crop
from holdfast.train.data.device_images import Images
from holdfast.train.encoders import Encoder, Input
from holdfast.train.encoders.encode_loop import compute_features
from holdfast.train.scenarios import Task

BATCH = 512


@dataclass
class TaskFeatures:
    """Features of the task's new and buffered images: raw, float32, in eval mode, of the centre of larger images.

    Each call runs the network, so a method calls it once. ``mirrored`` adds the mirrored images, if training flips.
    """

    encoder: Encoder
    preprocess: Input
    reference: nn.Module | None
    images: Images
    labels: Tensor
    task: Task
    flips: bool

    def new(self, *, mirrored: bool = False) -> tuple[Tensor, Tensor]:
        """Features and labels under the model in training."""
        return self._through(self.encoder, mirrored and self.flips)

    def old(self, *, mirrored: bool = False) -> tuple[Tensor, Tensor] | None:
        """Features and labels under the old model; None if there is none."""
        return None if self.reference is None else self._through(self.reference, mirrored and self.flips)

    def _through(self, network: nn.Module, mirrored: bool) -> tuple[Tensor, Tensor]:
        parts = [torch.from_numpy(rows) for rows in (self.task.new_indices, self.task.buffer_indices)]
        indices = torch.cat(parts).to(self.images.device)
        if getattr(network, "reads_rows", False):  # a mirrored image has the same vector
            return network(indices).repeat(2 if mirrored else 1, 1), self.labels[indices].repeat(2 if mirrored else 1)
        features = [
            image_features(network, self.preprocess, self.images, indices, mirror=mirror)
            for mirror in ((False, True) if mirrored else (False,))
        ]
        return torch.cat(features), self.labels[indices].repeat(2 if mirrored else 1)


def image_features(
    network: nn.Module,
    preprocess: Input,
    images: Images,
    indices: Tensor,
    *,
    mirror: bool = False,
) -> Tensor:
    """Raw features of the images at ``indices``, float32 on their device, in eval mode, of the centre of larger images.

    mirror: mirror the images first.
    """

    def read(rows: slice) -> Tensor:
        pixels = centre_crop(images[indices[rows]], *preprocess.height_width)
        return preprocess.normalise(pixels.flip(-1) if mirror else pixels)

    return compute_features(network, len(indices), read, device=images.device, batch_size=BATCH)

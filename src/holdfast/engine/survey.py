"""One look at all images of a task through a model, for methods that ask for it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.backbones import Encoder, Preprocess, VectorInput
from holdfast.backbones.encode_loop import compute_features
from holdfast.data.device import DeviceImages
from holdfast.data.resized_crop import centre_crop
from holdfast.data.stream import StreamedImages
from holdfast.engine.stored_reference import StoredReference
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

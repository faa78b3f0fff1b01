"""One optimisation step: the only place that calls ``backward``."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.backbones import Encoder, Preprocess
from holdfast.data.augment import augment
from holdfast.data.device import DeviceImages
from holdfast.engine.options import FitOptions
from holdfast.methods import Batch, Method, Progress


@dataclass
class TrainingStep:
    """Augment, encode, ask the method for its terms, descend. Knows no method and reads nothing back to the host.

    labels: per image of the set, the class in order of arrival (images of classes not yet seen are never indexed).
    old: the frozen previous model, or None.
    """

    encoder: Encoder
    preprocess: Preprocess
    method: Method
    old: nn.Module | None
    optimizer: torch.optim.Optimizer
    images: DeviceImages
    labels: Tensor
    options: FitOptions
    generator: torch.Generator

    def __call__(self, indices: Tensor, replayed: int, progress: Progress) -> dict[str, Tensor]:
        """One step on the images ``indices``; the detached terms of the loss."""
        batch = Batch(self.labels[indices], replayed)
        with torch.autocast(self.images.device.type, torch.bfloat16, enabled=self.options.precision == "bf16"):
            x = self._view(indices)
            z_old = self._old_features(x, replayed)
            z = self.encoder(x)
            z_view = self.encoder(self._view(indices)) if self.method.reads_view else None
            terms = self.method.loss(z, batch, z_old=z_old, z_view=z_view, progress=progress)
        self.optimizer.zero_grad(set_to_none=True)
        torch.stack(list(terms.values())).sum().backward()
        self.optimizer.step()
        return {name: term.detach() for name, term in terms.items()}

    def _view(self, indices: Tensor) -> Tensor:
        options = self.options
        pixels = augment(
            self.images[indices], crop_padding=options.crop_padding, flip=options.flip, generator=self.generator
        )
        return self.preprocess.normalise(pixels)

    def _old_features(self, x: Tensor, replayed: int) -> Tensor | None:
        if self.old is None or self.method.old_features == "none":
            return None
        with torch.no_grad():
            return self.old(x if self.method.old_features == "all" else x[:replayed])

"""One optimisation step: the only place that calls ``backward``."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.backbones import Encoder, Preprocess, VectorInput
from holdfast.data.augment import augment
from holdfast.data.device import DeviceImages
from holdfast.data.stream import Ring, StreamedImages
from holdfast.engine.aside import Aside
from holdfast.engine.kept import KeptFeatures
from holdfast.engine.options import FitOptions
from holdfast.engine.share import Share
from holdfast.engine.stored_reference import StoredReference
from holdfast.engine.tally import Tally
from holdfast.methods import Batch, Method, Progress


@dataclass
class TrainingStep:
    """Augment, encode, ask the method for its terms, descend. Knows no method and reads nothing back to the host.

    All it needs lies on the device and is changed in place: which images come next, how far the training is, the rate.
    So a step takes no arguments, and a CUDA graph of it can be replayed.

    labels: per image of the set, the class in order of arrival (images of classes not yet seen are never indexed).
    old: the frozen model that the task is held to, the vectors that are left of it, or None.
    source: where the batches' pixels are read from.
    batches: steps of an epoch x batch; rows of the set, those from the buffer first.
    share: the part of each batch that is this process's, all of it where there is only one.
    done: steps of the task done so far.
    kept: what past models gave the buffered images, where the method reads it.
    compiled: makes of a network the function that is called in its place.
    aside: where the old model is asked while the new one is trained on; None: before it.
    """

    encoder: Encoder
    preprocess: Preprocess | VectorInput
    method: Method
    old: nn.Module | None
    optimizer: torch.optim.Optimizer
    images: DeviceImages | StreamedImages
    source: DeviceImages | Ring
    labels: Tensor
    options: FitOptions
    generator: torch.Generator
    tally: Tally
    batches: Tensor
    share: Share
    done: Tensor
    kept: KeptFeatures | None = None
    compiled: Callable[[nn.Module], Callable[[Tensor], Tensor]] = lambda network: network
    aside: Aside | None = None

    def __post_init__(self) -> None:
        self._new = self.compiled(self.encoder)
        self._old = None if self.old is None else self.compiled(self.old)

    def __call__(self) -> None:
        """One step on the next batch of the epoch."""
        per_epoch = len(self.batches)
        # Not batches[position]: an index of no dimension would be read back to the host.
        indices = self.batches.index_select(0, self.done.remainder(per_epoch).view(1)).squeeze(0)
        progress = Progress(
            fraction=self.done / (per_epoch * self.options.epochs),
            epoch=self.done.div(per_epoch, rounding_mode="floor"),
            epochs=self.options.epochs,
        )
        own = self.share.own(indices)
        batch = Batch(self.labels[self.share.seen(indices)], self.share.replayed_seen)
        with self._autocast():
            x = self._view(own)
            with self.aside.joined() if self.aside else nullcontext():
                with self.aside.beside() if self.aside else nullcontext():
                    z_old = self._old_features(x, indices)
                z = self.share.whole(self._new(x))
                z_view = self.share.whole(self._new(self._view(own))) if self.method.reads_view else None
                z_kept = None if self.kept is None else self.kept[self.share.seen(indices)[: self.share.replayed_seen]]
            terms = self.method.loss(z, batch, z_old=z_old, z_view=z_view, z_kept=z_kept, progress=progress)
        self.optimizer.zero_grad(set_to_none=True)
        values = torch.stack(list(terms.values()))
        values.sum().backward()
        values = self.share.mean(self.optimizer, values.detach())
        self.optimizer.step()
        self.tally.add(dict(zip(terms, values)), self.done)
        self.done += 1

    def _autocast(self) -> torch.autocast:
        """Without the cache of cast weights: the process has one, and a neighbour that leaves its step empties it.

        Where a network is called twice, whether its second call finds the cast weights decides how the two gradients
        are added, in bf16 or in float32.
        """
        enabled = self.options.precision == "bf16"
        return torch.autocast(self.images.device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)

    def _view(self, indices: Tensor) -> Tensor:
        options = self.options
        pixels = augment(
            self.source.at(indices, self.done),
            crop_padding=options.crop_padding,
            flip=options.flip,
            generator=self.generator,
            resized_crop=options.resized_crop,
            crop_scale=options.crop_scale,
            crop_ratio=options.crop_ratio,
            part=self.share.part,
        )
        return self.preprocess.normalise(pixels)

    def _old_features(self, x: Tensor, indices: Tensor) -> Tensor | None:
        if self._old is None or self.method.old_features == "none":
            return None
        if self.method.old_features == "replayed" and not self.share.replayed_seen:
            return None  # no buffer, so there is no image to ask about
        if isinstance(self.old, StoredReference):  # every rank has the whole table, so there is nothing to gather
            seen = self.share.seen(indices)
            return self._old(seen if self.method.old_features == "all" else seen[: self.share.replayed_seen])
        with torch.no_grad():
            return self.share.whole(self._old(x if self.method.old_features == "all" else x[: self.share.replayed]))

"""One optimisation step: the only place that calls ``backward``.

Work of a step that nothing needs yet, carried out beside what follows it.

Running sums of the loss terms that stay on the device until somebody asks.
"""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.cuda_streams import SideStream
from holdfast.data.augment import augment
from holdfast.data.device_images import DeviceImages, Ring, StreamedImages
from holdfast.encoders import Encoder, Preprocess, VectorInput
from holdfast.errors import HoldfastError
from holdfast.methods import Batch, Method, Progress
from holdfast.training.kept_features import KeptFeatures
from holdfast.training.options import FitOptions
from holdfast.training.ranks import Share
from holdfast.training.survey import StoredReference


class OldModelStream:
    """A second stream for the old model's features, which a step needs only after the new model's.

    A step of a small network is a chain of short kernels that leaves most of a GPU idle. Captured in a graph, what is
    done ``beside`` becomes a branch of it, which ends where what is ``joined`` does.
    """

    def __init__(self, held: SideStream) -> None:
        self._held = held  # as long as this is used, though the thread that made it has ended
        self._stream = held.stream

    @contextmanager
    def beside(self) -> Iterator[None]:
        """What is done inside comes after all that was done before, but not before what follows."""
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            yield

    @contextmanager
    def joined(self) -> Iterator[None]:
        """What follows comes after what was done beside; memory freed from there on is free for both.

        Also where something inside fails: a graph cannot be ended with a branch left open, and memory given back on the
        way out must not be filled again while it is still being read beside.
        """
        try:
            yield
        except BaseException:
            with suppress(RuntimeError):  # in a graph that is spoilt already this fails too, but does not know why
                self._join()
            raise
        self._join()

    def _join(self) -> None:
        torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)


class _Streams(threading.local):
    def __init__(self) -> None:
        self.known: dict[torch.device, SideStream] = {}


_streams = _Streams()


def aside_on(device: torch.device) -> OldModelStream:
    """This thread's own: a matrix product's workspace belongs to a stream, and neighbours must not share one.

    Memory that was freed beside is used again beside, after what the stream that is current then has done: steps of one
    thread that run on different streams must have been waited for before the next ones begin.
    """
    if device not in _streams.known:
        _streams.known[device] = SideStream(device)
    return OldModelStream(_streams.known[device])


class Tally:
    """Sums of each term over an epoch, and the first step whose loss was not finite. Reading it is one sync.

    Its tensors stay where they are and are changed in place, so that a captured step can add to them.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.names: list[str] = []
        self.sums = torch.zeros(0, device=device, dtype=torch.float64)
        self.first_bad_step = torch.full((), math.inf, device=device, dtype=torch.float64)

    def add(self, terms: dict[str, Tensor], step: Tensor) -> None:
        """Add the terms of one step; ``step`` is its number in the task, a tensor of no dimension."""
        values = torch.stack(list(terms.values())).double()
        if not self.names:
            self.names = list(terms)
            self.sums = torch.zeros_like(values)
        self.sums += values
        bad = step.double().where(~values.isfinite().all(), math.inf)
        torch.minimum(self.first_bad_step, bad, out=self.first_bad_step)

    def means(self, steps: int) -> dict[str, float]:
        return dict(zip(self.names, (self.sums / steps).tolist(), strict=True))

    def reset(self) -> None:
        self.sums.zero_()

    def refuse_if_bad(self, task: int, steps_per_epoch: int) -> None:
        """Raise with the place where the loss stopped being a number."""
        step = float(self.first_bad_step)
        if math.isfinite(step):
            epoch, within = divmod(int(step), steps_per_epoch)
            raise HoldfastError(
                f"the loss became NaN or infinite in task {task}, epoch {epoch + 1}, step {within + 1}; "
                "the last good checkpoint is kept; try a lower train.lr"
            )

    def restore(self, names: list[str], sums: Tensor) -> None:
        self.names = names
        self.sums = sums.to(self._device)


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
    aside: OldModelStream | None = None

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

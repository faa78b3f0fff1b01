"""One optimisation step: the only place that calls ``backward``."""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.core.errors import DivergedError, HoldfastError
from holdfast.train.cuda_streams import SideStream
from holdfast.train.data.augment import augment
from holdfast.train.data.device_images import BatchSource, Images
from holdfast.train.encoders import Encoder, Input
from holdfast.train.engine.fit_options import FitOptions
from holdfast.train.engine.kept_features import KeptFeatures
from holdfast.train.methods import Batch, Method, Progress

Augment = Callable[[Tensor, torch.Generator], Tensor]


@dataclass
class TrainingStep:
    """Augment, encode, compute the method's loss terms, update the weights. Does not depend on the method.

    Everything it needs is on the device and is changed in place: the next images, the progress, the learning rate. A
    step therefore takes no arguments, and a CUDA graph of it can be replayed. It copies nothing to the host.

    labels: for each image of the set the position of its class in the order of arrival; -1 for classes not seen yet.
    old: the frozen model that the task must stay compatible with, or None.
    source: gives the pixels of each batch.
    batches: steps of an epoch x batch size; rows of the set, those from the buffer first.
    replayed: how many images of each batch are from the buffer.
    done: steps of the task done so far.
    kept: features that past models gave the buffered images, if the method reads them.
    compiled: turns a network into the function that is called instead of it.
    old_stream: the stream of the old model; None: the old model runs before the new one, on the same stream.
    own_augment: the user's own augmentation (pixels, generator) -> pixels, instead of that of the options.
    own_optimizer: whether the optimiser is the user's own. Like an own augmentation, it may do what a CUDA graph cannot
        capture.
    """

    encoder: Encoder
    preprocess: Input
    method: Method
    old: nn.Module | None
    optimizer: torch.optim.Optimizer
    images: Images
    source: BatchSource
    labels: Tensor
    options: FitOptions
    generator: torch.Generator
    loss_sums: "LossSums"
    batches: Tensor
    replayed: int
    done: Tensor
    kept: KeptFeatures | None = None
    compiled: Callable[[nn.Module], Callable[[Tensor], Tensor]] = lambda network: network
    old_stream: "OldModelStream | None" = None
    own_augment: Augment | None = None
    own_optimizer: bool = False

    def __post_init__(self) -> None:
        self._new = self.compiled(self.encoder)
        self._old = None if self.old is None else self.compiled(self.old)

    def __call__(self) -> None:
        """One step on the next batch of the epoch."""
        per_epoch = len(self.batches)
        # Not batches[position]: an index without dimensions would be copied to the host.
        indices = self.batches.index_select(0, self.done.remainder(per_epoch).view(1)).squeeze(0)
        progress = Progress(
            fraction=self.done / (per_epoch * self.options.epochs),
            epoch=self.done.div(per_epoch, rounding_mode="floor"),
            epochs=self.options.epochs,
        )
        batch = Batch(self.labels[indices], self.replayed)
        with self._autocast():
            x = self._view(indices)
            with self.old_stream.joined() if self.old_stream else nullcontext():
                with self.old_stream.beside() if self.old_stream else nullcontext():
                    z_old = self._old_features(x, indices)
                z = self._new(x)
                z_view = self._new(self._view(indices)) if self.method.reads_view else None
                z_kept = None if self.kept is None else self.kept[indices[: self.replayed]]
            terms = self.method.loss(z, batch, z_old=z_old, z_view=z_view, z_kept=z_kept, progress=progress)
        self.optimizer.zero_grad(set_to_none=True)
        values = torch.stack(list(terms.values()))
        values.sum().backward()
        self.optimizer.step()
        self.loss_sums.add(dict(zip(terms, values.detach())), self.done)
        self.done += 1

    def _autocast(self) -> torch.autocast:
        """Autocast without its cache of cast weights: the process has one cache, which other threads empty.

        If a network is called twice, the cache decides whether the two gradients are added in bf16 or in float32.
        """
        enabled = self.options.precision == "bf16"
        return torch.autocast(self.images.device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)

    def _view(self, indices: Tensor) -> Tensor:
        options = self.options
        if self.own_augment is not None:
            return self._augmented_by_user(self.own_augment, self.source.batch(indices, self.done))
        pixels = augment(
            self.source.batch(indices, self.done),
            crop_padding=options.crop_padding,
            flip=options.flip,
            generator=self.generator,
            resized_crop=options.resized_crop,
            crop_scale=options.crop_scale,
            crop_ratio=options.crop_ratio,
        )
        return self.preprocess.normalise(pixels)

    def _augmented_by_user(self, own_augment: Augment, images: Tensor) -> Tensor:
        pixels = own_augment(images, self.generator)
        expected = (len(images), self.preprocess.channels, *self.preprocess.height_width)
        if not isinstance(pixels, Tensor) or pixels.dtype != images.dtype or pixels.shape != expected:
            found = f"{pixels.dtype} of {tuple(pixels.shape)}" if isinstance(pixels, Tensor) else type(pixels).__name__
            raise HoldfastError(f"augment: it must return {images.dtype} of {expected}, and returned {found}")
        return self.preprocess.normalise(pixels)

    def _old_features(self, x: Tensor, indices: Tensor) -> Tensor | None:
        if self._old is None or self.method.old_features == "none":
            return None
        if self.method.old_features == "replayed" and not self.replayed:
            return None  # no buffer, so no replayed image
        read = indices if getattr(self.old, "reads_rows", False) else x
        with torch.no_grad():
            return self._old(read if self.method.old_features == "all" else read[: self.replayed])


class LossSums:
    """Sums of each loss term over an epoch, and the first step with a loss that was not finite.

    The sums stay on the device and are changed in place, so that a captured step can add to them. Reading them waits
    for the device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.names: list[str] = []
        self.sums = torch.zeros(0, device=device, dtype=torch.float64)
        self.first_bad_step = torch.full((), math.inf, device=device, dtype=torch.float64)

    def add(self, terms: dict[str, Tensor], step: Tensor) -> None:
        """Add the terms of one step; ``step`` is its number in the task, a tensor without dimensions."""
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
        """Raise if a loss was NaN or infinite; the error names the epoch and step."""
        step = float(self.first_bad_step)
        if math.isfinite(step):
            epoch, within = divmod(int(step), steps_per_epoch)
            raise DivergedError(
                f"the loss became NaN or infinite in task {task}, epoch {epoch + 1}, step {within + 1}; "
                "the last good checkpoint is kept; try a lower lr"
            )

    def restore(self, names: list[str], sums: Tensor) -> None:
        self.names = names
        self.sums = sums.to(self._device)


class OldModelStream:
    """A second CUDA stream for the old model's features, which a step needs only after the new model's.

    A step of a small network is a chain of short kernels that leaves most of a GPU idle. In a captured graph the block
    ``beside`` becomes a branch, which ends where the block ``joined`` ends.
    """

    def __init__(self, held: SideStream) -> None:
        self._held = held  # keeps the stream alive after the thread that made it has ended
        self._stream = held.stream

    @contextmanager
    def beside(self) -> Iterator[None]:
        """A block that runs after all work before it, and at the same time as the work after it."""
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            yield

    @contextmanager
    def joined(self) -> Iterator[None]:
        """A block after which the work of ``beside`` is done; memory freed from then on can be used by both streams.

        The streams are joined also after an exception: a graph cannot end with an open branch, and memory freed by the
        exception must not be written again while the other stream still reads it.
        """
        try:
            yield
        except BaseException:
            with suppress(RuntimeError):  # the graph is invalid; the first error says why
                self._join()
            raise
        self._join()

    def _join(self) -> None:
        torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)


class _Streams(threading.local):
    def __init__(self) -> None:
        self.known: dict[torch.device, SideStream] = {}


_streams = _Streams()


def old_model_stream(device: torch.device) -> OldModelStream:
    """The second stream of this thread. Threads must not share one: the workspace of matrix products is per stream.

    Memory freed on it is used again on it, after the work of the stream that is current then. Steps of one thread that
    run on different streams must therefore have finished before the next ones begin.
    """
    if device not in _streams.known:
        _streams.known[device] = SideStream(device)
    return OldModelStream(_streams.known[device])

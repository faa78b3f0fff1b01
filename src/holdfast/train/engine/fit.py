"""The training loop of one task."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader, Dataset

from holdfast.core.errors import HoldfastError
from holdfast.train.data import ImageSet
from holdfast.train.data.device_images import Images, place_images
from holdfast.train.data.readers.torch_dataset import read_dataset
from holdfast.train.data.sampler import EpochBatches, batch_shares, epoch_batches, steps_per_epoch
from holdfast.train.encoders import Encoder, Input, VectorInput
from holdfast.train.engine.checkpoint import CheckpointFile, TrainingState
from holdfast.train.engine.control import Cancellation, Cancelled
from holdfast.train.engine.executors import chosen_executor, make_executor
from holdfast.train.engine.feature_phase import train_on_features
from holdfast.train.engine.first_layer import begin_layer
from holdfast.train.engine.fit_options import FitOptions, refuse_augmentation
from holdfast.train.engine.kept_features import KeptFeatures
from holdfast.train.engine.model_slots import record_slots, refuse_other_turns
from holdfast.train.engine.schedule import (
    MakeOptimizer,
    MakeScheduler,
    RateSchedule,
    make_optimizer,
    own_optimizer,
    parameter_groups,
)
from holdfast.train.engine.step import Augment, LossSums, TrainingStep
from holdfast.train.engine.survey import TaskFeatures
from holdfast.train.events import EpochEnded, OnEvent, StepsDone, TaskBegan, ignore_event
from holdfast.train.methods import Method
from holdfast.train.randomness import GENERATOR_LOCK, derived_seed
from holdfast.train.scenarios import Task

PULSE_SECONDS = 0.25
"""Least time between two ``StepsDone`` events."""


def fit(
    encoder: Encoder,
    method: Method,
    task: Task,
    images: ImageSet | Dataset[Any] | DataLoader[Any] | Images,
    *,
    old: nn.Module | None = None,
    kept: KeptFeatures | None = None,
    options: FitOptions | None = None,
    optimizer: MakeOptimizer | None = None,
    scheduler: MakeScheduler | None = None,
    augment: Augment | None = None,
    on_event: OnEvent = ignore_event,
    cancel: Cancellation | None = None,
    checkpoint: CheckpointFile | None = None,
) -> None:
    """Train ``encoder`` and ``method`` on one task, in place.

    encoder: the model to train. It needs a ``preprocess``.
    method: the method, with the state that the task before left in it.
    task: classes, image indices and slots of the task.
    images: the training set that the task's indices point into. Training runs on its device; for an ``ImageSet``, on
        the encoder's device. A torch ``Dataset`` of (image, label) is read once per call (``read_dataset``); for
        several tasks, read it before and pass the result. Of a ``DataLoader`` the dataset is read, with the loader's
        worker processes. ``fit`` draws the batches itself, because half of them are replayed images, so the loader's
        sampler and collate function are not used; its batch size is used if ``options`` is not given.
    old: the model that the task must stay compatible with, for methods that read it. It is frozen and put in eval mode.
        One with an attribute ``reads_rows`` that is true gets row numbers of the training set instead of images.
        Default: none.
    kept: features that past models gave the buffered images, for methods that read them. Default: none.
    options: epochs, optimiser, augmentation and so on. Default: ``FitOptions()``.
    optimizer: a function that makes your own optimiser: parameter groups -> ``torch.optim.Optimizer``, such as
        ``lambda groups: torch.optim.RAdam(groups, lr=1e-3)``. Its rates are those at the start: the schedule of
        ``options`` (or ``scheduler``) changes them, and ``options.lr_groups`` multiplies them. The groups hold the
        weight decay of ``options``. Default: the optimiser of ``options``.
    scheduler: a function optimiser -> scheduler of ``torch.optim.lr_scheduler``, instead of the schedule and warm-up of
        ``options``. Its ``step`` is called after every training step, not after every epoch.
    augment: a function (pixels, generator) -> pixels, instead of the crops and flips of ``options``. Pixels are uint8
        B x C x H x W on the device (float32 B x D x 1 x 1 for vectors), and the result has the size of the encoder's
        preprocess. Draw random numbers from ``generator``: a resumed training then gives the same weights.
        With an own ``optimizer`` or ``augment`` the executor "auto" is "eager".
    on_event: called with each progress event (holdfast.train.events): ``TaskBegan``, ``EpochEnded`` with the mean of
        each loss term, and ``StepsDone`` a few times a second.
    cancel: a token that stops training between two steps; ``fit`` then saves ``checkpoint`` and raises ``Cancelled``.
    checkpoint: file for the state in the middle of the task. If it holds a state of this task, training resumes there.
        It is not deleted at the end: call ``checkpoint.clear()`` when the model is saved.

    Afterwards ``encoder.info["slots"]`` holds the simplex slot of each class and is saved with the encoder. Methods
    without a simplex remove that entry.
    Seeds torch's global generator from (options.seed, task.number). The same call gives the same weights on a CPU.

    >>> from holdfast import METHODS, Encoder, FitOptions, Preprocess, build_backbone, cl2r, fit, load_split
    >>> images = load_split("glyphs", "train", train_classes=4, test_classes=1, per_class_train=4, size=16)
    >>> preprocess = Preprocess(16, mean=(0.5,), std=(0.25,), colour="grey")
    >>> method = METHODS["simplex_hoc"](slots=10)
    >>> encoder = Encoder(build_backbone("small", width=4), 9, preprocess=preprocess)
    >>> task = cl2r(images.labels, images.class_names, num_slots=10, initial=4, tasks=1).tasks[0]
    >>> fit(encoder, method, task, images, options=FitOptions(epochs=1, batch_size=8, crop_padding=0))
    >>> encoder.info["slots"]["num_slots"]
    10
    """
    if isinstance(images, DataLoader):
        options = options or FitOptions(batch_size=images.batch_size or FitOptions().batch_size)
    options = options or FitOptions()
    cancel = cancel or Cancellation()
    step, state = prepare_step(encoder, method, task, images, old=old, kept=kept, options=options)
    if augment is None:
        _refuse_other_size(step)
    step.own_augment = augment
    if optimizer is not None:
        groups = parameter_groups(encoder, method, options)
        step.optimizer = state.optimizer = own_optimizer(optimizer, groups, options)
        step.own_optimizer = True
    per_epoch = len(step.batches)
    training = {"seed": options.seed, "number of steps": per_epoch * options.epochs, "batch_size": options.batch_size}
    done = checkpoint.restore(state, task=task.number, training=training) if checkpoint else 0
    step.done.fill_(done)
    rates = RateSchedule(step.optimizer, options, per_epoch, done, scheduler)
    executor = chosen_executor(options.executor, step)
    run_step = make_executor(executor, step)
    run_step = step.source.prefetched(run_step, _coming_rows(task, options, done), done)

    def save() -> None:
        if checkpoint:
            state.refuse_if_bad(task.number, per_epoch)
            checkpoint.save(state, task=task.number, step=done, training=training)

    def stop_if_cancelled() -> None:
        if cancel.requested:
            save()
            raise Cancelled

    on_event(TaskBegan(task.number, done, per_epoch * options.epochs, task.num_seen, executor))
    saved_at = pulsed_at = time.monotonic()
    with cancel.watching(), threads_of_step(step):
        for epoch in range(done // per_epoch, options.epochs):
            started = time.monotonic()
            step.batches.copy_(_batches(task, options, epoch).indices)
            for _ in range(done - epoch * per_epoch, per_epoch):
                rates.before_step(done)
                run_step()
                rates.after_step()
                done += 1
                now = time.monotonic()
                if done % per_epoch == 0:
                    state.loss_sums.refuse_if_bad(task.number, per_epoch)  # waits for the device; take the time after
                    seconds = round(time.monotonic() - started, 4)
                    means = state.loss_sums.means(per_epoch)
                    state.loss_sums.reset()
                    on_event(EpochEnded(task.number, epoch + 1, done, rates.rate, sum(means.values()), means, seconds))
                elif now - pulsed_at > PULSE_SECONDS:
                    on_event(StepsDone(task.number, done))
                    pulsed_at = now
                stop_if_cancelled()
                if now - saved_at > 60 * options.checkpoint_minutes:
                    save()
                    saved_at = time.monotonic()
    stop_if_cancelled()  # a request in the last moments of the block above
    state.refuse_if_bad(task.number, per_epoch)
    survey = task_survey(step, task)
    train_on_features(method, survey, seed=derived_seed(options.seed, task.number, "features"), task=task.number)
    method.finish(task, survey)
    record_slots(encoder, task.registry, method)


SMALL_STEP = 2**28
"""Multiply-adds of one forward pass below which a step on vectors runs on one thread."""


@contextmanager
def threads_of_step(step: TrainingStep) -> Iterator[None]:
    """Run steps on vectors on one CPU thread inside the block if they are small.

    A small step is a chain of short operations, and several threads wait for each other after every one. While other
    programs use the cores, that wait is longer than the work: 50 ms instead of 4 ms per step, for an ``mlp`` on batches
    of 32 vectors, two threads and two busy cores. Networks for images have more work per operation and keep all
    threads. The rule depends on sizes alone, so the same call gives the same weights.
    """
    threads = torch.get_num_threads()
    if threads == 1 or not _is_small(step):
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _is_small(step: TrainingStep) -> bool:
    if step.images.device.type != "cpu" or not step.preprocess.takes_vectors:
        return False
    # A network for vectors uses each weight once per vector.
    weights = sum(parameter.numel() for parameter in step.encoder.parameters())
    return weights * step.batches.shape[1] <= SMALL_STEP


def prepare_step(
    encoder: Encoder,
    method: Method,
    task: Task,
    images: ImageSet | Dataset[Any] | DataLoader[Any] | Images,
    *,
    old: nn.Module | None,
    kept: KeptFeatures | None = None,
    options: FitOptions,
) -> tuple[TrainingStep, TrainingState]:
    """Seed, begin the task and put everything its steps need on the device; nothing is trained yet.

    The parameters are those of ``fit``.
    """
    if encoder.preprocess is None:
        raise HoldfastError("the encoder has no preprocess; pass one to Encoder(..., preprocess=...)")
    if old is None and task.reference != "none" and method.old_features != "none":
        raise HoldfastError(f"task {task.number} needs the {task.reference} model; pass it as old")
    if kept is None and method.reads_kept and task.reference == "previous" and len(task.buffer_indices):
        raise HoldfastError(
            f"task {task.number} needs the features that past models gave the buffered images; "
            "pass them as kept (holdfast.train.engine.KeptFeatures)"
        )
    if isinstance(encoder.preprocess, VectorInput):
        refuse_augmentation(vars(options))
    if isinstance(images, Dataset | DataLoader):
        images = read_dataset(images)
    if isinstance(images, ImageSet):
        images = place_images(images, next(encoder.parameters()).device, options.images)
    if not hasattr(images, "batch_source"):
        raise HoldfastError(
            f"images must be an ImageSet, a torch Dataset or a DataLoader, got {type(images).__name__}; "
            "holdfast.read_dataset reads pairs of (image, label)"
        )
    if isinstance(old, Encoder) and old.dim != encoder.dim and method.old_features != "none":
        raise HoldfastError(
            f"an old model with features of {old.dim} numbers, but the model in training gives {encoder.dim}"
        )
    refuse_other_turns(task, method, {"the network to train": encoder, "the old model": old})
    device = images.device
    with GENERATOR_LOCK:
        torch.manual_seed(derived_seed(options.seed, task.number, "weights"))
        method.begin(task, encoder.dim)
    for network in (encoder, old):
        if network is not None:
            network.to(device)
            if device.type == "cuda":
                use_channels_last(network, encoder.preprocess, device)
    encoder.train()
    method.to(device).train()
    if old is not None:
        old.eval().requires_grad_(False)
    generator = torch.Generator(device).manual_seed(derived_seed(options.seed, task.number, "augment"))
    replayed, fresh = batch_shares(len(task.new_indices), len(task.buffer_indices), options.batch_size, options.draw)
    step = TrainingStep(
        encoder=encoder,
        preprocess=encoder.preprocess,
        method=method,
        old=old,
        optimizer=make_optimizer(parameter_groups(encoder, method, options), options, device),
        images=images,
        source=images.batch_source(replayed + fresh),
        labels=arrival_labels(task, images),
        options=options,
        generator=generator,
        loss_sums=LossSums(device),
        batches=_batches(task, options, 0).indices.to(device),
        replayed=replayed,
        done=torch.tensor(0, device=device),
        kept=kept if method.reads_kept else None,
    )
    _refuse_single_images(step)
    survey = task_survey(step, task)
    begin_layer(encoder, survey)
    method.prepare(task, survey)
    return step, TrainingState(encoder, method, step.optimizer, generator, step.loss_sums)


def _refuse_other_size(step: TrainingStep) -> None:
    """Refuse images that the network would be trained on at another size than it encodes."""
    crop = step.options.resized_crop
    trained, encoded = (crop, crop) if crop else step.images.height_width, step.preprocess.height_width
    if trained != encoded:
        raise HoldfastError(
            f"training would use pixels of {trained[0]} x {trained[1]} and the encoder's preprocess makes {encoded[0]} "
            f"x {encoded[1]}; scale the images, or set resized_crop"
        )


def use_channels_last(network: nn.Module, inputs: Input, device: torch.device) -> None:
    """Store weights channels-last: convolutions are faster on a GPU then.

    The features of a convolution are channels-last, too, and the code of a network may not allow that, for example if
    it uses ``view``. Such a network stays as it is.
    """
    if isinstance(inputs, VectorInput) or not any(weight.ndim == 4 for weight in network.parameters()):
        return
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    training = network.training
    try:
        with torch.no_grad():
            network.eval()(torch.zeros(1, inputs.channels, *inputs.height_width, device=device))
    except RuntimeError:
        network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    network.train(training)


def _refuse_single_images(step: TrainingStep) -> None:
    """Refuse batches of one image for a network with batch normalisation, which needs two."""
    normalised = any(isinstance(one, _BatchNorm) and one.training for one in step.encoder.modules())
    if step.batches.shape[1] == 1 and normalised:
        raise HoldfastError(
            "each batch would have one image, and batch normalisation needs two; give more images, or keep a buffer"
        )


def task_survey(step: TrainingStep, task: Task) -> TaskFeatures:
    """Gives the method features of all images of the task under the step's networks."""
    flips = step.options.flip
    return TaskFeatures(step.encoder, step.preprocess, step.old, step.images, step.labels, task, flips=flips)


def _batches(task: Task, options: FitOptions, epoch: int) -> EpochBatches:
    return epoch_batches(
        task.new_indices,
        task.buffer_indices,
        options.batch_size,
        seed=options.seed,
        task=task.number,
        epoch=epoch,
        draw=options.draw,
    )


def _coming_rows(task: Task, options: FitOptions, done: int) -> Iterator[np.ndarray]:
    """For each step after ``done`` steps, the rows of the training set that it reads."""
    per_epoch = steps_per_epoch(len(task.new_indices), len(task.buffer_indices), options.batch_size)
    for epoch in range(done // per_epoch, options.epochs):
        indices = _batches(task, options, epoch).indices
        yield from indices[max(0, done - epoch * per_epoch) :].numpy()


def arrival_labels(task: Task, images: Images) -> Tensor:
    """For each image of the set the position of its class in ``task.seen_classes``; -1 for classes not seen yet."""
    labels = max(int(images.labels.max()), max(task.seen_classes)) + 1  # a seen class may have no image here
    position = torch.full((labels,), -1, dtype=torch.long)
    position[list(task.seen_classes)] = torch.arange(task.num_seen)
    return position.to(images.device)[images.labels]

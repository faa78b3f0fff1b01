"""The one training loop."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from holdfast.data import ImageSet
from holdfast.data.device_images import DeviceImages, StreamedImages, place
from holdfast.data.readers.torch_dataset import read_dataset
from holdfast.data.sampler import EpochBatches, epoch_batches, steps_per_epoch
from holdfast.encoders import Encoder, VectorInput
from holdfast.errors import HoldfastError
from holdfast.methods import Method
from holdfast.randomness import GLOBAL_GENERATOR, derived_seed
from holdfast.scenarios import Task
from holdfast.training.checkpoint import CheckpointFile, TrainingState
from holdfast.training.executors import chosen_executor, make_executor
from holdfast.training.feature_phase import train_on_features
from holdfast.training.kept_features import KeptFeatures
from holdfast.training.options import FitOptions, refuse_augmentation
from holdfast.training.ranks import ALONE, Ranks, Share, share_of, synchronise_batch_norm
from holdfast.training.schedule import learning_rate, make_optimizer, parameter_groups, set_rate
from holdfast.training.slots import record_slots
from holdfast.training.step import Tally, TrainingStep
from holdfast.training.survey import ImageSurvey, StoredReference

Log = Callable[[dict[str, Any]], None]
PULSE_SECONDS = 0.25


def fit(
    encoder: Encoder,
    method: Method,
    task: Task,
    images: ImageSet | Dataset[Any] | DeviceImages | StreamedImages,
    *,
    old: nn.Module | None = None,
    kept: KeptFeatures | None = None,
    options: FitOptions | None = None,
    log: Log = lambda event: None,
    checkpoint: CheckpointFile | None = None,
    ranks: Ranks = ALONE,
) -> None:
    """Train ``encoder`` and ``method`` on one task, in place.

    images: the training set that the task's indices point into; the training runs on the device where they are, and for
    an ``ImageSet`` on that of the encoder. A torch ``Dataset`` of (image, label) is read once (``read_dataset``); over
    several tasks, read it yourself and pass what comes back.
    old: the model the task is held to (the previous one, or one brought in), read by methods that ask for it; it is
    frozen and put in eval mode. Or a ``StoredReference``: the vectors that are left of it.
    kept: what past models gave the buffered images, read by methods that ask for it.
    log: called with plain dicts: "begin", "epoch" with the mean of each loss term, and a "pulse" some times a second.
    checkpoint: where the middle of the task is kept; if it holds some of this task, training goes on from there. A
    KeyboardInterrupt out of ``log`` is kept there too before it is passed on.
    ranks: the processes that do this together, each with its part of every batch; all end with the same model.
    Afterwards ``encoder.info["slots"]`` says which slot of the simplex each class has, and is saved with the encoder;
    methods without a simplex leave no such record.
    Seeds torch's global generator from (options.seed, task.number); the same call gives the same weights on a CPU.
    """
    options = options or FitOptions()
    step, state = prepare_step(encoder, method, task, images, old=old, kept=kept, options=options, ranks=ranks)
    done = checkpoint.restore(state, task=task.number) if checkpoint else 0
    step.done.fill_(done)
    per_epoch = len(step.batches)
    total = per_epoch * options.epochs
    executor = chosen_executor(ranks.executor(options.executor), step)
    run_step = make_executor(executor, step)
    run_step = step.source.fed(run_step, _coming_rows(task, options, step.share, done), done)
    begun = {"task": task.number, "step": done, "steps": total, "classes": task.num_seen, "executor": executor}
    log({"event": "begin", **begun})
    saved_at = pulsed_at = time.monotonic()

    def save() -> None:
        if checkpoint and ranks.first:
            state.refuse_if_bad(task.number, per_epoch)
            checkpoint.save(state, task=task.number, step=done)

    for epoch in range(done // per_epoch, options.epochs):
        started = time.monotonic()
        rate = learning_rate(options, epoch)
        set_rate(step.optimizer, rate)
        step.batches.copy_(_batches(task, options, epoch).indices)
        for _ in range(done - epoch * per_epoch, per_epoch):
            run_step()
            done += 1
            event = None
            now = time.monotonic()
            if done % per_epoch == 0:
                state.tally.refuse_if_bad(task.number, per_epoch)  # waits for the device, so the time is taken after
                seconds = time.monotonic() - started
                event = _epoch_event(task.number, epoch, done, rate, state.tally.means(per_epoch), seconds)
                state.tally.reset()
            elif now - pulsed_at > PULSE_SECONDS:
                event = {"event": "pulse", "task": task.number, "step": done}
                pulsed_at = now
            if event is not None:
                try:
                    log(event)
                except KeyboardInterrupt:  # between two steps, so that the next sitting can go on from here
                    save()
                    raise
            if now - saved_at > 60 * options.checkpoint_minutes:
                save()
                saved_at = time.monotonic()
    state.refuse_if_bad(task.number, per_epoch)
    ranks.align(encoder, method)  # unless batch norm is synchronised, each rank has statistics of its own
    survey = survey_of(step, task)
    train_on_features(method, survey, seed=derived_seed(options.seed, task.number, "features"), task=task.number)
    method.finish(task, survey)
    ranks.align(method)
    record_slots(encoder, task.registry, method.num_slots)


def _epoch_event(
    task: int, epoch: int, done: int, rate: float, means: dict[str, float], seconds: float
) -> dict[str, Any]:
    return {
        "event": "epoch",
        "task": task,
        "epoch": epoch + 1,
        "step": done,
        "lr": rate,
        "loss": sum(means.values()),
        "terms": means,
        "seconds": round(seconds, 4),
    }


def prepare_step(
    encoder: Encoder,
    method: Method,
    task: Task,
    images: ImageSet | Dataset[Any] | DeviceImages | StreamedImages,
    *,
    old: nn.Module | None,
    kept: KeptFeatures | None = None,
    options: FitOptions,
    ranks: Ranks = ALONE,
) -> tuple[TrainingStep, TrainingState]:
    """Seed, begin the task and lay out all that its steps need on the device; nothing is trained yet."""
    if encoder.preprocess is None:
        raise HoldfastError("the encoder has no preprocess; give it one, so that it knows what to do with images")
    if old is None and task.reference != "none" and method.old_features != "none":
        raise HoldfastError(f"task {task.number} is to be held to the {task.reference} model; pass it as old")
    if kept is None and method.reads_kept and task.reference == "previous" and len(task.buffer_indices):
        raise HoldfastError(
            f"task {task.number} reads what past models gave the buffered images; pass it as kept (engine.KeptFeatures)"
        )
    if isinstance(encoder.preprocess, VectorInput):
        refuse_augmentation(vars(options))
    if isinstance(images, Dataset):
        images = read_dataset(images)
    if isinstance(images, ImageSet):
        images = place(images, next(encoder.parameters()).device, options.images)
    if isinstance(old, StoredReference):
        _refuse_unlike(old, len(images), encoder.dim)
    device = images.device
    with GLOBAL_GENERATOR:
        torch.manual_seed(derived_seed(options.seed, task.number, "weights"))
        method.begin(task, encoder.dim)
    for network in (encoder, old):
        if network is not None:
            network.to(device)
            if device.type == "cuda":
                network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if ranks.world > 1 and options.sync_bn:
        synchronise_batch_norm(encoder, device)
        if not options.gather:  # with the whole batch gathered, a method's own batch norm sees all of it anyway
            synchronise_batch_norm(method, device)
    encoder.train()
    method.to(device).train()
    if old is not None:
        old.eval().requires_grad_(False)
    generator = torch.Generator(device).manual_seed(derived_seed(options.seed, task.number, "augment"))
    share = share_of(task, options, ranks, device)
    batches = _batches(task, options, 0).indices.to(device)
    step = TrainingStep(
        encoder=encoder,
        preprocess=encoder.preprocess,
        method=method,
        old=old,
        optimizer=make_optimizer(parameter_groups(encoder, method, options), options, device),
        images=images,
        source=images.source(share.size),
        labels=arrival_labels(task, images),
        options=options,
        generator=generator,
        tally=Tally(device),
        batches=batches,
        share=share,
        done=torch.tensor(0, device=device),
        kept=kept if method.reads_kept else None,
    )
    method.prepare(task, survey_of(step, task))
    ranks.align(encoder, method)
    return step, TrainingState(encoder, method, step.optimizer, generator, step.tally)


def _refuse_unlike(old: StoredReference, images: int, dim: int) -> None:
    if len(old.table) != images:
        raise HoldfastError(f"{len(old.table)} stored vectors for {images} training images; one for each is needed")
    if old.dim != dim:
        raise HoldfastError(f"stored vectors of {old.dim} numbers, but the model in training gives {dim}")


def survey_of(step: TrainingStep, task: Task) -> ImageSurvey:
    """A look at the task's data through the step's networks."""
    return ImageSurvey(step.encoder, step.preprocess, step.old, step.images, step.labels, task, flips=step.options.flip)


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


def _coming_rows(task: Task, options: FitOptions, share: Share, done: int) -> Iterator[np.ndarray]:
    """For each step from ``done`` on, the rows of the set that this process reads."""
    per_epoch = steps_per_epoch(len(task.new_indices), len(task.buffer_indices), options.batch_size)
    for epoch in range(done // per_epoch, options.epochs):
        indices = share.own(_batches(task, options, epoch).indices)
        yield from indices[max(0, done - epoch * per_epoch) :].numpy()


def arrival_labels(task: Task, images: DeviceImages | StreamedImages) -> Tensor:
    """For each image of the set its class in order of arrival; classes not seen yet come out as -1."""
    position = torch.full((int(images.labels.max()) + 1,), -1, dtype=torch.long)
    position[list(task.seen_classes)] = torch.arange(task.num_seen)
    return position.to(images.device)[images.labels]

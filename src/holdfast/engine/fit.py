"""The one training loop."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.backbones import Encoder
from holdfast.data import ImageSet
from holdfast.data.device import DeviceImages
from holdfast.data.sampler import epoch_batches, steps_per_epoch
from holdfast.engine.checkpoint import CheckpointFile, TrainingState
from holdfast.engine.feature_phase import train_on_features
from holdfast.engine.options import FitOptions
from holdfast.engine.schedule import learning_rate, make_optimizer
from holdfast.engine.step import TrainingStep
from holdfast.engine.survey import ImageSurvey
from holdfast.engine.tally import Tally
from holdfast.errors import HoldfastError
from holdfast.methods import Method, Progress
from holdfast.scenarios import Task

Log = Callable[[dict[str, Any]], None]
PULSE_SECONDS = 0.25


def fit(
    encoder: Encoder,
    method: Method,
    task: Task,
    images: ImageSet | DeviceImages,
    *,
    old: nn.Module | None = None,
    options: FitOptions | None = None,
    log: Log = lambda event: None,
    checkpoint: CheckpointFile | None = None,
) -> None:
    """Train ``encoder`` and ``method`` on one task, in place.

    images: the training set that the task's indices point into; the training runs on the device where they are, and for
    an ``ImageSet`` on that of the encoder.
    old: the previous model, read by methods that ask for it; it is frozen and put in eval mode.
    log: called with plain dicts: "begin", "epoch" with the mean of each loss term, and a "pulse" some times a second.
    checkpoint: where the middle of the task is kept; if it holds some of this task, training goes on from there.
    Seeds torch's global generator from (options.seed, task.number); the same call gives the same weights on a CPU.
    """
    options = options or FitOptions()
    if encoder.preprocess is None:
        raise HoldfastError("the encoder has no preprocess; give it one, so that it knows what to do with images")
    if old is None and task.reference == "previous" and method.old_features != "none":
        raise HoldfastError(f"task {task.number} is to be held to the previous model; pass it as old")
    if isinstance(images, ImageSet):
        images = DeviceImages(images, next(encoder.parameters()).device)
    device = images.device
    torch.manual_seed(derived_seed(options.seed, task.number, "weights"))
    encoder.to(device).train()
    method.begin(task, encoder.dim)
    method.to(device).train()
    if old is not None:
        old.to(device).eval().requires_grad_(False)
    labels = arrival_labels(task, images)
    survey = ImageSurvey(encoder, encoder.preprocess, old, images, labels, task, mirrored=options.flip)
    method.prepare(task, survey)
    optimizer = make_optimizer([*encoder.parameters(), *method.parameters()], options)
    generator = torch.Generator(device).manual_seed(derived_seed(options.seed, task.number, "augment"))
    step = TrainingStep(encoder, encoder.preprocess, method, old, optimizer, images, labels, options, generator)
    state = TrainingState(encoder, method, optimizer, generator, Tally(device))

    per_epoch = steps_per_epoch(len(task.new_indices), len(task.buffer_indices), options.batch_size)
    total = per_epoch * options.epochs
    progress = Progress(torch.zeros((), device=device), torch.zeros((), device=device), options.epochs)
    done = checkpoint.restore(state, task=task.number) if checkpoint else 0
    log({"event": "begin", "task": task.number, "step": done, "steps": total, "classes": task.num_seen})
    saved_at = pulsed_at = time.monotonic()

    for epoch in range(done // per_epoch, options.epochs):
        started = time.monotonic()
        rate = learning_rate(options, epoch)
        for group in optimizer.param_groups:
            group["lr"] = rate
        progress.epoch.fill_(epoch)
        batches = epoch_batches(
            task.new_indices,
            task.buffer_indices,
            options.batch_size,
            seed=options.seed,
            task=task.number,
            epoch=epoch,
            draw=options.draw,
        )
        indices = batches.indices.to(device)
        for position in range(done - epoch * per_epoch, per_epoch):
            progress.fraction.fill_(done / total)
            state.tally.add(step(indices[position], batches.replayed, progress), done)
            done += 1
            now = time.monotonic()
            if position + 1 == per_epoch:
                state.tally.refuse_if_bad(task.number, per_epoch)
                means = state.tally.means()
                log(
                    {
                        "event": "epoch",
                        "task": task.number,
                        "epoch": epoch + 1,
                        "step": done,
                        "lr": rate,
                        "loss": sum(means.values()),
                        "terms": means,
                        "seconds": round(time.monotonic() - started, 4),
                    }
                )
                state.tally.reset()
            elif now - pulsed_at > PULSE_SECONDS:
                log({"event": "pulse", "task": task.number, "step": done})
                pulsed_at = now
            if checkpoint and now - saved_at > 60 * options.checkpoint_minutes:
                state.refuse_if_bad(task.number, per_epoch)
                checkpoint.save(state, task=task.number, step=done)
                saved_at = time.monotonic()
    state.refuse_if_bad(task.number, per_epoch)
    train_on_features(method, survey, seed=derived_seed(options.seed, task.number, "features"), task=task.number)
    method.finish(task, survey)


def arrival_labels(task: Task, images: DeviceImages) -> Tensor:
    """For each image of the set its class in order of arrival; classes not seen yet come out as -1."""
    position = torch.full((int(images.labels.max()) + 1,), -1, dtype=torch.long)
    position[list(task.seen_classes)] = torch.arange(task.num_seen)
    return position.to(images.device)[images.labels]


def derived_seed(seed: int, task: int, purpose: str) -> int:
    """A seed of its own for each purpose in each task, so that one stream never shifts another."""
    return int(np.random.SeedSequence([seed, task, *purpose.encode()]).generate_state(1)[0])

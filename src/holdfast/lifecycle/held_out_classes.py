"""Accuracy on classes that a head was not trained on, by trials, each without a fifth of the classes.

A head can gain on the classes it learns and lose on all others. Held-out samples of known classes do not show that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from holdfast.data import ImageSet
from holdfast.data.device_images import place_images
from holdfast.data.openset import half_of_each_class
from holdfast.data.sampler import steps_per_epoch
from holdfast.encoders import Encoder
from holdfast.events import Event, TaskEvent
from holdfast.lifecycle.first_accuracy import LabelledSamples, accuracy_record, neighbour_search, sampled
from holdfast.lifecycle.plan import Plan
from holdfast.lifecycle.settings import VersionSettings
from holdfast.randomness import derived_seed
from holdfast.scenarios import SlotRegistry, Task, next_task
from holdfast.training import RunControl, TaskInputs, train_task
from holdfast.wording import counted

PARTS = 5
ENOUGH_QUERIES = 1000
"""Then the difference of two accuracies is known to about one percentage point."""
FEWEST_CLASSES = 10
"""With fewer classes there is no trial: it would be measured on too few, or trained on too few."""


@dataclass(frozen=True, eq=False)
class ClassTrial:
    """A training without some of the classes.

    settings: how it is trained: as the version itself.
    images, task: the samples of the other classes.
    held_out: names of the classes that are left out.
    """

    settings: VersionSettings
    images: ImageSet
    task: Task
    held_out: tuple[str, ...]

    @property
    def steps(self) -> int:
        fit = self.settings.fit
        return fit.epochs * steps_per_epoch(len(self.task.new_indices), 0, fit.batch_size)


def plan_trials(plan: Plan, settings: VersionSettings) -> list[ClassTrial] | str:
    """The trials of a first version, or a sentence that says why there are none.

    Classes with at least two samples are divided into five parts at random, by the seed of the training. Each trial
    leaves out one part. There are as many trials as give ``ENOUGH_QUERIES``, at least one and at most five.
    """
    counts = np.bincount(plan.images.labels, minlength=len(plan.classes))
    usable = np.flatnonzero(counts >= 2)
    if len(usable) < FEWEST_CLASSES:
        return f"{counted(len(usable), 'class')} with two vectors or more, at least {FEWEST_CLASSES} are needed"
    draw = np.random.default_rng(derived_seed(settings.fit.seed, 0, "held-out classes"))
    trials: list[ClassTrial] = []
    queries = 0
    for held_out in np.array_split(draw.permutation(usable), PARTS):
        if queries < ENOUGH_QUERIES:
            trials.append(_without(plan, settings, np.sort(held_out)))
            queries += int((counts[held_out] // 2).sum())
    return trials


def _without(plan: Plan, settings: VersionSettings, held_out: np.ndarray) -> ClassTrial:
    """The trial that leaves out the classes with the labels ``held_out``."""
    labels = plan.images.labels
    trained = np.setdiff1d(np.arange(len(plan.classes)), held_out)
    rows = np.flatnonzero(np.isin(labels, trained))
    names = tuple(plan.classes[label] for label in trained)
    images = ImageSet(plan.images.images[rows], np.searchsorted(trained, labels[rows]), names, "")
    slots = settings.build_method().num_slots or len(names)
    registry = SlotRegistry(slots).take_left(names)
    task = next_task(1, names, 0, registry, new_indices=np.arange(len(rows)), buffer_indices=np.arange(0))
    return ClassTrial(settings, images, task, tuple(plan.classes[label] for label in held_out))


def describe_trials(trials: Sequence[ClassTrial]) -> str:
    """What the trials are for, as a sentence for the user."""
    which = "task 1 is a trial" if len(trials) == 1 else f"tasks 1 to {len(trials)} are trials, each"
    return (
        f"{which} without a fifth of the classes: how the model and the raw vectors compare on classes that are not "
        "trained on"
    )


def run_trials(
    trials: Sequence[ClassTrial],
    make_encoder: Callable[[], Encoder],
    samples: LabelledSamples,
    device: torch.device,
    control: RunControl,
) -> dict[str, Any]:
    """Train each trial and measure it on its held-out classes; one record as of ``neighbour_accuracy``.

    make_encoder: builds the network that training starts with.
    samples: all samples of all classes; of the held-out classes a random half of each are queries, the others the
        gallery.

    The trials report their progress as tasks 1, 2 and so on.
    """
    searches = []
    for number, trial in enumerate(trials, start=1):

        def on_event(event: Event, shown: int = number) -> None:
            control.on_event(replace(event, task=shown) if isinstance(event, TaskEvent) else event)

        encoder = make_encoder()
        images = place_images(trial.images, device, trial.settings.fit.images)
        inputs = TaskInputs(encoder, trial.settings.build_method(), trial.task, images)
        train_task(inputs, trial.settings.fit, control=replace(control, on_event=on_event))
        unseen = samples.rows(np.isin(samples.class_names, trial.held_out))
        _, codes = np.unique(unseen.class_names, return_inverse=True)
        queries = half_of_each_class(codes, "query", trial.settings.fit.seed)
        parts = sampled(unseen.rows(queries)), sampled(unseen.rows(~queries))
        searches.append(neighbour_search(encoder, *parts, device))
    return accuracy_record(searches)

"""The accuracy of a new version beside that without training: on trained classes, and in trials on other classes.

A query is right if its nearest neighbour by cosine is of its class. A head can gain on the classes it learns and lose
on all others, which held-out samples of trained classes do not show. So trials are trained without a fifth of the
classes each. ``holdfast.train.encoders.accuracy_record`` puts the numbers into words.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.checks.estimates import Estimate
from holdfast.core.wording import counted
from holdfast.metrics.intervals import Interval, gain_interval, mean_interval
from holdfast.train.data import ImageSet
from holdfast.train.data.device_images import place_images
from holdfast.train.data.openset import half_of_each_class
from holdfast.train.data.sampler import steps_per_epoch
from holdfast.train.encoders import Encoder, Input, extract
from holdfast.train.encoders.accuracy_record import KNOWN_CLASSES
from holdfast.train.engine import RunControl, TaskInputs, train_task
from holdfast.train.events import Event, TaskEvent
from holdfast.train.geometry import unit
from holdfast.train.randomness import derived_seed
from holdfast.train.scenarios import SlotRegistry, Task, next_task
from holdfast.train.versions.plan import Plan
from holdfast.train.versions.settings import VersionSettings
from holdfast.vectors import nearest

MOST = 5_000
"""Most queries and most stored samples; of more, an even random sample is measured."""
RAW_SIDE = 32
"""Larger images are averaged down to this side, in pixels, before their pixels are compared."""
PARTS = 5
"""Classes are divided into so many parts; each trial leaves one out."""
ENOUGH_QUERIES = 1000
"""Queries of all trials together: then the difference of two accuracies is known to about one percentage point."""
FEWEST_CLASSES = 10
"""With fewer classes there is no trial: it would be measured on too few, or trained on too few."""


@dataclass(frozen=True, eq=False)
class LabelledSamples:
    """What a reader read, and the class of each.

    pixels: uint8 N x H x W x C, or float32 N x 1 x 1 x D for vectors.
    class_names: N names.
    """

    pixels: np.ndarray
    class_names: np.ndarray

    def __len__(self) -> int:
        return len(self.class_names)

    def rows(self, which: np.ndarray) -> "LabelledSamples":
        """The samples of ``which``: row numbers, or one boolean for each sample."""
        return LabelledSamples(self.pixels[which], self.class_names[which])


def known_class_accuracy(
    encoder: Encoder,
    queries: LabelledSamples,
    trained: LabelledSamples,
    device: torch.device,
    *,
    before: Encoder | None = None,
) -> dict[str, Any]:
    """Accuracy on held-out samples of classes that the model was trained on: ``{"known classes": record}``.

    queries: held-out samples of any class; those of other classes are left out.
    trained: the samples that the model was trained on; the gallery.
    before: as in ``neighbour_accuracy``.

    Empty if no held-out sample is of a trained class. At most ``MOST`` queries and gallery samples are used.
    """
    queries = queries.rows(np.isin(queries.class_names, np.unique(trained.class_names)))
    if not len(queries):
        return {}
    return {KNOWN_CLASSES: neighbour_accuracy(encoder, sampled(queries), sampled(trained), device, before=before)}


def neighbour_accuracy(
    encoder: Encoder,
    queries: LabelledSamples,
    gallery: LabelledSamples,
    device: torch.device,
    *,
    before: Encoder | None = None,
) -> dict[str, Any]:
    """How often the nearest gallery sample is of the query's class: by the model, and without training.

    encoder: must have a preprocess.
    queries, gallery: samples of different content, at least one each.
    before: the network with the trained weights that it began with; None compares with the raw pixels or vectors.

    Returns JSON: ``queries`` and ``gallery`` (how many), ``classes`` (of the queries), ``model`` and ``raw`` (value,
    low and high of a 95 % interval over queries), ``gain`` (model minus raw, paired) and ``raw_is`` ("pixels",
    "vectors" or "network"). Pixels are scaled as for the network; ties go to the first gallery sample.
    """
    return accuracy_record([neighbour_search(encoder, queries, gallery, device, before=before)])


@dataclass(frozen=True, eq=False)
class NeighbourSearch:
    """One search by the model and one without training.

    right: by "model" and "raw", 1 for each query whose nearest gallery sample is of its class, else 0.
    gallery: number of gallery samples.
    classes: number of classes of the queries.
    raw_is: "pixels", "vectors" or "network".
    """

    right: dict[str, np.ndarray]
    gallery: int
    classes: int
    raw_is: str


def neighbour_search(
    encoder: Encoder,
    queries: LabelledSamples,
    gallery: LabelledSamples,
    device: torch.device,
    *,
    before: Encoder | None = None,
) -> NeighbourSearch:
    """The parameters are those of ``neighbour_accuracy``."""
    preprocess = encoder.preprocess
    assert preprocess is not None

    def features(part: LabelledSamples) -> Tensor:
        if before is None:
            return raw_features(preprocess, part.pixels)
        return _model_features(before, part.pixels, device)

    right = {
        name: _right(queries.class_names, gallery.class_names, [of(queries), of(gallery)])
        for name, of in (("model", lambda part: _model_features(encoder, part.pixels, device)), ("raw", features))
    }
    untrained = "vectors" if preprocess.takes_vectors else "pixels"
    raw_is = untrained if before is None else "network"
    return NeighbourSearch(right, len(gallery), len(np.unique(queries.class_names)), raw_is)


def accuracy_record(searches: Sequence[NeighbourSearch]) -> dict[str, Any]:
    """The record of all queries together; ``neighbour_accuracy`` says what it contains.

    searches: at least one. If they are of different models and galleries, ``gallery`` is the mean size.
    """
    right = {name: np.concatenate([one.right[name] for one in searches]) for name in ("model", "raw")}
    model, raw = right["model"], right["raw"]

    def ends(found: Interval) -> dict[str, float]:
        return asdict(Estimate(found.value, found.low, found.high))

    return {
        "queries": len(model),
        "gallery": round(float(np.mean([one.gallery for one in searches]))),
        "classes": sum(one.classes for one in searches),
        **{name: ends(mean_interval(hits)) for name, hits in right.items()},
        "gain": ends(gain_interval(raw, model)),
        "raw_is": searches[0].raw_is,
    }


def raw_features(preprocess: Input, pixels: np.ndarray) -> Tensor:
    """Unit rows of the input itself, N x D: pixels scaled as for the network, or vectors.

    Images with a side above ``RAW_SIDE`` are averaged down, so that their rows stay short.
    """
    stored = pixels.reshape(len(pixels), -1) if preprocess.takes_vectors else pixels
    rows = [_raw_rows(preprocess, stored[start : start + 512]) for start in range(0, len(stored), 512)]
    return unit(torch.cat(rows))


def _raw_rows(preprocess: Input, items: np.ndarray) -> Tensor:
    inputs = preprocess.normalise(preprocess.stack(items))
    if inputs.ndim == 4 and max(inputs.shape[-2:]) > RAW_SIDE:
        height, width = (min(side, RAW_SIDE) for side in inputs.shape[-2:])
        inputs = F.adaptive_avg_pool2d(inputs, (height, width))
    return inputs.flatten(1)


def _model_features(encoder: Encoder, pixels: np.ndarray, device: torch.device) -> Tensor:
    images = ImageSet(pixels, np.zeros(len(pixels), np.int64), ("",), "")
    return torch.from_numpy(extract(encoder, images, device=device))


def _right(query_names: np.ndarray, gallery_names: np.ndarray, features: list[Tensor]) -> np.ndarray:
    """1 for each query whose nearest gallery sample is of its class, else 0."""
    of_queries, of_gallery = features
    found = nearest(of_queries, of_gallery).indices[:, 0]
    return (gallery_names[found] == query_names).astype(np.float64)


def sampled(samples: LabelledSamples) -> LabelledSamples:
    """``samples``, or an even random sample of ``MOST`` of them."""
    if len(samples) <= MOST:
        return samples
    draw = np.random.default_rng(derived_seed(0, 0, "accuracy"))
    return samples.rows(np.sort(draw.choice(len(samples), MOST, replace=False)))


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
    draw = np.random.default_rng(derived_seed(settings.seed, 0, "held-out classes"))
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
        queries = half_of_each_class(codes, "query", trial.settings.seed)
        parts = sampled(unseen.rows(queries)), sampled(unseen.rows(~queries))
        searches.append(neighbour_search(encoder, *parts, device))
    return accuracy_record(searches)

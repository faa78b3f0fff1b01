"""The plan of one version: its images, its task, and the samples that are saved for the next version."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.wording import counted
from holdfast.train.data import ImageSet
from holdfast.train.data.images import canonical_order
from holdfast.train.engine.model_slots import in_a_run
from holdfast.train.scenarios import SlotRegistry, Task, next_task
from holdfast.train.scenarios.task import buffer_indices
from holdfast.train.versions.parent import Parent, SampleSet
from holdfast.train.versions.samples import Reader, SampleRef, distinct, held_out_mask, known_mask, short_hashes
from holdfast.train.versions.settings import VersionSettings


@dataclass(frozen=True, eq=False)
class Plan:
    """The data of one version.

    images: those of the buffer, in its order, then the new ones in canonical order; labels in order of arrival.
    classes: all class names in order of arrival.
    task: over ``images``.
    fingerprint: of the new images.
    buffer: samples that the next version replays.
    next_rows: rows of ``images`` that ``buffer`` consists of, in its order.
    checked: all samples that this version is checked on.
    held_out: held-out samples that are saved for later versions.
    trained: ``short_hashes`` of all samples that this version and those before it are trained on.
    skipped: files and folders that could not be used and were left out.
    samples: those of ``images``, in its order.
    """

    images: ImageSet
    classes: tuple[str, ...]
    task: Task
    fingerprint: str
    buffer: SampleSet
    next_rows: np.ndarray
    checked: SampleSet
    held_out: SampleSet
    trained: np.ndarray
    skipped: int = 0
    samples: tuple[SampleRef, ...] = ()

    @property
    def num_trained(self) -> int:
        return len(self.task.new_indices)


@dataclass(frozen=True, eq=False)
class VersionContext:
    """What a plan depends on besides the new samples.

    settings: how the version is trained.
    reader: reads samples as they are trained on.
    parent: the model before; None for the first version.
    registry: the slots assigned so far.
    replaced: whether another network takes the place of the parent's.
    """

    settings: VersionSettings
    reader: Reader
    parent: Parent | None
    registry: SlotRegistry
    replaced: bool = False


def plan_version(samples: Sequence[SampleRef], buffer: SampleSet, context: VersionContext) -> Plan:
    """A pure function of the files, the settings and the model before.

    A new sample that is in the buffer already is replayed and not new. Known classes keep their slots and their
    buffer, which is filled up to ``buffer.per_class``. New classes take the next slots in the order of their names.
    """
    settings, parent = context.settings, context.parent
    known = parent.classes if parent else ()
    earlier = parent.held_out if parent else SampleSet()
    held = held_out_mask(samples, settings.held_out.share, earlier.hashes())
    trained = short_hashes(buffer.samples)
    if parent is not None:
        trained = np.union1d(trained, parent.trained)
    held &= ~known_mask(samples, trained)
    replayed = frozenset((one.class_name, one.sha256) for one in buffer.samples)
    new = [
        one for one, out in zip(samples, held, strict=True) if not out and (one.class_name, one.sha256) not in replayed
    ]
    if not new:
        noun = context.reader.noun
        all_ = f"the one {noun} is" if len(samples) == 1 else f"all {len(samples)} {noun}s are"
        raise HoldfastError(
            f"nothing to train on: {all_} held out or in the buffer already; give {noun}s that are new to the model"
        )
    buffer_pixels = buffer.pixels(context.reader, "buffered")
    names = sorted({one.class_name for one in new})
    classes = (*known, *(name for name in names if name not in known))
    pixels = context.reader.read(new)
    order, fingerprint = canonical_order(pixels, _labels(new, names), names, source="new images")
    new, pixels = [new[row] for row in order], pixels[order]

    labels = _labels([*buffer.samples, *new], classes)
    together = np.concatenate([buffer_pixels, pixels]) if len(buffer) else pixels
    images = ImageSet(together, labels, classes, fingerprint)
    task = _task(classes, len(known), len(buffer), len(images), context)
    joining = _rows_for_buffer(labels[len(buffer) :], buffer, classes, settings)
    more = distinct([one for one, out in zip(samples, held, strict=True) if out], earlier.samples)
    return Plan(
        images,
        classes,
        task,
        fingerprint,
        buffer.extended([new[row] for row in joining], pixels[joining]),
        np.concatenate([task.buffer_indices, len(buffer) + joining]),
        _extended(earlier, more, context),
        _extended(earlier, _up_to(settings.held_out.per_class, more, earlier), context),
        np.union1d(trained, short_hashes(new)),
        samples=(*buffer.samples, *new),
    )


def draw_buffer(samples: Sequence[SampleRef], context: VersionContext) -> SampleSet:
    """A new buffer: ``buffer.per_class`` samples of each class of the model before.

    Held-out samples, and those that would be held out if they came as new, are not drawn.
    """
    settings, parent = context.settings, context.parent
    assert parent is not None
    held = held_out_mask(samples, settings.held_out.share, parent.held_out.hashes())
    known = [one for one, out in zip(samples, held, strict=True) if not out and one.class_name in parent.classes]
    names = sorted({one.class_name for one in known})
    if not names:
        raise HoldfastError(
            f"--buffer-from (buffer_from in Python): has no {context.reader.noun} of a class that {parent.folder} knows"
        )
    order, _ = canonical_order(context.reader.read(known), _labels(known, names), names, source="--buffer-from")
    ordered = [known[row] for row in order]
    labels, classes = _labels(ordered, parent.classes), range(len(parent.classes))
    rows = buffer_indices(labels, classes, settings.buffer.per_class, settings.seed)
    return SampleSet(tuple(ordered[row] for row in rows))


def _labels(samples: Sequence[SampleRef], names: Sequence[str]) -> np.ndarray:
    number = {name: label for label, name in enumerate(names)}
    return np.array([number[one.class_name] for one in samples], dtype=np.int64)


def _task(classes: Sequence[str], num_known: int, num_buffer: int, num_images: int, context: VersionContext) -> Task:
    parent = context.parent
    task = next_task(
        parent.number + 1 if parent else 1,
        classes,
        num_known,
        _with_new_classes(classes, context),
        new_indices=np.arange(num_buffer, num_images),
        buffer_indices=np.arange(num_buffer),
    )
    if parent is not None and (context.replaced or task.number == 1):
        task = replace(task, start="loaded", model=str(parent.folder))
        return replace(task, reference="loaded") if task.number == 1 else task
    return task


def _with_new_classes(classes: Sequence[str], context: VersionContext) -> SlotRegistry:
    registry, parent = context.registry, context.parent
    new = [name for name in classes if name not in registry.owners]
    needed = len(registry.owners) + len(new)
    if not context.settings.takes_slots():  # without a simplex a slot is only the number of a class
        return SlotRegistry(needed, registry.owners).take_left(new)
    free = registry.num_slots - len(registry.owners)
    if len(new) > free:
        how = f"--set method.slots={needed}, or more"
        if parent is not None:
            how = f"holdfast slots grow {parent.folder} --to {needed} adds them"
            if in_a_run(parent.folder):
                how = f"holdfast slots grow {parent.folder} --to {needed} --out COPIES writes a model with more"
        short = f"{counted(len(new), 'new class')}, but {free} of {registry.num_slots} slots are free"
        raise HoldfastError(f"{short}; {needed} slots would do: {how}")
    # Pre-training takes slots from the left, as other models of that family may; fine-tuning takes them from the right.
    right = parent is not None and "pretrained" in parent.info
    return registry.take_right(new) if right else registry.take_left(new)


def _rows_for_buffer(
    labels: np.ndarray, buffer: SampleSet, classes: Sequence[str], settings: VersionSettings
) -> np.ndarray:
    """Rows of the new images that join the buffer, class by class in order of arrival."""
    counts, per_class, seed = buffer.class_counts(), settings.buffer.per_class, settings.seed
    rows = [
        buffer_indices(labels, [label], max(0, per_class - counts[name]), seed) for label, name in enumerate(classes)
    ]
    return np.concatenate(rows)


def _up_to(per_class: int, samples: Sequence[SampleRef], earlier: SampleSet) -> list[SampleRef]:
    """So many of each class that there are ``per_class`` with the earlier ones, in the order of their hashes."""
    counts = earlier.class_counts()
    kept: list[SampleRef] = []
    for one in sorted(samples, key=lambda sample: (sample.class_name, sample.sha256)):
        if counts[one.class_name] < per_class:
            counts[one.class_name] += 1
            kept.append(one)
    return kept


def _extended(earlier: SampleSet, more: Sequence[SampleRef], context: VersionContext) -> SampleSet:
    if earlier.embedded is None:
        return SampleSet((*earlier.samples, *more))
    assert context.parent is not None
    return earlier.extended(more, context.settings.check_reader(context.parent.preprocess).read(more))

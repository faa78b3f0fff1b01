"""One version laid out: its images, its task, and what will be kept for the version after it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast.data import ImageSet
from holdfast.data.images import canonical_order
from holdfast.errors import HoldfastError
from holdfast.experiments.schema import Recipe
from holdfast.lifecycle.inputs import Picture, Reader, held_out, reader_to_judge
from holdfast.lifecycle.parent import KeptImages, Parent
from holdfast.methods import Method
from holdfast.scenarios import SlotRegistry, Task
from holdfast.scenarios.task import buffer_indices
from holdfast.wording import counted


@dataclass(frozen=True, eq=False)
class Plan:
    """What one version is made of.

    images: the buffer's, in its order, then the new ones in canonical order; labels by arrival.
    classes: all by arrival. task: over ``images``. fingerprint: of the new images.
    next_rows: rows of ``images`` that the next version's buffer consists of, in its order.
    judged: the images to judge by, all of them; kept_out: those that later versions are judged by.
    """

    images: ImageSet
    classes: tuple[str, ...]
    task: Task
    fingerprint: str
    buffer: KeptImages
    next_rows: np.ndarray
    judged: KeptImages
    kept_out: KeptImages

    @property
    def num_trained(self) -> int:
        return len(self.task.new_indices)


def lay_out(
    pictures: Sequence[Picture],
    reader: Reader,
    recipe: Recipe,
    method: Method,
    parent: Parent | None,
    buffer: KeptImages,
    *,
    share: float,
    replaced: bool = False,
    registry: SlotRegistry,
) -> Plan:
    """A pure function of the files, the recipe and the model before.

    ``share`` of the new pictures is held out. ``registry``: who owns which slot so far. A picture that is in the
    buffer already is replayed, not new. Known classes keep their slots and their buffer, which is filled up where it
    has fewer than ``buffer.per_class``; new ones take the next slots in the order of their names.
    """
    known = parent.classes if parent else ()
    earlier = parent.held_out if parent else KeptImages()
    trained = frozenset(one.sha256 for one in buffer.pictures)
    held = held_out(pictures, share, frozenset(one.sha256 for one in earlier.pictures))
    held &= np.array([one.sha256 not in trained for one in pictures])
    replayed = frozenset((one.name, one.sha256) for one in buffer.pictures)
    fresh = [one for one, out in zip(pictures, held, strict=True) if not out and (one.name, one.sha256) not in replayed]
    if not fresh:
        all_ = "the one image is" if len(pictures) == 1 else f"all {len(pictures)} images are"
        raise HoldfastError(f"nothing to train on: {all_} held out or in the buffer already")
    replayed_pixels = buffer.pixels(reader, "buffer")
    names = sorted({one.name for one in fresh})
    classes = (*known, *(name for name in names if name not in known))
    pixels = reader.read(fresh)
    order, fingerprint = canonical_order(pixels, _numbered(fresh, names), names, source="new images")
    fresh, pixels = [fresh[row] for row in order], pixels[order]

    labels = _numbered([*buffer.pictures, *fresh], classes)
    together = np.concatenate([replayed_pixels, pixels]) if len(buffer) else pixels
    images = ImageSet(together, labels, classes, fingerprint)
    registry = _with_new(registry, classes, method, parent)
    number = parent.number + 1 if parent else 1
    loaded = replaced or number == 1
    task = Task(
        number=number,
        new_classes=tuple(range(len(known), len(classes))),
        seen_classes=tuple(range(len(classes))),
        new_indices=np.arange(len(buffer), len(images)),
        buffer_indices=np.arange(len(buffer)),
        registry=registry,
        slots=tuple(registry.slot(name) for name in classes),
        start="scratch" if parent is None else "loaded" if loaded else "previous",
        reference="none" if parent is None else "loaded" if number == 1 else "previous",
        model=str(parent.folder) if parent and loaded else None,
    )
    chosen = _chosen(labels[len(buffer) :], buffer, classes, recipe["buffer"]["per_class"], recipe.seed)
    more = once([one for one, out in zip(pictures, held, strict=True) if out], earlier)
    later = _first(more, earlier, recipe["held_out"]["per_class"])
    return Plan(
        images,
        classes,
        task,
        fingerprint,
        buffer.joined([fresh[row] for row in chosen], pixels[chosen]),
        np.concatenate([task.buffer_indices, len(buffer) + chosen]),
        _joined(earlier, more, recipe, parent),
        _joined(earlier, later, recipe, parent),
    )


def drawn_buffer(pictures: Sequence[Picture], reader: Reader, recipe: Recipe, parent: Parent) -> KeptImages:
    """A buffer for a model that has none, or lost it: ``buffer.per_class`` images of each of its classes.

    What is held out is not drawn, nor what would be if it came as new.
    """
    held = held_out(pictures, recipe["held_out"]["share"], frozenset(one.sha256 for one in parent.held_out.pictures))
    known = [one for one, out in zip(pictures, held, strict=True) if not out and one.name in parent.classes]
    names = sorted({one.name for one in known})
    if not names:
        raise HoldfastError(f"--buffer-from: has no image of a class that {parent.folder} knows")
    pixels = reader.read(known)
    order, _ = canonical_order(pixels, _numbered(known, names), names, source="--buffer-from")
    ordered = [known[row] for row in order]
    rows = buffer_indices(
        _numbered(ordered, parent.classes), range(len(parent.classes)), recipe["buffer"]["per_class"], recipe.seed
    )
    return KeptImages(tuple(ordered[row] for row in rows))


def _numbered(pictures: Sequence[Picture], names: Sequence[str]) -> np.ndarray:
    number = {name: label for label, name in enumerate(names)}
    return np.array([number[one.name] for one in pictures], dtype=np.int64)


def _with_new(registry: SlotRegistry, classes: Sequence[str], method: Method, parent: Parent | None) -> SlotRegistry:
    new = [name for name in classes if name not in registry.owners]
    if method.num_slots is None:  # no simplex: a slot is no more than the number of a class
        return SlotRegistry(len(registry.owners) + len(new), registry.owners).take_left(new)
    needed = len(registry.owners) + len(new)
    free = registry.num_slots - len(registry.owners)
    if len(new) > free:
        where: Path | str = parent.folder if parent else "MODEL"
        way_out = f"holdfast slots grow {where} --to {needed} makes room" if parent else f"set --slots {needed} or more"
        short = f"{counted(len(new), 'new class')}, but {free} of {registry.num_slots} slots are free"
        raise HoldfastError(f"{short}; {needed} slots would do: {way_out}")
    # What was pre-trained fills up from the left, and other models of that family may; fine-tuning goes from the right.
    right = parent is not None and "pretrained" in parent.info
    return registry.take_right(new) if right else registry.take_left(new)


def _chosen(labels: np.ndarray, buffer: KeptImages, classes: Sequence[str], per_class: int, seed: int) -> np.ndarray:
    """Rows of the new images that join the buffer, class after class by arrival."""
    have = buffer.counts()
    rows = [buffer_indices(labels, [label], max(0, per_class - have[name]), seed) for label, name in enumerate(classes)]
    return np.concatenate(rows)


def once(pictures: Sequence[Picture], earlier: KeptImages) -> list[Picture]:
    """Each content once: an image that both asks and is stored would find itself."""
    seen = {one.sha256 for one in earlier.pictures}
    found: list[Picture] = []
    for one in pictures:
        if one.sha256 not in seen:
            seen.add(one.sha256)
            found.append(one)
    return found


def _first(pictures: Sequence[Picture], earlier: KeptImages, per_class: int) -> list[Picture]:
    """So many of each class that there are ``per_class`` with the earlier ones, by their hash: as good as random."""
    have: Counter[str] = Counter(earlier.counts())
    kept: list[Picture] = []
    for one in sorted(pictures, key=lambda picture: (picture.name, picture.sha256)):
        if have[one.name] < per_class:
            have[one.name] += 1
            kept.append(one)
    return kept


def _joined(earlier: KeptImages, more: Sequence[Picture], recipe: Recipe, parent: Parent | None) -> KeptImages:
    if earlier.embedded is None:
        return KeptImages((*earlier.pictures, *more))
    assert parent is not None
    return earlier.joined(more, reader_to_judge(recipe, parent.preprocess).read(more))

"""The items of a study: which are trained on in which version, and which are searched.

A study has items of three kinds of classes. Trained classes arrive over five versions; some of their items are held out
and make the table "known classes". Validation classes are for the choice of settings only. Unseen classes make the
table "unseen classes". Each seed draws the order of the trained classes, the version in which each item arrives, and
the split of each table into queries, gallery and pairs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast import ImageSet, SlotRegistry
from holdfast.core.errors import HoldfastError
from holdfast.train.data.images import canonical
from holdfast.train.scenarios import Scenario, next_task

VERSIONS = 5
AT_ARRIVAL = 0.6
"""Share of a class's training items that comes with the class; the others come in equal parts with later versions."""
BUFFER_PER_CLASS = 20
"""Items of each class that later versions replay, as in ``holdfast update``."""
UNSEEN, KNOWN = "unseen classes", "known classes"
TABLES = (UNSEEN, KNOWN)
SIDE, CROP = 256, 224
"""Side of the stored photographs, and of the crops that a network is trained and searched with, in pixels."""
QUERIES, PAIRS = 1 / 3, 1 / 4
"""Shares of each class of a table that are queries and pairs; the rest is the gallery."""


@dataclass(frozen=True, eq=False)
class StudyData:
    """Items and their roles.

    name: of the study.
    items: vectors N x D, or photographs N x SIDE x SIDE x 3, which are trained on as crops of CROP pixels.
    labels: the class name of each item, N.
    training: numbers of the items that are trained on.
    known: numbers of held-out items of the trained classes.
    unseen: numbers of the items of unseen classes.
    validation: numbers of the items of validation classes; empty if settings are taken from another study.
    sizes: number of classes that each version adds.
    seconds_per_item: time in which the frozen network embedded one item on this machine; None if unknown.
    """

    name: str
    items: np.ndarray
    labels: np.ndarray
    training: np.ndarray
    known: np.ndarray
    unseen: np.ndarray
    validation: np.ndarray
    sizes: tuple[int, ...]
    seconds_per_item: float | None = None

    @property
    def holds_vectors(self) -> bool:
        return self.items.ndim == 2

    def searched(self, rows: np.ndarray) -> np.ndarray:
        """Items as ``Encoder.encode`` takes them: vectors, or the middle of photographs."""
        items = self.items[rows]
        if self.holds_vectors:
            return items
        cut = (SIDE - CROP) // 2
        return items[:, cut : cut + CROP, cut : cut + CROP]

    def training_items(self) -> np.ndarray:
        """The items that are trained on, as ``ImageSet`` stores them: vectors are images of one pixel."""
        items = self.items[self.training]
        return items.astype(np.float32)[:, None, None, :] if self.holds_vectors else items

    def split(self, table: str, seed: int) -> "Split":
        """Queries, gallery and pairs of a table."""
        return split_items({UNSEEN: self.unseen, KNOWN: self.known}[table], self.labels, seed, QUERIES, PAIRS)

    def validation_split(self, seed: int) -> "Split":
        """Half of each validation class are queries, half the gallery."""
        return split_items(self.validation, self.labels, seed, 1 / 2, 0)


@dataclass(frozen=True, eq=False)
class Split:
    """Numbers of items, and the class of each as a number.

    pairs: items that both models embed to fit a bridge. They stand for a sample of a gallery that is much larger than
        the one here, so they are in neither the gallery nor the queries.
    """

    queries: np.ndarray
    gallery: np.ndarray
    pairs: np.ndarray
    query_codes: np.ndarray
    gallery_codes: np.ndarray


def split_items(rows: np.ndarray, labels: np.ndarray, seed: int, queries: float, pairs: float) -> Split:
    """Split the items of each class at random."""
    names = np.unique(labels[rows])
    parts: tuple[list[np.ndarray], ...] = ([], [], [])
    for number, name in enumerate(names):
        own = np.random.default_rng([seed, number]).permutation(rows[labels[rows] == name])
        ends = np.round(np.cumsum([queries, pairs]) * len(own)).astype(int)
        for part, drawn in zip(parts, np.split(own, ends), strict=True):
            part.append(drawn)
    asked, both, stored = (np.concatenate(part) for part in parts)
    code_of = {name: code for code, name in enumerate(names)}
    codes = [np.array([code_of[labels[row]] for row in part]) for part in (asked, stored)]
    return Split(asked, stored, both, *codes)


def scenario(data: StudyData, seed: int, slots: int | None = None) -> tuple[ImageSet, Scenario]:
    """The training set, and five tasks that each add classes and new items of the classes before.

    slots: number of slots for methods that need a simplex; None for as many as there are classes.
    """
    random = np.random.default_rng([seed, 2026])
    names = [str(name) for name in random.permutation(np.unique(data.labels[data.training]))]
    if len(names) != sum(data.sizes):
        raise HoldfastError(f"{data.name}: {len(names)} trained classes, expected {sum(data.sizes)}")
    label_of = {name: label for label, name in enumerate(names)}
    labels = np.array([label_of[str(name)] for name in data.labels[data.training]])
    images = canonical(data.training_items(), labels, names, source=data.name)
    ends = np.cumsum(data.sizes)
    arrival = arrivals(images.labels, np.searchsorted(ends, np.arange(len(names)), side="right"), random)
    registry = SlotRegistry(slots or len(names))
    tasks = []
    for version, end in enumerate(ends):
        seen = names[:end]
        registry = registry.take_left(seen[len(registry.owners) :])
        new = np.flatnonzero(arrival == version)
        buffer = _first_of_each(np.flatnonzero(arrival < version), images.labels, arrival)
        known = end - data.sizes[version]
        tasks.append(next_task(version + 1, seen, known, registry, new_indices=new, buffer_indices=buffer))
    return images, Scenario(data.name, tuple(tasks))


def arrivals(labels: np.ndarray, version_of_class: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The version in which each item arrives, from 0. All items of a class that comes last arrive with it."""
    found = np.empty(len(labels), dtype=np.int64)
    for label, version in enumerate(version_of_class):
        rows = random.permutation(np.flatnonzero(labels == label))
        later = VERSIONS - 1 - int(version)
        first = len(rows) if later == 0 else round(AT_ARRIVAL * len(rows))
        found[rows[:first]] = version
        for step, part in enumerate(np.array_split(rows[first:], later) if later else (), start=1):
            found[part] = version + step
    return found


def _first_of_each(rows: np.ndarray, labels: np.ndarray, arrival: np.ndarray) -> np.ndarray:
    """At most ``BUFFER_PER_CLASS`` rows of each class, those that arrived first."""
    order = rows[np.argsort(arrival[rows], kind="stable")]
    kept = [order[labels[order] == label][:BUFFER_PER_CLASS] for label in np.unique(labels[rows])]
    return np.concatenate([np.empty(0, dtype=np.int64), *kept])


NETWORK, NETWORK_REPLACEMENT = "network", "network-replacement"
PHOTOGRAPHS, REPLACEMENT, TEXTS = "photographs", "replacement", "texts"
STUDIES = (NETWORK, NETWORK_REPLACEMENT, PHOTOGRAPHS, REPLACEMENT, TEXTS)
"""The first two train the whole network, the others a head on vectors of a frozen one."""
TRAINED_CLASSES, VALIDATION_CLASSES = 80, 100
"""CUB-200-2011: classes 1 to 80 are trained, 81 to 100 are for validation, 101 to 200 are unseen."""


def photographs(features: Path, network: str = "lite0") -> StudyData:
    """CUB-200-2011 under a network: files ``NETWORK-train.npz`` and ``NETWORK-test.npz``."""
    parts = [read_vectors(features / f"{network}-{split}.npz") for split in ("train", "test")]
    items, labels = (np.concatenate([part[key] for part in parts]) for key in ("features", "labels"))
    is_test = np.repeat([False, True], [len(part["labels"]) for part in parts])
    timed = [float(part["seconds"]) for part in parts if "seconds" in part]
    seconds = sum(timed) / len(labels) if len(timed) == len(parts) else None
    return birds(PHOTOGRAPHS, items, labels, is_test, seconds)


def pictures(features: Path) -> StudyData:
    """CUB-200-2011 as pixels: files ``pictures.npy``, which stays on disk, and ``pictures-labels.npz``."""
    found = read_vectors(features / "pictures-labels.npz", needed=("labels", "is_test"))
    items = np.load(features / "pictures.npy", mmap_mode="r")
    return birds(NETWORK, items, found["labels"], found["is_test"])


def birds(
    name: str, items: np.ndarray, labels: np.ndarray, is_test: np.ndarray, seconds_per_item: float | None = None
) -> StudyData:
    """The roles of CUB-200-2011's photographs.

    Trained on: the training photographs of classes 1 to 80, which arrive as 32 + 4 x 12 classes. Known classes: the
    test photographs of these classes. Unseen classes: all photographs of classes 101 to 200.
    """
    number = np.unique(labels, return_inverse=True)[1] + 1
    if number.max() != 200:
        raise HoldfastError(f"{name}: photographs of {number.max()} classes; CUB-200-2011 has 200")
    trained = number <= TRAINED_CLASSES
    return StudyData(
        name,
        items,
        labels,
        training=np.flatnonzero(trained & ~is_test),
        known=np.flatnonzero(trained & is_test),
        unseen=np.flatnonzero(number > VALIDATION_CLASSES),
        validation=np.flatnonzero(~trained & (number <= VALIDATION_CLASSES)),
        sizes=(32, 12, 12, 12, 12),
        seconds_per_item=seconds_per_item,
    )


LEAST_TEXTS, MOST_TEXTS = 100, 240
"""Sections of Debian with fewer descriptions are left out; of larger ones so many are used."""


def texts(features: Path) -> StudyData:
    """Descriptions of Debian's packages: file ``texts.npz``, the section as the class.

    Every second section is trained on, half of its descriptions; the other half are the known classes. The other
    sections are unseen. There are no validation classes: settings are those chosen on photographs.
    """
    found = read_vectors(features / "texts.npz")
    labels = found["labels"].astype(str)
    names, counts = np.unique(labels, return_counts=True)
    kept = names[counts >= LEAST_TEXTS]
    trained, held = kept[::2], kept[1::2]
    chosen = {name: np.flatnonzero(labels == name)[:MOST_TEXTS] for name in kept}  # the file is in random order
    training = _concatenated(chosen[name][: len(chosen[name]) // 2] for name in trained)
    known = _concatenated(chosen[name][len(chosen[name]) // 2 :] for name in trained)
    later = (VERSIONS - 1) * (len(trained) // 8)
    sizes = (len(trained) - later, *([later // (VERSIONS - 1)] * (VERSIONS - 1)))
    return StudyData(
        TEXTS, found["features"], labels, training, known, _concatenated(chosen[name] for name in held),
        validation=np.empty(0, dtype=np.int64), sizes=sizes,
        seconds_per_item=float(found["seconds"]) / len(labels) if "seconds" in found else None,
    )  # fmt: skip


def _concatenated(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate(list(parts))


def read_vectors(file: Path, needed: Sequence[str] = ("features", "labels", "ids")) -> dict[str, np.ndarray]:
    """The arrays of a file of features."""
    if not file.is_file():
        raise HoldfastError(f"{file}: no such file; python -m papers.quarters photographs, pictures or texts writes it")
    with np.load(file) as pack:
        found = {name: pack[name] for name in pack.files}
    for name in needed:
        if name not in found:
            raise HoldfastError(f"{file}: has no {name}; write it again with python -m papers.quarters")
    return found

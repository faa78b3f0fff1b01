"""What a check is given: feature sets that fit together, and what counts as right."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from holdfast.checking.feature_set import FeatureSet, feature_set, some
from holdfast.checking.files import read_features
from holdfast.checking.pairing import Pairing
from holdfast.checking.relevance import read_relevance, relevance_truth
from holdfast.checking.truth import ClassTruth, Truth, class_codes
from holdfast.errors import HoldfastError
from holdfast.wording import are, counted, have

Source = str | Path | FeatureSet | tuple[ArrayLike | None, ...]
"""A file, a FeatureSet, or arrays (features, labels) or (features, labels, ids); labels and ids may be None."""
Relevance = str | Path | list[tuple[str, str]]
"""A file, or (query id, gallery id) of every relevant pair."""


@dataclass(frozen=True)
class Sets:
    """The old gallery, old and new queries, and perhaps the gallery embedded anew."""

    gallery: FeatureSet
    old: FeatureSet
    new: FeatureSet
    gallery_new: FeatureSet | None

    def __post_init__(self) -> None:
        if self.old.dim != self.gallery.dim:
            raise HoldfastError(
                f"{self.old.name}: {self.old.dim} numbers per query, but the old gallery has {self.gallery.dim}; "
                "both must come from the old model"
            )
        if self.gallery_new is not None and self.gallery_new.dim != self.new.dim:
            raise HoldfastError(
                f"{self.gallery_new.name}: {self.gallery_new.dim} numbers per vector, but the new queries have "
                f"{self.new.dim}; both must come from the new model"
            )

    @property
    def comparable(self) -> bool:
        """Whether new queries and the old gallery have vectors of one size."""
        return self.new.dim == self.gallery.dim

    def galleries(self) -> list[FeatureSet]:
        return [self.gallery] + ([] if self.gallery_new is None else [self.gallery_new])

    def names(self) -> dict[str, str]:
        named = {"gallery": self.gallery.name, "queries_old": self.old.name, "queries_new": self.new.name}
        return named if self.gallery_new is None else {**named, "gallery_new": self.gallery_new.name}


@dataclass(frozen=True)
class Answers:
    """What is right in each gallery. ``codes`` and ``classes`` (the label of each code) only where there are labels."""

    truths: list[Truth]
    notes: list[str]
    codes: np.ndarray | None = None
    classes: np.ndarray | None = None


def opened(source: Source, name: str, role: str) -> FeatureSet:
    """``source`` as a FeatureSet; ``name`` is what arrays are called, ``role`` "query" or "gallery"."""
    if isinstance(source, FeatureSet):
        return source
    if isinstance(source, tuple):
        if not 1 <= len(source) <= 3 or source[0] is None:
            raise HoldfastError(f"{name}: give a file, (features, labels) or (features, labels, ids)")
        return feature_set(name, source[0], *source[1:])
    if isinstance(source, str | Path):
        return read_features(source, role)
    return feature_set(name, source)


def answers_for(sets: Sets, pairing: Pairing, relevance: Relevance | None) -> Answers | None:
    """Relevant pairs if given, else classes; None where there is neither."""
    if relevance is not None:
        if isinstance(relevance, str | Path):
            pairs = read_relevance(relevance)
        else:
            pairs = [(str(query), str(item)) for query, item in relevance]
        found = [relevance_truth(pairs, pairing.names, gallery) for gallery in sets.galleries()]
        notes = found[0][1]
        silent = int((~found[0][0].judged()).sum())
        if silent:
            queries = counted(len(pairing), "query")
            notes = [*notes, f"relevance: {silent:,} of {queries} {have(silent)} no relevant item; left out"]
        return Answers([truth for truth, _ in found], notes)
    if pairing.labels is None:
        return None
    codes, gallery_codes, classes = class_codes(pairing.labels, *sets.galleries())
    strange = int((~np.isin(codes, gallery_codes[0])).sum())
    notes = []
    if strange:
        queries = counted(len(codes), "query")
        notes.append(f"{strange:,} of {queries} {have(strange)} a class that is not in the old gallery")
    return Answers([ClassTruth(codes, part) for part in gallery_codes], notes, codes, classes)


def pairing_notes(sets: Sets, pairing: Pairing) -> list[str]:
    """What a reader must know of how queries, and galleries, were put side by side."""
    found = []
    if (sets.old.ids is None) != (sets.new.ids is None):
        found.append("only one of the two query sets has ids, so queries were paired row by row")
    if sets.gallery_new is not None and not _same_items(sets.gallery, sets.gallery_new):
        found.append("the new gallery does not hold the items of the old one, so the ceiling is that of other items")
    for which, names in (("old", pairing.only_old), ("new", pairing.only_new)):
        if names:
            queries, were = counted(len(names), "query"), "was" if len(names) == 1 else "were"
            found.append(f"{queries} {are(len(names))} only in the {which} set and {were} left out: {some(names)}")
    return found


def _same_items(first: FeatureSet, second: FeatureSet) -> bool:
    """As far as can be told: by ids, else by labels, else by number, in any order."""
    for one, other in ((first.ids, second.ids), (first.labels, second.labels)):
        if one is not None and other is not None:
            return bool(np.array_equal(np.sort(one.astype(str)), np.sort(other.astype(str))))
    return len(first) == len(second)

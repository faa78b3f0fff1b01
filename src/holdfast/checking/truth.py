"""What counts as a right hit: the query's class, or a list of relevant pairs."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from holdfast.checking.feature_set import FeatureSet
from holdfast.errors import HoldfastError
from holdfast.evaluation.protocols import pairs_to_draw
from holdfast.metrics import verification_pairs


class Truth(Protocol):
    """Answers for Q queries in one gallery of N rows."""

    def right(self, queries: np.ndarray, hits: np.ndarray) -> np.ndarray:
        """Whether gallery rows ``hits`` (n x k, -1 for none) are right for ``queries`` (n numbers): n x k."""

    def judged(self) -> np.ndarray:
        """Which queries count at all (Q, boolean)."""

    def count_right(self) -> np.ndarray:
        """How many gallery rows are right for each query (Q)."""

    def size(self) -> int:
        """How many gallery rows there are: N."""

    def pairs(self, wanted: int, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Up to ``wanted`` (query, gallery row) pairs among ``usable`` rows, half of them right; and which are.

        Pairs of one kind, or none, where there are none of the other.
        """


@dataclass(frozen=True)
class ClassTruth:
    """Right is what has the query's class. Classes are numbers 0 .. C-1 in the order of their labels."""

    query: np.ndarray
    gallery: np.ndarray

    def right(self, queries: np.ndarray, hits: np.ndarray) -> np.ndarray:
        return (self.gallery[hits] == self.query[queries][:, None]) & (hits >= 0)

    def judged(self) -> np.ndarray:
        return np.ones(len(self.query), dtype=bool)

    def count_right(self) -> np.ndarray:
        return np.bincount(self.gallery, minlength=int(self.query.max()) + 1)[self.query]

    def size(self) -> int:
        return len(self.gallery)

    def pairs(self, wanted: int, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        labels = self.gallery[usable]
        same_class = ClassTruth(self.query, labels).count_right().sum()
        if same_class in (0, len(self.query) * len(labels)):
            return np.zeros((0, 2), dtype=np.int64), np.zeros(0, dtype=bool)
        pairs, same = verification_pairs(self.query, labels, pairs_to_draw(self.query, labels, wanted), seed=0)
        return np.stack([pairs[:, 0], usable[pairs[:, 1]]], axis=1), same


@dataclass(frozen=True)
class RelevanceTruth:
    """Right is what a list of pairs says. ``keys`` are query * N + gallery row of every relevant pair, ascending."""

    keys: np.ndarray
    queries: int
    gallery_rows: int

    def right(self, queries: np.ndarray, hits: np.ndarray) -> np.ndarray:
        wanted = queries[:, None] * self.gallery_rows + hits
        place = np.searchsorted(self.keys, wanted).clip(max=len(self.keys) - 1)
        return (self.keys[place] == wanted) & (hits >= 0)

    def judged(self) -> np.ndarray:
        return self.count_right() > 0

    def count_right(self) -> np.ndarray:
        return np.bincount(self.keys // self.gallery_rows, minlength=self.queries)

    def size(self) -> int:
        return self.gallery_rows

    def pairs(self, wanted: int, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        draw = np.random.default_rng(0)
        query, row = np.divmod(self.keys, self.gallery_rows)
        found = np.isin(row, usable)
        relevant = np.stack([query[found], row[found]], axis=1)
        if len(relevant) > wanted // 2:
            relevant = relevant[np.sort(draw.choice(len(relevant), wanted // 2, replace=False))]
        # Chance pairs are seldom relevant: those that are, or that come twice, are dropped instead of drawn again.
        blind = draw.choice(np.flatnonzero(self.judged()), wanted // 2) * self.gallery_rows
        blind = np.unique(blind + draw.choice(usable, wanted // 2))
        blind = blind[~np.isin(blind, self.keys)]
        pairs = np.concatenate([relevant, np.stack(np.divmod(blind, self.gallery_rows), axis=1)])
        return pairs, np.arange(len(pairs)) < len(relevant)


def class_codes(query_labels: np.ndarray, *galleries: FeatureSet) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """The labels as numbers 0 .. C-1: of the queries, of each gallery; and the label that each number stands for."""
    parts = [query_labels]
    for gallery in galleries:
        if gallery.labels is None:
            raise HoldfastError(f"{gallery.name}: has no labels; the queries have. Give labels, or --relevance")
        if gallery.labels.dtype.kind != query_labels.dtype.kind:
            raise HoldfastError(f"{gallery.name}: labels are not of the queries' kind (one is numbers, one is text)")
        parts.append(gallery.labels)
    classes, codes = np.unique(np.concatenate(parts), return_inverse=True)
    ends = np.cumsum([len(part) for part in parts])
    query, *rest = np.split(codes, ends[:-1])
    if not np.isin(query, rest[0]).any():
        raise HoldfastError(
            f"{galleries[0].name}: none of the queries' classes is in it; are the labels the same names?"
        )
    return query, rest, classes

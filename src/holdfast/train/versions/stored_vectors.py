"""Stored vectors, with their classes if these are known: read, checked, paired with a new model's, and split."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import real_array
from holdfast.core.storage import read_array
from holdfast.core.wording import counted
from holdfast.train.geometry import unit
from holdfast.vectors import FeatureSet
from holdfast.vectors.feature_set import find_rows, shorten
from holdfast.vectors.pairing import Source, open_features
from holdfast.vectors.search import VectorProblems, float32

FEWEST_CLASSES = 8
"""Classes are needed to fit with, to choose by, and to hold out, at least two of each."""


@dataclass(frozen=True)
class StoredVectors:
    """N unit vectors (N x D, float32), with their classes if these are known.

    labels: N, indices into ``class_names``; None without classes.
    class_names: empty without classes.
    ids: N strings; row numbers if the file has none (``has_ids`` is False).
    """

    name: str
    vectors: Tensor
    labels: np.ndarray | None
    class_names: tuple[str, ...]
    ids: np.ndarray
    has_ids: bool

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])


def read_stored(
    features: Source | ArrayLike,
    labels: str | Path | ArrayLike | None = None,
) -> StoredVectors:
    """Vectors from a file (``read_features``), a FeatureSet or an array, with their classes if there are any.

    features: N x D.
    labels: a file (npy, or text with one label a line) or an array; None takes those in the features' file, if any.

    Refused: another number of labels than of vectors, vectors that are zero or not finite.
    """
    found = open_features(features, "features", "gallery")
    if labels is not None:
        column = _labels(labels)
        if column.shape != (len(found),):
            raise HoldfastError(
                f"{found.name}: {len(found)} vectors but labels of shape {column.shape}; one each is needed"
            )
        found = replace(found, labels=column)  # which refuses NaN and None
    given = found.labels
    empty = [] if given is None or given.dtype.kind != "U" else np.flatnonzero(given == "").tolist()
    if empty:
        rows = f"row {empty[0]}" if len(empty) == 1 else f"rows {shorten(empty)}"
        raise HoldfastError(f"{found.name}: {counted(len(empty), 'label')} without text ({rows}); leave them out")
    vectors = _unit_rows(found, np.arange(len(found)))
    names, codes = (np.array([]), None) if given is None else np.unique(given, return_inverse=True)
    return StoredVectors(
        found.name,
        vectors,
        codes,
        tuple(str(name) for name in names),
        found.names().astype(str),
        found.ids is not None,
    )


@dataclass(frozen=True)
class Paired:
    """Items that both models embedded.

    rows: their row numbers among the stored vectors, P, ascending.
    new: the new model's unit vectors of these, P x D'.
    """

    rows: np.ndarray
    new: Tensor


def paired_rows(old: StoredVectors, new: FeatureSet) -> Paired:
    """The stored items that ``new`` has vectors of: by id if both have ids, else row by row."""
    if old.has_ids and new.ids is not None:
        found = find_rows(old.ids, new.ids)
        rows, taken = np.flatnonzero(found >= 0), found[found >= 0]
        if len(rows) == 0:
            raise HoldfastError(
                f"{new.name}: none of its ids ({shorten(new.ids, 2)}) is in {old.name} ({shorten(old.ids, 2)})"
            )
    elif len(new) != len(old):
        raise HoldfastError(f"{new.name}: {len(new)} vectors, but {len(old)} in {old.name}; give both ids")
    else:
        rows = taken = np.arange(len(new))
    return Paired(rows, _unit_rows(new, taken))


def _unit_rows(features: FeatureSet, rows: np.ndarray) -> Tensor:
    """These rows at length 1; refused if some are zero or not finite."""
    vectors = float32(features.rows.take(rows))
    problems = VectorProblems(features.name, len(features))
    problems.inspect(rows, vectors)
    problems.refuse()
    return unit(torch.from_numpy(vectors))


@dataclass(frozen=True)
class Split:
    """Row numbers by purpose.

    fit: for fitting.
    choose_queries, choose_gallery: for choosing settings.
    queries, gallery: for measuring. Nothing is fitted to the queries.
    held_out: the number of items that could be queries; ``queries`` may be a sample of them.
    """

    fit: np.ndarray
    choose_queries: np.ndarray
    choose_gallery: np.ndarray
    queries: np.ndarray
    gallery: np.ndarray
    held_out: int

    def sampled(self, queries: int, choose_queries: int, seed: int) -> "Split":
        """The same split with at most so many queries of both kinds, drawn at random. Galleries are not sampled."""
        draw = np.random.default_rng(seed)

        def some(rows: np.ndarray, most: int) -> np.ndarray:
            return rows if len(rows) <= most else np.sort(draw.choice(rows, most, replace=False))

        chosen, asked = some(self.choose_queries, choose_queries), some(self.queries, queries)
        return replace(self, choose_queries=chosen, queries=asked)

    @property
    def pairs(self) -> Tensor:
        """Rows that a bridge may be fitted to and chosen by: all that it is not measured on."""
        together = np.concatenate([self.fit, self.choose_queries, self.choose_gallery])
        return torch.from_numpy(np.unique(together))


def split_items(labels: np.ndarray, *, held_out: float, seed: int) -> Split | None:
    """Hold out the share ``held_out`` of the items as queries and a fifth of the others for choosing, by ``seed``.

    The gallery is all items that are not queries, those that were fitted to included. Each query has an item of its
    class in the gallery. None if no class has two items.
    """
    draw = np.random.default_rng(seed)
    queries: list[np.ndarray] = []
    choosing: list[np.ndarray] = []
    kept: list[np.ndarray] = []
    order = np.argsort(labels, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        rows = draw.permutation(members)
        measured = min(max(1, round(held_out * len(rows))), len(rows) - 1)
        others = len(rows) - measured
        chosen = min(max(1, round(0.2 * others)), others - 1)
        queries.append(rows[:measured])
        choosing.append(rows[measured : measured + chosen])
        kept.append(rows[measured + chosen :])
    asked, choose, fit = (np.sort(np.concatenate(part)) for part in (queries, choosing, kept))
    if len(asked) == 0:
        return None
    return Split(fit, choose, fit, asked, np.sort(np.concatenate([choose, fit])), len(asked))


def split_classes(labels: np.ndarray, *, held_out: float, seed: int, name: str) -> Split:
    """Hold out the share ``held_out`` of the classes and use a fifth of the others for choosing, at random by ``seed``.

    No class serves two purposes. Only classes with two vectors or more are split: half of each are queries, half are
    the gallery.
    """
    draw = np.random.default_rng(seed)
    usable = draw.permutation(_shared_classes(labels))
    if len(usable) < FEWEST_CLASSES:
        raise HoldfastError(
            f"{name}: {counted(len(usable), 'class')} with two vectors or more; at least {FEWEST_CLASSES} are needed "
            "to compare ways (--way bridge and --way unchanged need none)"
        )
    num_held_out = min(max(2, round(held_out * len(usable))), len(usable) - 4)
    num_choosing = max(2, round(0.2 * (len(usable) - num_held_out)))
    queries: dict[str, list[np.ndarray]] = {"test": [], "choose": []}
    gallery: dict[str, list[np.ndarray]] = {"test": [], "choose": []}
    for place, label in enumerate(usable[: num_held_out + num_choosing]):
        part = "test" if place < num_held_out else "choose"
        rows = draw.permutation(np.flatnonzero(labels == label))
        queries[part].append(rows[: len(rows) // 2])
        gallery[part].append(rows[len(rows) // 2 :])
    fitting = np.flatnonzero(~np.isin(labels, usable[: num_held_out + num_choosing]))
    choose_queries, choose_gallery, asked, searched = (
        np.sort(np.concatenate(found[part])) for part in ("choose", "test") for found in (queries, gallery)
    )
    return Split(fitting, choose_queries, choose_gallery, asked, searched, len(asked))


def few_classes(labels: np.ndarray) -> bool:
    """Whether there are too few classes for ``split_classes``."""
    return len(_shared_classes(labels)) < FEWEST_CLASSES


def _shared_classes(labels: np.ndarray) -> np.ndarray:
    """The classes of two vectors or more."""
    return np.flatnonzero(np.bincount(labels) >= 2)


def _labels(given: str | Path | ArrayLike) -> np.ndarray:
    if not isinstance(given, str | Path):
        return real_array(given, "labels")
    path = Path(given)
    if path.suffix.lower() == ".npy":
        return read_array(path)
    try:
        return np.array(path.read_text(encoding="utf-8-sig").splitlines(), dtype=str)
    except FileNotFoundError:
        raise HoldfastError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"{path}: not readable as text, one label a line ({error})") from error

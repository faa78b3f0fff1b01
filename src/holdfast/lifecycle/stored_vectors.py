"""Stored vectors with their classes: read, checked, and split by class."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.evaluation import FeatureSet, feature_set
from holdfast.evaluation.feature_files import read_features
from holdfast.evaluation.feature_set import rows_of_ids, shorten
from holdfast.evaluation.search import VectorProblems, float32
from holdfast.geometry import unit
from holdfast.storage import read_array
from holdfast.wording import are, counted

FEWEST_CLASSES = 8
"""Classes are needed to fit with, to choose by, and to hold out, at least two of each."""


@dataclass(frozen=True)
class StoredVectors:
    """N unit vectors (N x D, float32) with their classes.

    labels: N, indices into ``class_names``.
    ids: N strings; row numbers if the file has none (``has_ids`` is False).
    """

    name: str
    vectors: Tensor
    labels: np.ndarray
    class_names: tuple[str, ...]
    ids: np.ndarray
    has_ids: bool

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])


def read_stored(
    features: str | Path | FeatureSet | ArrayLike,
    labels: str | Path | ArrayLike | None = None,
    ids: ArrayLike | None = None,
) -> StoredVectors:
    """Vectors from a file (``read_features``), a FeatureSet or an array, with their classes.

    features: N x D.
    labels: a file (npy, or text with one label a line) or an array; None takes those in the features' file.
    ids: N, for an array of features.

    Refused: another number of labels than of vectors, vectors that are zero or not finite, fewer than two classes.
    """
    found = _open(features, ids)
    given = found.labels if labels is None else _labels(labels)
    if given is None:
        raise HoldfastError(f"{found.name}: has no labels; give them (--labels), one for each vector")
    if given.shape != (len(found),):
        raise HoldfastError(f"{found.name}: {len(found)} vectors but labels of shape {given.shape}; one each is needed")
    vectors = float32(found.rows.block(0, len(found)), "cpu")
    problems = VectorProblems(found.name, len(found))
    problems.inspect(np.arange(len(found)), vectors)
    for kind, bad in (("not finite", problems.not_finite), ("zero", problems.zero)):
        if bad:
            rows, them = ("row", "it") if len(bad) == 1 else ("rows", "them")
            what = f"{counted(len(bad), 'vector')} {are(len(bad))} {kind} ({rows} {shorten(bad)})"
            raise HoldfastError(f"{found.name}: {what}; leave {them} out")
    names, codes = np.unique(given, return_inverse=True)
    if len(names) < 2:
        raise HoldfastError(f"{found.name}: one class only ({names[0]}); a space is judged by telling classes apart")
    return StoredVectors(
        found.name,
        unit(vectors),
        codes,
        tuple(str(name) for name in names),
        found.names().astype(str),
        found.ids is not None,
    )


def paired_rows(old: StoredVectors, new: FeatureSet) -> Tensor:
    """The new model's unit vectors (N x D') in the old ones' order: by id if both have ids, else row by row."""
    rows = np.arange(len(new))
    if old.has_ids and new.ids is not None:
        rows = rows_of_ids(old.ids, new, old.name)
    elif len(new) != len(old):
        raise HoldfastError(f"{new.name}: {len(new)} vectors, but {len(old)} in {old.name}; give both ids")
    vectors = float32(new.rows.take(rows), "cpu")
    if not bool(vectors.isfinite().all()) or not bool(vectors.any(1).all()):
        raise HoldfastError(f"{new.name}: holds vectors that are zero or not finite; leave them out")
    return unit(vectors)


@dataclass(frozen=True)
class ClassSplit:
    """Rows by purpose; no class serves two purposes.

    fit: for fitting.
    choose_queries, choose_gallery: for choosing settings.
    queries, gallery: of the held-out classes.
    """

    fit: np.ndarray
    choose_queries: np.ndarray
    choose_gallery: np.ndarray
    queries: np.ndarray
    gallery: np.ndarray


def split_classes(labels: np.ndarray, *, held_out: float, seed: int, name: str) -> ClassSplit:
    """Hold out the share ``held_out`` of the classes and use a fifth of the others for choosing, at random by ``seed``.

    Only classes with two vectors or more are split: half of each are queries, half are the gallery.
    """
    if not 0 < held_out < 1:
        raise HoldfastError(f"held-out must be a share of the classes between 0 and 1, got {held_out:g}")
    counts = np.bincount(labels)
    draw = np.random.default_rng(seed)
    usable = draw.permutation(np.flatnonzero(counts >= 2))
    if len(usable) < FEWEST_CLASSES:
        raise HoldfastError(
            f"{name}: {counted(len(usable), 'class')} with two vectors or more; at least {FEWEST_CLASSES} are needed"
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
    parts = (np.sort(np.concatenate(found[part])) for part in ("choose", "test") for found in (queries, gallery))
    return ClassSplit(fitting, *parts)


def _open(features: str | Path | FeatureSet | ArrayLike, ids: ArrayLike | None) -> FeatureSet:
    if isinstance(features, FeatureSet):
        return features
    if isinstance(features, str | Path):
        return read_features(features, "gallery")
    return feature_set("features", features, None, ids)


def _labels(given: str | Path | ArrayLike) -> np.ndarray:
    if not isinstance(given, str | Path):
        return np.asarray(given)
    path = Path(given)
    if path.suffix.lower() == ".npy":
        return read_array(path)
    try:
        return np.array(path.read_text(encoding="utf-8-sig").splitlines(), dtype=str)
    except FileNotFoundError:
        raise HoldfastError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"{path}: not readable as text, one label a line ({error})") from error

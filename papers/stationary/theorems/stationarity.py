"""Measured stationarity: how an update of a trained model changed its classes, in the terms of Theorem 1.

The theorem assumes prototypes that do not move (stationarity), caps around them that do not grow (A3), and independent
old and new features (A2). Each assumption is measured here from features of the same images under both models.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.core.errors import HoldfastError

Rows = NDArray[np.floating[Any]]
CAP_SHARE = 0.95
"""The cap of a class is the smallest around its prototype that contains this share of its samples. With a share of 1 a
single outlier would decide."""
_BLOCK = 1 << 22  # similarities in memory at a time


@dataclass(frozen=True)
class Pairs:
    """Eq. 1a or 1b over ordered pairs of different images: the old feature of one, the old or new of the other.

    share: share of the pairs that satisfy the inequality; NaN without pairs.
    kt: mean cosine distance, old to new.
    kk: mean cosine distance, old to old.
    count: number of pairs.
    by_class: share of the classes (Eq. 1a) or ordered pairs of classes (Eq. 1b) that satisfy it on average over their
        own pairs; NaN without pairs.
    """

    share: float
    kt: float
    kk: float
    count: int
    by_class: float


@dataclass(frozen=True)
class Update:
    """The classes before (old) and after (new) an update. Arrays have one entry per class; angles are in radians.

    classes: labels.
    old_class_mean, new_class_mean: angle from the class's mean feature to its prototype.
    old_cap, new_cap: polar angle of the class's cap.
    moved: angle between the old and the new prototype.
    mean_moved: angle between the old and the new mean feature.
    same: Eq. 1a, pairs of one class.
    different: Eq. 1b, pairs of different classes.
    same_image: mean cosine distance of an image's old feature to its new one. For independent features (A2) it would
        equal ``same.kt``.
    """

    classes: NDArray[np.int64]
    old_class_mean: NDArray[np.float64]
    new_class_mean: NDArray[np.float64]
    old_cap: NDArray[np.float64]
    new_cap: NDArray[np.float64]
    moved: NDArray[np.float64]
    mean_moved: NDArray[np.float64]
    same: Pairs
    different: Pairs
    same_image: float

    @property
    def shrank(self) -> NDArray[np.bool_]:
        """Assumption A3 for each class: the new cap is not larger than the old."""
        return self.new_cap <= self.old_cap

    @property
    def nested(self) -> NDArray[np.bool_]:
        """Whether the new cap of each class lies inside the old one: it shrank by at least what its prototype moved."""
        return self.moved + self.new_cap <= self.old_cap

    def to_json(self, names: list[str]) -> dict[str, Any]:
        """As JSON, with angles in degrees. names: class names in the order of ``classes``."""
        angles = ("old_class_mean", "new_class_mean", "old_cap", "new_cap", "moved", "mean_moved")
        degrees = {name: np.degrees(getattr(self, name)) for name in angles}
        return {
            "num_classes": len(self.classes),
            "shrank": float(self.shrank.mean()),
            "nested": float(self.nested.mean()),
            **{name: float(values.mean()) for name, values in degrees.items()},
            "same": {**vars(self.same), "holds_on_average": bool(self.same.kt <= self.same.kk)},
            "different": {**vars(self.different), "holds_on_average": bool(self.different.kt >= self.different.kk)},
            "same_image": self.same_image,
            "classes": [
                {"name": name, **{key: round(float(values[i]), 3) for key, values in degrees.items()}}
                for i, name in enumerate(names)
            ],
        }


def compare_models(
    old: Rows,
    new: Rows,
    labels: NDArray[np.integer[Any]],
    old_prototypes: Rows,
    new_prototypes: Rows,
    *,
    device: torch.device | str = "cpu",
) -> Update:
    """Measure how an update changed the classes.

    old, new: features of the same images under the old and the new model, N x d, of any length.
    labels: N, values 0..C-1; every class needs at least one image.
    old_prototypes, new_prototypes: C x d; equal for a fixed classifier.
    device: where the N x N similarities are computed, in float64.
    """
    if old.shape != new.shape or old.ndim != 2 or len(labels) != len(old):
        raise HoldfastError(
            f"features {old.shape} and {new.shape} with {len(labels)} labels cannot be compared; all need the same N"
        )
    classes = np.unique(labels).astype(np.int64)
    if not np.array_equal(classes, np.arange(len(old_prototypes))):
        raise HoldfastError(f"labels must be 0..{len(old_prototypes) - 1}, each with at least one image")
    old, new, old_prototypes, new_prototypes = (_unit(rows) for rows in (old, new, old_prototypes, new_prototypes))
    old_means, new_means = _class_means(old, labels), _class_means(new, labels)
    same, different = _pairs(old, new, labels, device)
    return Update(
        classes=classes,
        old_class_mean=_angle(old_means, old_prototypes),
        new_class_mean=_angle(new_means, new_prototypes),
        old_cap=_caps(old, labels, old_prototypes),
        new_cap=_caps(new, labels, new_prototypes),
        moved=_angle(old_prototypes, new_prototypes),
        mean_moved=_angle(old_means, new_means),
        same=same,
        different=different,
        same_image=float(1 - (old * new).sum(1).mean()),
    )


def _pairs(old: Rows, new: Rows, labels: NDArray[np.integer[Any]], device: torch.device | str) -> tuple[Pairs, Pairs]:
    """Eq. 1a and 1b over all ordered pairs of different images."""
    before, after = (torch.from_numpy(rows).to(device) for rows in (old, new))
    own = torch.from_numpy(labels.astype(np.int64)).to(device)
    satisfied = torch.zeros(2, dtype=torch.int64, device=device)
    block = max(1, _BLOCK // len(old))
    for start in range(0, len(old), block):
        rows = slice(start, start + block)
        to_new, to_old = before[rows] @ after.T, before[rows] @ before.T
        same = own[rows, None] == own[None, :]
        satisfied[1] += ((to_new <= to_old) & ~same).sum()
        same.diagonal(start).fill_(False)
        satisfied[0] += ((to_new >= to_old) & same).sum()
    kt, counts = _class_similarities(before, after, own)
    kk, _ = _class_similarities(before, before, own)
    within = torch.eye(len(counts), dtype=torch.bool, device=device)
    found = []
    for kind, (chosen, sign) in enumerate(((within, 1), (~within, -1))):
        chosen &= counts > 0  # a class of one image has no pairs
        pairs = counts[chosen].sum()
        found.append(
            Pairs(
                share=float(satisfied[kind].double() / pairs),
                kt=float(1 - kt[chosen].sum() / pairs),
                kk=float(1 - kk[chosen].sum() / pairs),
                count=int(pairs),
                by_class=float((sign * (kt - kk)[chosen] >= 0).double().mean()),
            )
        )
    return found[0], found[1]


def _class_similarities(one: Tensor, other: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Summed similarities of each ordered pair of classes, C x C, without an image's with itself; and their numbers."""
    classes = int(labels.max()) + 1
    sums = [torch.zeros(classes, one.shape[1], dtype=one.dtype, device=one.device) for _ in range(2)]
    for total, rows in zip(sums, (one, other)):
        total.index_add_(0, labels, rows)
    similarities = sums[0] @ sums[1].T
    itself = torch.zeros(classes, dtype=one.dtype, device=one.device).index_add_(0, labels, (one * other).sum(1))
    images = torch.bincount(labels, minlength=classes)
    return similarities - itself.diag(), images[:, None] * images[None, :] - images.diag()


def _caps(rows: Rows, labels: NDArray[np.integer[Any]], prototypes: Rows) -> NDArray[np.float64]:
    angles = _angle(rows, prototypes[labels])
    return np.array([np.quantile(angles[labels == label], CAP_SHARE) for label in range(len(prototypes))])


def _class_means(rows: Rows, labels: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    return _unit(np.stack([rows[labels == label].mean(0) for label in range(int(labels.max()) + 1)]))


def _unit(rows: Rows) -> NDArray[np.float64]:
    rows = np.asarray(rows, dtype=np.float64)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def _angle(a: Rows, b: Rows) -> NDArray[np.float64]:
    """Angle between row i of ``a`` and of ``b``, unit rows, by the half-angle form, which is accurate near 0."""
    return 2 * np.arctan2(np.linalg.norm(a - b, axis=1), np.linalg.norm(a + b, axis=1))

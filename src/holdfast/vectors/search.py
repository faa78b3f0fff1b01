"""Exact search in a gallery of any size, read block by block."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.wording import are, counted
from holdfast.train.geometry import unit
from holdfast.vectors.feature_set import FeatureSet, shorten
from holdfast.vectors.neighbours import Neighbours, merge_neighbours, nearest

BLOCK_BYTES = 1 << 27
"""Gallery rows held at once, in bytes of float32: 128 MB."""
_CHUNK = 1 << 14  # blocks are multiples of the search's own chunk, so that blocks change no bit of a score
_LENGTH_TOLERANCE = 1e-3
_SHORT, _LONG = 1e-9, 1e15

Progress = Callable[[str, int, int], None]
"""Called with the stage, the amount done and the total."""


@dataclass
class VectorProblems:
    """Rows of one feature set that cannot be compared, and whether others had to be scaled to length 1."""

    name: str
    rows: int
    not_finite: list[int] = field(default_factory=list)
    zero: list[int] = field(default_factory=list)
    rescaled: bool = False

    def inspect(self, numbers: np.ndarray, raw: Tensor) -> Tensor:
        """Record the unusable rows of ``raw`` (n x d, the rows ``numbers``); returns which are usable (n, boolean)."""
        lengths = raw.norm(dim=1)
        finite = lengths.isfinite() & raw.isfinite().all(1) if not bool(lengths.isfinite().all()) else lengths >= 0
        good = finite & (lengths > 0)
        if not bool(good.all()):
            self.not_finite += numbers[(~finite).cpu().numpy()].tolist()
            self.zero += numbers[(finite & (lengths == 0)).cpu().numpy()].tolist()
        self.rescaled |= bool(((lengths[good] - 1).abs() > _LENGTH_TOLERANCE).any())
        return good

    def refuse(self) -> None:
        """Raise an error that names the unusable rows, if there are any."""
        for kind, bad in (("not finite", self.not_finite), ("zero", self.zero)):
            if bad:
                rows, them = ("row", "it") if len(bad) == 1 else ("rows", "them")
                what = f"{counted(len(bad), 'vector')} {are(len(bad))} {kind} ({rows} {shorten(bad)})"
                raise HoldfastError(f"{self.name}: {what}; leave {them} out")

    def notes(self, consequence: str) -> list[str]:
        found = []
        for kind, rows in (("not finite", self.not_finite), ("zero", self.zero)):
            if rows:
                which = f"row{'s' if len(rows) > 1 else ''} {shorten(rows, 10)}"
                share = f"{len(rows):,} of {counted(self.rows, 'vector')}"
                found.append(f"{self.name}: {share} {are(len(rows))} {kind} ({which}); {consequence}")
        if self.rescaled:
            found.append(f"{self.name}: not of length 1; every vector was scaled to it, because cosines are compared")
        return found


def unit_queries(queries: FeatureSet, rows: np.ndarray, device: torch.device | str) -> tuple[Tensor, VectorProblems]:
    """The queries of these row numbers as unit rows; an unusable query becomes zeros and finds nothing.

    Refused if all are unusable.
    """
    raw = float32(queries.rows.take(rows), device)
    problems = VectorProblems(queries.name, len(queries))
    good = problems.inspect(rows, raw)
    if not bool(good.any()):
        raise HoldfastError(f"{queries.name}: holds no usable query; all are zero or not finite")
    return unit(torch.where(good[:, None], raw, 0.0)), problems


def unit_blocks(
    gallery: FeatureSet, problems: VectorProblems, device: torch.device | str, progress: Progress
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Row numbers and unit rows, block by block; unusable rows are left out and recorded in ``problems``."""
    height = max(1, BLOCK_BYTES // (4 * gallery.dim))
    if height > _CHUNK:
        height -= height % _CHUNK
    for start in range(0, len(gallery), height):
        stop = min(start + height, len(gallery))
        raw = float32(gallery.rows.block(start, stop), device)
        numbers = np.arange(start, stop)
        good = problems.inspect(gallery.row_numbers(start, stop), raw)
        if not bool(good.all()):
            raw, numbers = raw[good], numbers[good.cpu().numpy()]
        if len(numbers):
            yield numbers, unit(raw)
        progress(gallery.name, stop, len(gallery))


def search_blocks(
    blocks: Iterator[tuple[np.ndarray, Tensor]], query_sets: Sequence[Tensor], k: int, name: str
) -> tuple[list[Neighbours], np.ndarray]:
    """The ``k`` best rows for each set of unit queries, and the numbers of all usable rows."""
    best: list[Neighbours | None] = [None] * len(query_sets)
    usable = []
    for numbers, features in blocks:
        where = torch.from_numpy(numbers).to(features.device)
        usable.append(numbers)
        for i, queries in enumerate(query_sets):
            found = nearest(queries, features, k)
            found = Neighbours(found.scores, where[found.indices])
            earlier = best[i]
            best[i] = found if earlier is None else merge_neighbours(earlier, found, k)
    if not usable:
        raise HoldfastError(f"{name}: holds no usable vector; all are zero or not finite")
    return [found for found in best if found is not None], np.concatenate(usable)


def class_templates(
    blocks: Iterator[tuple[np.ndarray, Tensor]], codes: np.ndarray, dim: int, device: torch.device | str
) -> tuple[Tensor, np.ndarray, np.ndarray]:
    """One unit vector per class, the mean of its unit rows; the classes, ascending; the numbers of the rows used."""
    sums = torch.zeros(int(codes.max()) + 1, dim, device=device)
    usable = []
    for numbers, features in blocks:
        sums.index_add_(0, torch.from_numpy(codes[numbers]).to(device), features)
        usable.append(numbers)
    rows = np.concatenate(usable) if usable else np.zeros(0, dtype=np.int64)
    classes = np.unique(codes[rows])
    return unit(sums[torch.from_numpy(classes).to(device)]), classes, rows


def float32(array: np.ndarray, device: torch.device | str) -> Tensor:
    """Rows of any number type as float32 on ``device``.

    Rows with a length that float32 cannot represent are scaled first: only directions are compared.
    """
    with np.errstate(over="ignore"):
        rows = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
    lengths = rows.norm(dim=1)
    extreme = np.flatnonzero(~((lengths > _SHORT) & (lengths < _LONG)).numpy())
    if len(extreme):
        rows = rows.clone()  # the array belongs to the caller, and may be a file that is only open for reading
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
            exact = array[extreme].astype(np.float64)
        largest = np.abs(exact).max(axis=1, keepdims=True)
        usable = np.isfinite(largest) & (largest > 0)  # NaN, infinite and zero rows are kept, so that they are reported
        rows[torch.from_numpy(extreme)] = torch.from_numpy(np.divide(exact, largest, out=exact, where=usable)).float()
    return rows.to(device)

"""Exact search in a gallery of any size, read block by block."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import real_array
from holdfast.core.wording import are, counted
from holdfast.vectors.feature_set import FeatureSet, shorten
from holdfast.vectors.lengths import row_lengths, unit
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

    def inspect(self, numbers: np.ndarray, raw: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Record the unusable rows of ``raw`` (n x d, the rows ``numbers``); returns which are usable (n, boolean)."""
        lengths = row_lengths(raw)
        finite = np.isfinite(lengths)
        if not finite.all():
            finite &= np.isfinite(raw).all(axis=1)
        good = finite & (lengths > 0)
        if not good.all():
            self.not_finite += numbers[~finite].tolist()
            self.zero += numbers[finite & (lengths == 0)].tolist()
        self.rescaled |= bool((np.abs(lengths[good] - 1) > _LENGTH_TOLERANCE).any())
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


def unit_queries(queries: FeatureSet, rows: np.ndarray) -> tuple[NDArray[np.float32], VectorProblems]:
    """The queries of these row numbers as unit rows; an unusable query becomes zeros and finds nothing.

    Refused if all are unusable.
    """
    raw = float32(queries.rows.take(rows))
    problems = VectorProblems(queries.name, len(queries))
    good = problems.inspect(rows, raw)
    if not good.any():
        raise HoldfastError(f"{queries.name}: holds no usable query; all are zero or not finite")
    return unit(np.where(good[:, None], raw, np.float32(0))), problems


def unit_blocks(
    gallery: FeatureSet, problems: VectorProblems, progress: Progress
) -> Iterator[tuple[np.ndarray, NDArray[np.float32]]]:
    """Row numbers and unit rows, block by block; unusable rows are left out and recorded in ``problems``."""
    height = max(1, BLOCK_BYTES // (4 * gallery.dim))
    if height > _CHUNK:
        height -= height % _CHUNK
    for start in range(0, len(gallery), height):
        stop = min(start + height, len(gallery))
        raw = float32(gallery.rows.block(start, stop))
        numbers = np.arange(start, stop)
        good = problems.inspect(gallery.row_numbers(start, stop), raw)
        if not good.all():
            raw, numbers = raw[good], numbers[good]
        if len(numbers):
            yield numbers, unit(raw)
        progress(gallery.name, stop, len(gallery))


def search_blocks(
    blocks: Iterator[tuple[np.ndarray, NDArray[np.float32]]],
    query_sets: Sequence[NDArray[np.float32]],
    k: int,
    name: str,
    device: Any = "cpu",
) -> tuple[list[Neighbours], np.ndarray]:
    """The ``k`` best rows for each set of unit queries, and the numbers of all usable rows."""
    best: list[Neighbours | None] = [None] * len(query_sets)
    usable = []
    for numbers, features in blocks:
        usable.append(numbers)
        for i, queries in enumerate(query_sets):
            hits = nearest(queries, features, k, device=device)
            hits = Neighbours(hits.scores, numbers[hits.indices])
            earlier = best[i]
            best[i] = hits if earlier is None else merge_neighbours(earlier, hits, k)
    if not usable:
        raise HoldfastError(f"{name}: holds no usable vector; all are zero or not finite")
    return [hits for hits in best if hits is not None], np.concatenate(usable)


def class_templates(
    blocks: Iterator[tuple[np.ndarray, NDArray[np.float32]]], codes: np.ndarray, dim: int
) -> tuple[NDArray[np.float32], np.ndarray, np.ndarray]:
    """One unit vector per class, the mean of its unit rows; the classes, ascending; the numbers of the rows used."""
    sums = np.zeros((int(codes.max()) + 1, dim), dtype=np.float32)
    usable = []
    for numbers, features in blocks:
        order = np.argsort(codes[numbers], kind="stable")
        present, first = np.unique(codes[numbers][order], return_index=True)
        sums[present] += np.add.reduceat(features[order], first, axis=0)
        usable.append(numbers)
    rows = np.concatenate(usable) if usable else np.zeros(0, dtype=np.int64)
    classes = np.unique(codes[rows])
    return unit(sums[classes]), classes, rows


def float32(array: ArrayLike) -> NDArray[np.float32]:
    """Rows of any number type as float32.

    Rows with a length that float32 cannot represent are scaled first: only directions are compared.
    """
    given = real_array(array, "vectors")
    with np.errstate(over="ignore", invalid="ignore"):
        rows: NDArray[np.float32] = np.ascontiguousarray(given, dtype=np.float32)
    lengths = row_lengths(rows)
    extreme = np.flatnonzero(~((lengths > _SHORT) & (lengths < _LONG)))
    if len(extreme):
        rows = rows.copy()  # the array belongs to the caller, and may be a file that is only open for reading
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
            exact = given[extreme].astype(np.float64)
        largest = np.abs(exact).max(axis=1, keepdims=True)
        usable = np.isfinite(largest) & (largest > 0)  # NaN, infinite and zero rows are kept, so that they are reported
        rows[extreme] = np.divide(exact, largest, out=exact, where=usable)
    return rows

"""A user's vectors in npz or parquet files: embeddings of text, sound or products, each row an item."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast.data.vectors import ALL, VECTOR_SUFFIXES, of_split, read_labelled
from holdfast.errors import HoldfastError
from holdfast.updating.pictures import Picture
from holdfast.wording import counted


@dataclass(frozen=True)
class VectorRows:
    """features, labels: what the two arrays or columns are called. width: of a vector; None where any will do yet."""

    features: str
    labels: str
    width: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return 1, 1, self.width or 0

    def find(self, source: Path) -> list[Picture]:
        """Every vector of a file."""
        if source.suffix not in VECTOR_SUFFIXES:
            raise HoldfastError(f"{source}: this model takes vectors; give an npz or parquet file of them")
        rows, classes, said = read_labelled(source, self.features, self.labels)
        self._refuse_other_width(rows, source)
        kept = of_split(said, ALL if said is None else "train", len(rows), source)
        path, names = source.absolute(), classes.astype(str)
        return [Picture(str(names[row]), path, _hash(rows[row])) for row in kept]

    def read(self, pictures: Sequence[Picture]) -> np.ndarray:
        """float32, N x 1 x 1 x D: a vector is an image of one pixel. Rows are found by their content."""
        found: dict[tuple[Path, str], np.ndarray] = {}
        for path in dict.fromkeys(one.path for one in pictures):
            rows, _, _ = read_labelled(path, self.features, self.labels)
            self._refuse_other_width(rows, path)
            found.update({(path, _hash(row)): row for row in rows})
        missing = [one.path for one in pictures if (one.path, one.sha256) not in found]
        if missing:
            raise HoldfastError(f"{missing[0]}: {counted(len(missing), 'vector')} changed while being read")
        vectors = [found[one.path, one.sha256] for one in pictures]
        return np.stack(vectors)[:, None, None, :] if vectors else np.zeros((0, *self.shape), np.float32)

    def unchanged(self, pictures: Sequence[Picture]) -> list[Picture]:
        there: set[tuple[Path, str]] = set()
        for path in dict.fromkeys(one.path for one in pictures if one.path.is_file()):
            rows, _, _ = read_labelled(path, self.features, self.labels)
            there.update((path, _hash(row)) for row in rows)
        return [one for one in pictures if (one.path, one.sha256) in there]

    def called(self, picture: Picture) -> str:
        return f"{picture.path}#{picture.sha256[:16]}"

    def _refuse_other_width(self, rows: np.ndarray, file: Path) -> None:
        if self.width is not None and rows.shape[1] != self.width:
            raise HoldfastError(f"{file}: vectors of {rows.shape[1]} numbers, but the model takes {self.width}")


def _hash(row: np.ndarray) -> str:
    return hashlib.sha256(row.tobytes()).hexdigest()

"""What a version is trained and judged on: one picture or one vector each, known by its content."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Picture:
    """One image file, or one vector of a file: the name of its class, the file, and the hash of its bytes."""

    name: str
    path: Path
    sha256: str


class Reader(Protocol):
    """How a user's files are read, as pictures or as vectors."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one item as it is trained on: H x W x C."""

    def find(self, source: Path) -> list[Picture]:
        """Every item of ``source``, split ``train`` where there are splits."""

    def read(self, pictures: Sequence[Picture]) -> np.ndarray:
        """N x ``shape``."""

    def unchanged(self, pictures: Sequence[Picture]) -> list[Picture]:
        """Those that are still there, with the content they had."""

    def called(self, picture: Picture) -> str:
        """Its name in a report."""


def held_out(pictures: Sequence[Picture], share: float, already: frozenset[str]) -> np.ndarray:
    """Which pictures are for judging and never trained on: N booleans, about ``share`` of them.

    Decided by each file's content alone, so that a picture that comes again with a later version is on the same side;
    ``already`` are hashes that an earlier version held out. Of every class at least one picture is trained on.
    """
    places = np.array([int(picture.sha256[:8], 16) / 16**8 for picture in pictures])
    held = (places < share) | np.array([picture.sha256 in already for picture in pictures], dtype=bool)
    names = np.array([picture.name for picture in pictures])
    for name in np.unique(names):
        rows = np.flatnonzero(names == name)
        if held[rows].all() and not any(pictures[int(row)].sha256 in already for row in rows):
            held[rows[places[rows].argmax()]] = False
    return held

"""Which convolutions go row by row, and how their work is cut into strips: some rows of some images to a program."""

from dataclasses import dataclass

from torch import Tensor

BY_ROWS = True
"""Whether training goes row by row where it can, unless told otherwise."""


@dataclass(frozen=True)
class RowTiles:
    """pixels: of one row, in as many images as that takes; rows: per program, at most; warps and stages: of Triton."""

    pixels: int
    rows: int
    warps: int
    stages: int = 3


FORWARD_ROWS = {16: RowTiles(32, 8, 1)}
BACK_ROWS = {16: RowTiles(32, 8, 1)}
"""By channels. From 32 on the weights fill a program's registers, and tap by tap was faster (bench/README.md)."""


@dataclass(frozen=True)
class NineTiles:
    """parts, block: as ``Tiles`` has them for the weights' gradient; shifts: columns of taps per program, 1 or 3."""

    parts: int
    block: int
    shifts: int = 3
    warps: int = 4
    stages: int = 3


NINE_TAPS = {16: NineTiles(128, 64, stages=4), 32: NineTiles(128, 32)}
"""By channels, for ``weight_parts_nine``."""


@dataclass(frozen=True)
class Strips:
    """One kernel's work: its grid, and what it is told about it."""

    grid: tuple[int]
    options: dict[str, int]


def strips(tiles: dict[int, RowTiles], stride: int, y: Tensor) -> Strips | None:
    """How the convolution that makes y, N x H x W x C, is cut; None where it has to go tap by tap."""
    images, height, width, channels = y.shape
    if stride != 1 or channels not in tiles:
        return None
    cut = tiles[channels]
    rows, together = min(cut.rows, height), cut.pixels // width
    if cut.pixels % width or height % rows:  # pixels is a power of two, and so must a row be
        return None
    options = {"HEIGHT": height, "WIDTH": width, "IMAGES": together, "ROWS": rows}
    options |= {"STAGES": cut.stages, "num_warps": cut.warps}
    return Strips((-(-images // together) * (height // rows),), options)

"""How the theory's figures look. Figures are made without pyplot: no window, no global state."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError
from holdfast.storage import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OLD, NEW, QUIET, INK = "#c0392b", "#1487a8", "#9aa0a6", "#22262a"
SERIES = ("#22262a", "#1487a8", "#c0392b", "#d18b00", "#5b7f2b", "#7b4fa3")
SUFFIXES = (".png", ".svg", ".pdf")


def new_figure(width: float, height: float, panels: int = 1) -> tuple["Figure", list[Any]]:
    """A white figure of ``width`` x ``height`` inches with ``panels`` axes side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    axes = [figure.add_subplot(1, panels, i + 1) for i in range(panels)]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color="#e8eaed", linewidth=0.7)
        axis.set_axisbelow(True)
    return figure, axes


def schematic(axis: Any) -> None:
    """Take away what a picture without scales does not need."""
    axis.set_aspect("equal")
    axis.axis("off")


def save(figure: "Figure", path: Path) -> None:
    """Write the figure in one step; the name's ending says how."""
    if path.suffix.lower() not in SUFFIXES:
        raise HoldfastError(f"{path}: a figure ends in one of {', '.join(SUFFIXES)}")
    with replacing(path) as temporary:
        # No date and no version in the file: the same numbers give the same bytes.
        plain = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        figure.savefig(temporary, metadata=plain[path.suffix.lower()])

"""Figure 3: the loss while fine-tuning on five more classes, cross-entropy alone against HOC."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.theory.drawing import NEW, OLD, new_figure, save


def draw_toy(path: Path, record: Mapping[str, Any]) -> None:
    """Draw the record that ``holdfast theory toy`` writes: the minimised loss, and its cross-entropy part alone.

    The two runs minimise different losses, so their totals share no scale; the cross-entropy part does.
    """
    try:
        curves = record["curves"]
        totals = {name: curves[name]["loss"] for name in ("ce", "hoc")}
        parts = {name: curves[name]["ce"] for name in ("ce", "hoc")}
        title = str(record["data"])
    except (KeyError, TypeError) as error:
        raise HoldfastError(f"not a record of the toy: {error} is missing; holdfast theory toy writes one") from error
    figure, axes = new_figure(9.0, 3.7, 2)
    looks = (("ce", OLD, "cross-entropy (λ = 1)"), ("hoc", NEW, f"HOC (λ = {record['lambda']:g})"))
    for axis, values, heading in zip(axes, (totals, parts), ("the loss that is minimised", "its cross-entropy part")):
        for name, colour, label in looks:
            axis.plot(range(1, len(values[name]) + 1), values[name], color=colour, label=label)
        axis.set(xlabel="epoch of fine-tuning", ylabel="training loss")
        axis.set_title(f"{heading}, {title}", fontsize=10)
        axis.legend(frameon=False, fontsize=9)
    axes[0].set_ylim(bottom=min(0, axes[0].get_ylim()[0]))
    axes[1].set_yscale("log")
    save(figure, path)

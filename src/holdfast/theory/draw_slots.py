"""Figure 5: who owns which vertex as pre-trained models are replaced and fine-tuning goes on."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.theory.drawing import INK, NEW, OLD, new_figure, save


class SlotRow(NamedTuple):
    """One model: its name, and the slots that pre-training and fine-tuning own in it."""

    name: str
    pretrained: Sequence[int]
    finetuned: Sequence[int]
    replacement: bool


def draw_slots(path: Path, rows: Sequence[SlotRow], num_slots: int) -> None:
    """A strip of slots per model, oldest on top; pre-training grows from the left, fine-tuning from the right."""
    figure, (axis,) = new_figure(8.4, 0.9 + 0.52 * len(rows))
    axis.grid(visible=False)
    axis.spines[["left", "bottom"]].set_visible(False)
    for at, row in enumerate(rows):
        axis.barh(at, num_slots, left=0, height=0.62, color="#eef0f2", edgecolor="#c9ced3", linewidth=0.8)
        for slots, colour in ((row.pretrained, NEW), (row.finetuned, OLD)):
            for start, length in _stretches(slots):
                axis.barh(at, length, left=start, height=0.62, color=colour)
        if row.pretrained:
            _count(axis, max(row.pretrained) + 1, at, len(row.pretrained), NEW, "left")
        if row.finetuned:
            _count(axis, min(row.finetuned), at, len(row.finetuned), OLD, "right")
    axis.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=9)
    for label, row in zip(axis.get_yticklabels(), rows):
        label.set_fontweight("bold" if row.replacement else "normal")
    axis.tick_params(length=0, colors=INK)
    axis.set_xticks([0, num_slots - 1], ["slot 0", f"slot {num_slots - 1}"], fontsize=9)
    axis.invert_yaxis()
    axis.barh(0, 0, color=NEW, label="pre-training classes, left to right")
    axis.barh(0, 0, color=OLD, label="fine-tuning classes, right to left")
    axis.barh(0, 0, color="#eef0f2", label="free")
    axis.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=3, frameon=False, fontsize=9)
    save(figure, path)


def _stretches(slots: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of neighbouring slots as (first, how many): a bar each, not one per slot."""
    runs: list[tuple[int, int]] = []
    for slot in sorted(slots):
        if runs and sum(runs[-1]) == slot:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((slot, 1))
    return runs


def _count(axis: object, x: float, y: float, number: int, colour: str, side: str) -> None:
    axis.annotate(  # type: ignore[attr-defined]
        str(number), (x, y), (5 if side == "left" else -5, 0), textcoords="offset points", va="center", ha=side,
        fontsize=9, color=colour,
    )  # fmt: skip

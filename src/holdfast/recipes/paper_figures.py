"""The paper's figures that need no experiment of their own, by name; each is a function of the file to write."""

from collections.abc import Callable
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.scenarios import SlotRegistry
from holdfast.storage import read_json
from holdfast.theory.draw_caps import draw_pairs, draw_update
from holdfast.theory.draw_curves import draw_densities, draw_theorem1
from holdfast.theory.draw_slots import SlotRow, draw_slots
from holdfast.theory.draw_toy import draw_toy

TOY_RECORD = Path(__file__).parents[3] / "results" / "theory" / "toy-mnist.json"


def draw_slot_registry(path: Path) -> None:
    """Fig. 5 by the real registry, at the paper's size: K = 1024, 7 tasks, replacements with 300 and 600 classes."""
    pretrained, finetuned = 100, 0
    registry = SlotRegistry(1024).take_left(_names("p", 0, 100))
    rows = [_row("φ*₀, pre-trained", registry, replacement=True)]
    for task in range(1, 8):
        if task in (3, 5):
            larger = {3: 300, 5: 600}[task]
            registry = registry.take_left(_names("p", pretrained, larger))
            pretrained = larger
            rows.append(_row(f"φ*{'₁' if task == 3 else '₂'}, replacement", registry, replacement=True))
        more = 10 if task == 1 else 15
        registry = registry.take_right(_names("f", finetuned, finetuned + more))
        finetuned += more
        rows.append(_row(f"task {task}, fine-tuned", registry, replacement=False))
    draw_slots(path, rows, registry.num_slots)


def draw_toy_record(path: Path) -> None:
    """Fig. 3 from the committed record of the toy."""
    if not TOY_RECORD.is_file():
        raise HoldfastError("fig3 is drawn from a record of the toy; holdfast theory toy --out FOLDER makes one")
    draw_toy(path, read_json(TOY_RECORD))


PAPER_FIGURES: dict[str, Callable[[Path], None]] = {
    "fig1": draw_update,
    "fig2": draw_pairs,
    "fig3": draw_toy_record,
    "fig5": draw_slot_registry,
    "fig11": draw_densities,
    "fig12": draw_theorem1,
}


def _names(kind: str, start: int, end: int) -> list[str]:
    return [f"{kind}{number}" for number in range(start, end)]


def _row(name: str, registry: SlotRegistry, *, replacement: bool) -> SlotRow:
    def owned(kind: str) -> list[int]:
        return [slot for owner, slot in registry.owners.items() if owner.startswith(kind)]

    return SlotRow(name, owned("p"), owned("f"), replacement)

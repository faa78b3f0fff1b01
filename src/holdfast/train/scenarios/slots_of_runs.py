"""The slot registries of the models of a run; ``SlotRegistry`` itself is plain data that a gallery reads, too."""

from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.core.storage import read_json
from holdfast.embedders.slot_registry import MOST_SLOTS, SimplexTurn, SlotRegistry

__all__ = ["MOST_SLOTS", "SimplexTurn", "SlotRegistry", "refuse_incompatible_slots_in_run", "registry_from_info"]


def registry_from_info(value: object, folder: Path) -> SlotRegistry:
    """Read the slots from a model's description; errors name the folder."""
    try:
        return SlotRegistry.from_json(value)
    except HoldfastError as error:
        raise HoldfastError(f"{folder}: {error}") from error


def refuse_incompatible_slots_in_run(run: RunFolder, count: int) -> None:
    """Refuse the first ``count`` models of a run if they cannot share a space; deleted models are left out.

    That is: different numbers of slots, a class with two slots, a slot with two classes, a simplex that was turned in
    different ways, or a slot record in some models only. Only the models' descriptions are read, not their weights.
    """
    together: SlotRegistry | None = None
    without: list[Path] = []
    folders = (run.model(number) for number in range(1, count + 1))
    for folder in (folder for folder in folders if (folder / "config.json").exists()):
        description = read_json(folder / "config.json")
        slots = description.get("info", {}).get("slots") if isinstance(description, dict) else None
        if slots is None:
            without.append(folder)
            continue
        registry = registry_from_info(slots, folder)
        try:
            together = registry if together is None else together.merge(registry)
        except HoldfastError as error:
            raise HoldfastError(f"{folder}: its slots disagree with those of earlier models: {error}") from error
    if together is not None and without:
        raise HoldfastError(f"{without[0]}: has no slot record, but other models that it is compared with have one")

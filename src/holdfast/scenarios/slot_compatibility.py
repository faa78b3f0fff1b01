"""Check that models share their class slots, from their descriptions, without loading weights."""

from collections.abc import Iterable
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.run_folder import RunFolder
from holdfast.scenarios.slots import SlotRegistry
from holdfast.storage import read_json


def refuse_incompatible_slots(folders: Iterable[Path]) -> SlotRegistry | None:
    """The slots of all models together; None if no model has a slot record.

    folders: model folders.
    An error if the models cannot share a space: different numbers of slots, a class with two slots, a slot with two
    classes, or a slot record in some models only.
    """
    together: SlotRegistry | None = None
    without: list[Path] = []
    for folder in folders:
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
    return together


def refuse_incompatible_slots_in_run(run: RunFolder, count: int) -> None:
    """``refuse_incompatible_slots`` for the first ``count`` models of a run; deleted models are left out."""
    folders = (run.model(number) for number in range(1, count + 1))
    refuse_incompatible_slots(folder for folder in folders if (folder / "config.json").exists())


def registry_from_info(value: object, folder: Path) -> SlotRegistry:
    """Read the slots from a model's description; errors name the folder."""
    try:
        return SlotRegistry.from_json(value)
    except HoldfastError as error:
        raise HoldfastError(f"{folder}: {error}") from error

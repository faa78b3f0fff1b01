"""Models that meet must share their slots: compared by what their folders say, without loading them."""

from collections.abc import Iterable
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.run_folder import RunFolder
from holdfast.scenarios.slots import SlotRegistry
from holdfast.storage import read_json


def refuse_strangers(folders: Iterable[Path]) -> SlotRegistry | None:
    """Refuse models that cannot share a space: another K, a class on two slots, a slot with two classes.

    Reads descriptions, no weights. A model without a record is a stranger where another has one. The slots of all
    together; None where no model has any.
    """
    together: SlotRegistry | None = None
    without: list[Path] = []
    for folder in folders:
        description = read_json(folder / "config.json")
        slots = description.get("info", {}).get("slots") if isinstance(description, dict) else None
        if slots is None:
            without.append(folder)
            continue
        registry = registry_in(slots, folder)
        try:
            together = registry if together is None else together.meet(registry)
        except HoldfastError as error:
            raise HoldfastError(f"{folder}: does not belong with the models before it: {error}") from error
    if together is not None and without:
        raise HoldfastError(f"{without[0]}: has no slot record, but the models it is compared with have one")
    return together


def refuse_strangers_in(run: RunFolder, count: int) -> None:
    """``refuse_strangers`` for the first ``count`` models of a run, as far as they are still there."""
    folders = (run.model(number) for number in range(1, count + 1))
    refuse_strangers(folder for folder in folders if (folder / "config.json").exists())


def registry_in(value: object, folder: Path) -> SlotRegistry:
    """The slots as a model's description has them; what cannot be read is refused by the folder's name."""
    try:
        return SlotRegistry.from_json(value)
    except HoldfastError as error:
        raise HoldfastError(f"{folder}: {error}") from error

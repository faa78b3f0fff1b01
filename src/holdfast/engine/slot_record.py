"""The slots saved with a model."""

from dataclasses import replace
from pathlib import Path

from holdfast.backbones import Encoder
from holdfast.errors import HoldfastError
from holdfast.scenarios import SlotRegistry
from holdfast.scenarios.strangers import registry_in


def record_slots(encoder: Encoder, registry: SlotRegistry, num_slots: int | None) -> None:
    """Write into ``encoder.info`` which slot each class is trained on, to be saved with the model.

    num_slots: of the simplex that the method trained into, which may have more slots than the scenario was told of.
    None for a method without a simplex: it assigns no slots, and the record of an earlier training is removed.
    """
    info = {key: value for key, value in encoder.info.items() if key != "slots"}
    if num_slots is not None:
        info["slots"] = replace(registry, num_slots=num_slots).to_json()
    encoder.info = info


def read_slots(encoder: Encoder, folder: Path) -> SlotRegistry:
    """The slots saved with a model; refused where there are none or they do not fit its features."""
    if "slots" not in encoder.info:
        raise HoldfastError(f"{folder}: has no slot record; it was not trained into a simplex")
    registry = registry_in(encoder.info["slots"], folder)
    if encoder.dim != registry.num_slots - 1:
        raise HoldfastError(
            f"{folder}: its features have size {encoder.dim}, which is no simplex of {registry.num_slots} slots; "
            "it was trained with a classifier of its own"
        )
    return registry

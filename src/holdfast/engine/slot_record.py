"""The slots saved with a model."""

from pathlib import Path

from holdfast.backbones import Encoder
from holdfast.errors import HoldfastError
from holdfast.scenarios import SlotRegistry
from holdfast.scenarios.strangers import registry_in


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

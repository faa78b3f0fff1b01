"""The adopted model that a recipe's first task is held to: found, checked, and its vectors looked up."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from holdfast.adoption import Adopted, read_adopted
from holdfast.backbones import Encoder
from holdfast.data import ImageSet
from holdfast.data.images import image_names
from holdfast.errors import HoldfastError
from holdfast.methods import Method
from holdfast.scenarios import ModelCard, Scenario
from holdfast.scenarios.adopted import held_to_adopted


@dataclass(frozen=True)
class HeldTo:
    """model: the adopted one. name: as the recipe calls it. features: where its vectors lie now, if they were moved."""

    model: Adopted
    name: str
    features: str | None

    @classmethod
    def named(cls, section: dict[str, Any], root: Path) -> "HeldTo":
        """From a recipe's table ``adopted``; folders are relative to where models are."""
        folder = root / Path(section["folder"]).expanduser()
        return cls(read_adopted(folder), section["folder"], section["features"])

    def method_options(self, known: set[str]) -> dict[str, int]:
        """What the adopted model decides of a method with the options ``known``: the simplex, or the space's size."""
        registry = self.model.registry
        wanted = {"dim": self.model.dim} if registry is None else {"slots": registry.num_slots}
        return {name: value for name, value in wanted.items() if name in known}

    def scenario(self, scenario: Scenario, train: ImageSet) -> Scenario:
        card = ModelCard(self.model.dim, self.model.registry)
        return held_to_adopted(scenario, train.class_names, card, self.name)

    def refuse_unfit(self, method: Method, encoder: Encoder) -> None:
        """A method that does not train into the adopted space is refused now."""
        registry = self.model.registry
        slots = None if registry is None else registry.num_slots
        if method.num_slots != slots:
            here = "has no simplex" if slots is None else f"is a simplex of {slots} slots"
            needs = "means_hoc" if slots is None else f"a simplex method with {slots} slots"
            raise HoldfastError(f"adopted.folder: the adopted space {here}; train with {needs}")
        if encoder.dim != self.model.dim:
            raise HoldfastError(
                f"adopted.folder: the adopted space has {self.model.dim} numbers, the model in training {encoder.dim}; "
                f"set method.dim to {self.model.dim}"
            )
        if method.old_features == "none":
            raise HoldfastError("method.name: this method reads no old features, so nothing would hold it to the store")

    def loader(self, train: ImageSet) -> Callable[[str], nn.Module]:
        """Reads the stored vectors of the training images when the first task asks for its reference."""
        return lambda name: self.model.reference(image_names(train), features=self.features)

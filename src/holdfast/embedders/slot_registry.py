"""Which vertex of the simplex each class owns. Models with the same record can be compared without retraining."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.untrusted_files import whole_number
from holdfast.core.wording import counted

MOST_SLOTS = 2**22


@dataclass(frozen=True)
class SlotRegistry:
    """An immutable record of the class that owns each of ``num_slots`` vertices; saved with every model.

    num_slots: K, the number of vertices.
    owners: slot of each class, by class name. A class is permanently assigned its slot.
    grown: numbers of slots that the simplex had before it was grown, oldest first.

    Pre-training takes slots from the left and fine-tuning from the right, so that both can add classes independently.
    ``take_left`` and ``take_right`` return a new registry.

    >>> from holdfast import SlotRegistry
    >>> slots = SlotRegistry(6).take_left(["cat", "dog"]).take_right(["bird"])
    >>> dict(slots.owners)
    {'cat': 0, 'dog': 1, 'bird': 5}
    """

    num_slots: int
    owners: Mapping[str, int] = field(default_factory=dict)
    grown: tuple[int, ...] = ()

    def take_left(self, names: Iterable[str]) -> "SlotRegistry":
        """Assign the lowest free slots to new class names, in order."""
        return self._take(names, range(self.num_slots))

    def take_right(self, names: Iterable[str]) -> "SlotRegistry":
        """Assign the highest free slots to new class names, in order."""
        return self._take(names, range(self.num_slots - 1, -1, -1))

    def slot(self, name: str) -> int:
        """The slot of a class."""
        if name not in self.owners:
            raise HoldfastError(f"class {name!r} owns no slot; {counted(len(self.owners), 'class')} own one")
        return self.owners[name]

    def merge(self, other: "SlotRegistry") -> "SlotRegistry":
        """The slots of two models that share a space. ``grown`` contains the growth of both.

        An error if the numbers of slots differ, a class owns two slots or a slot has two owners.
        """
        if self.num_slots != other.num_slots:
            small = min(self.num_slots, other.num_slots)
            large = max(self.num_slots, other.num_slots)
            raise HoldfastError(
                f"one has {self.num_slots} slots, the other {other.num_slots}; grow the one with {small} to {large} "
                "(holdfast slots grow)"
            )
        owners = dict(self.owners)
        owner_of_slot = {slot: name for name, slot in owners.items()}
        for name, slot in other.owners.items():
            if owners.get(name, slot) != slot:
                raise HoldfastError(
                    f"class {name!r} owns slot {owners[name]} in one model and slot {slot} in the other; "
                    "pre-train with slots_from the older model"
                )
            if owner_of_slot.get(slot, name) != name:
                needed = len(self.owners.keys() | other.owners.keys())
                advice = (
                    f"together they have {needed} classes: train both with {needed} slots or more"
                    if needed > self.num_slots
                    else "pre-train with slots_from the older model"
                )
                raise HoldfastError(f"slot {slot} has two owners: {owner_of_slot[slot]!r} and {name!r}; {advice}")
            owners[name] = slot
        return SlotRegistry(self.num_slots, owners, tuple(sorted({*self.grown, *other.grown})))

    def grow(self, num_slots: int) -> "SlotRegistry":
        """The same owners among more slots; the present number of slots is appended to ``grown``."""
        if num_slots <= self.num_slots:
            raise HoldfastError(f"{self.num_slots} slots can only grow to more, not to {num_slots}")
        return replace(self, num_slots=num_slots, grown=(*self.grown, self.num_slots))

    def _take(self, names: Iterable[str], candidates: range) -> "SlotRegistry":
        names = list(names)
        owners = dict(self.owners)
        taken = set(owners.values())
        free = (slot for slot in candidates if slot not in taken)
        for name in names:
            if name in owners:
                raise HoldfastError(f"class {name!r} already owns slot {owners[name]}")
            slot = next(free, None)
            if slot is None:
                needed = len(self.owners) + len(names)
                raise HoldfastError(
                    f"no slot left for class {name!r}: {self.num_slots} slots, {needed} classes; "
                    f"set slots to {needed} or more"
                )
            owners[name] = slot
        return replace(self, owners=owners)

    def to_json(self) -> dict[str, Any]:
        grown = {"grown": list(self.grown)} if self.grown else {}
        return {"num_slots": self.num_slots, "owners": dict(self.owners), **grown}

    @classmethod
    def from_json(cls, value: Any) -> "SlotRegistry":
        """Read a saved registry. An error if two classes own one slot or a slot is out of range."""
        try:
            owners = {str(name): int(slot) for name, slot in value["owners"].items()}
            num_slots = whole_number(value["num_slots"], "not a slot record: num_slots", 1, MOST_SLOTS)
            registry = cls(num_slots, owners, tuple(int(size) for size in value.get("grown", ())))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise HoldfastError("not a slot record: it needs num_slots, and owners with a slot per class") from None
        owner_of_slot: dict[int, str] = {}
        for name, slot in registry.owners.items():
            if slot in owner_of_slot:
                raise HoldfastError(f"slot {slot} has two owners: {owner_of_slot[slot]!r} and {name!r}")
            if not 0 <= slot < registry.num_slots:
                raise HoldfastError(f"class {name!r} owns slot {slot}, outside 0..{registry.num_slots - 1}")
            owner_of_slot[slot] = name
        return registry

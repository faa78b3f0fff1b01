"""Which vertex of the simplex a class owns: a contract between models that never meet."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import HoldfastError


@dataclass(frozen=True)
class SlotRegistry:
    """An immutable record of who owns which of ``num_slots`` vertices; saved with every model.

    Pre-training takes slots from the left, fine-tuning from the right, so that both can grow without asking each
    other. Taking a slot gives a new registry; a class keeps its slot for ever.
    """

    num_slots: int
    owners: Mapping[str, int] = field(default_factory=dict)

    def take_left(self, names: Iterable[str]) -> "SlotRegistry":
        """Give each new name the lowest free slot, in order."""
        return self._take(names, range(self.num_slots))

    def take_right(self, names: Iterable[str]) -> "SlotRegistry":
        """Give each new name the highest free slot, in order."""
        return self._take(names, range(self.num_slots - 1, -1, -1))

    def slot(self, name: str) -> int:
        if name not in self.owners:
            raise HoldfastError(f"class {name!r} owns no slot; {len(self.owners)} classes do")
        return self.owners[name]

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
        return SlotRegistry(self.num_slots, owners)

    def to_json(self) -> dict[str, Any]:
        return {"num_slots": self.num_slots, "owners": dict(self.owners)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "SlotRegistry":
        """Rebuild a saved registry; two classes on one slot, or a slot out of range, are refused."""
        registry = cls(int(value["num_slots"]), {str(name): int(slot) for name, slot in value["owners"].items()})
        holder: dict[int, str] = {}
        for name, slot in registry.owners.items():
            if slot in holder:
                raise HoldfastError(f"slot {slot} has two owners: {holder[slot]!r} and {name!r}")
            if not 0 <= slot < registry.num_slots:
                raise HoldfastError(f"class {name!r} owns slot {slot}, outside 0..{registry.num_slots - 1}")
            holder[slot] = name
        return registry

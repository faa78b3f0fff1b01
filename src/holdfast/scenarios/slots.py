"""Which vertex of the simplex a class owns: a contract between models that never meet."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.wording import counted


@dataclass(frozen=True)
class SlotRegistry:
    """An immutable record of who owns which of ``num_slots`` vertices; saved with every model.

    Pre-training takes slots from the left, fine-tuning from the right, so that both can grow without asking each
    other. Taking a slot gives a new registry; a class keeps its slot for ever.
    grown: the numbers of slots the simplex had before it was grown, oldest first.
    """

    num_slots: int
    owners: Mapping[str, int] = field(default_factory=dict)
    grown: tuple[int, ...] = ()

    def take_left(self, names: Iterable[str]) -> "SlotRegistry":
        """Give each new name the lowest free slot, in order."""
        return self._take(names, range(self.num_slots))

    def take_right(self, names: Iterable[str]) -> "SlotRegistry":
        """Give each new name the highest free slot, in order."""
        return self._take(names, range(self.num_slots - 1, -1, -1))

    def slot(self, name: str) -> int:
        if name not in self.owners:
            raise HoldfastError(f"class {name!r} owns no slot; owners: {counted(len(self.owners), 'class')}")
        return self.owners[name]

    def meet(self, other: "SlotRegistry") -> "SlotRegistry":
        """Everybody's slots once two models share a space; refused where they have another K or disagree on a class.

        ``grown`` tells of the growth of either: whoever goes on from both has features that went through it.
        """
        if self.num_slots != other.num_slots:
            small = min(self.num_slots, other.num_slots)
            large = max(self.num_slots, other.num_slots)
            raise HoldfastError(
                f"{self.num_slots} slots meet {other.num_slots}; holdfast slots grow MODEL --to {large} brings the "
                f"model with {small} up"
            )
        owners = dict(self.owners)
        holder = {slot: name for name, slot in owners.items()}
        for name, slot in other.owners.items():
            if owners.get(name, slot) != slot:
                raise HoldfastError(
                    f"class {name!r} owns slot {owners[name]} in one model and slot {slot} in the other; "
                    "pre-train with slots_from the older model"
                )
            if holder.get(slot, name) != name:
                needed = len(self.owners.keys() | other.owners.keys())
                advice = (
                    f"together they have {needed} classes: train both with {needed} slots or more"
                    if needed > self.num_slots
                    else "pre-train with slots_from the older model"
                )
                raise HoldfastError(f"slot {slot} has two owners: {holder[slot]!r} and {name!r}; {advice}")
            owners[name] = slot
        return SlotRegistry(self.num_slots, owners, tuple(sorted({*self.grown, *other.grown})))

    def grow(self, num_slots: int) -> "SlotRegistry":
        """The same owners among more slots; what the number was before is kept in ``grown``."""
        if num_slots <= self.num_slots:
            raise HoldfastError(f"{self.num_slots} slots cannot shrink or stay: grow to more, not to {num_slots}")
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
        """Rebuild a saved registry; two classes on one slot, or a slot out of range, are refused."""
        try:
            owners = {str(name): int(slot) for name, slot in value["owners"].items()}
            registry = cls(int(value["num_slots"]), owners, tuple(int(size) for size in value.get("grown", ())))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise HoldfastError("not a slot record: it needs num_slots and owners, a slot for each class") from None
        holder: dict[int, str] = {}
        for name, slot in registry.owners.items():
            if slot in holder:
                raise HoldfastError(f"slot {slot} has two owners: {holder[slot]!r} and {name!r}")
            if not 0 <= slot < registry.num_slots:
                raise HoldfastError(f"class {name!r} owns slot {slot}, outside 0..{registry.num_slots - 1}")
            holder[slot] = name
        return registry

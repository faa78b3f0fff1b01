"""Which vertex of the simplex each class owns. Models with the same record can be compared without retraining."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.untrusted_files import whole_number
from holdfast.core.wording import counted

MOST_SLOTS = 2**22


@dataclass(frozen=True)
class SimplexTurn:
    """A turn of the free vertices of a simplex (``holdfast.train.geometry.turn_towards``).

    digest: names the map from the simplex as built to the simplex after this turn.
    kept: slots that got their owner since the turn before; their vertices stay where they were before this turn.
    """

    digest: str
    kept: tuple[int, ...]


@dataclass(frozen=True)
class SlotRegistry:
    """An immutable record of the class that owns each of ``num_slots`` vertices; saved with every model.

    num_slots: K, the number of vertices.
    owners: slot of each class, by class name. A class is permanently assigned its slot.
    grown: numbers of slots that the simplex had before it was grown, oldest first.
    turns: what was done to the vertices that had no owner yet, oldest first; empty for a simplex that was never turned.

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
    turns: tuple[SimplexTurn, ...] = ()

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

        An error if the numbers of slots differ, a class owns two slots, a slot has two owners, or the simplex was
        turned so that the two models have a class at different places.
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
        grown = tuple(sorted({*self.grown, *other.grown}))
        return SlotRegistry(self.num_slots, owners, grown, self.shared_turns(other))

    def shared_turns(self, other: "SlotRegistry") -> tuple[SimplexTurn, ...]:
        """The turns of the model that was turned more often. Refused: an owned vertex that differs between the two.

        Both simplexes are the same up to the last turn that both have. If only one was turned after that, the other's
        classes are still in place if they had their owners by then.
        """
        shorter, longer = sorted((self, other), key=lambda registry: len(registry.turns))
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(shorter.turns, longer.turns)))
        if common < len(shorter.turns):
            raise HoldfastError(
                "the simplexes of the two models were turned in different ways, so their classes lie at different "
                "places; train the new model from the older one, with the state of its method"
            )
        if common < len(longer.turns):
            for name, slot in shorter.owners.items():
                if name not in longer.owners or longer._turns_before(slot) > common:
                    raise HoldfastError(
                        f"class {name!r} lies elsewhere in the other model: its vertex was free when that model's "
                        "simplex was turned; train the new model from the older one, with the state of its method"
                    )
        return longer.turns

    def _turns_before(self, slot: int) -> int:
        """The number of turns that had been done when ``slot`` got its owner."""
        return next((number for number, turn in enumerate(self.turns) if slot in turn.kept), len(self.turns))

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
        turns = [{"digest": turn.digest, "kept": list(turn.kept)} for turn in self.turns]
        return {
            "num_slots": self.num_slots,
            "owners": dict(self.owners),
            **grown,
            **({"turns": turns} if turns else {}),
        }

    @classmethod
    def from_json(cls, value: Any) -> "SlotRegistry":
        """Read a saved registry. An error if two classes own one slot or a slot is out of range."""
        try:
            owners = {str(name): int(slot) for name, slot in value["owners"].items()}
            num_slots = whole_number(value["num_slots"], "not a slot record: num_slots", 1, MOST_SLOTS)
            turns = tuple(
                SimplexTurn(str(turn["digest"]), tuple(int(slot) for slot in turn["kept"]))
                for turn in value.get("turns", ())
            )
            registry = cls(num_slots, owners, tuple(int(size) for size in value.get("grown", ())), turns)
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

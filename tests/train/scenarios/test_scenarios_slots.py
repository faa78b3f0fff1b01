"""Registries that meet, and registries that grow."""

from dataclasses import replace

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.scenarios import SimplexTurn, SlotRegistry


def test_two_models_meet():
    old = SlotRegistry(8).take_left(["a", "b"]).take_right(["x", "y"])
    new = SlotRegistry(8).take_left(["a", "b", "c"])
    both = old.merge(new)
    assert dict(both.owners) == {"a": 0, "b": 1, "c": 2, "x": 7, "y": 6}
    assert both == SlotRegistry(8, both.owners)
    assert SlotRegistry(8, grown=(3, 5)).merge(SlotRegistry(8, grown=(4, 5))).grown == (3, 4, 5)


@pytest.mark.parametrize(
    ("newcomer", "reason"),
    [
        (SlotRegistry(9).take_left(["a"]), "one has 4 slots, the other 9; grow the one with 4 to 9"),
        (SlotRegistry(4).take_left(["b", "a"]), "class 'b' owns slot 1 in one model and slot 0 in the other"),
        (SlotRegistry(4).take_left(["a", "c"]), "slot 1 has two owners: 'b' and 'c'; pre-train with slots_from"),
        (SlotRegistry(4).take_left(["a", "b", "c", "d"]), "'x' and 'd'; together they have 5 classes: .* with 5 slots"),
    ],
)
def test_who_may_not_meet(newcomer, reason):
    old = SlotRegistry(4).take_left(["a", "b"]).take_right(["x"])
    with pytest.raises(HoldfastError, match=reason):
        old.merge(newcomer)


def test_growth_is_remembered_and_saved():
    grown = SlotRegistry(4).take_right(["x"]).grow(6).grow(9)
    assert grown.num_slots == 9
    assert grown.grown == (4, 6)
    assert grown.slot("x") == 3
    assert grown.take_right(["y"]).slot("y") == 8
    assert SlotRegistry.from_json(grown.to_json()) == grown
    with pytest.raises(HoldfastError, match="9 slots can only grow to more"):
        grown.grow(8)


@pytest.mark.parametrize("value", [None, {}, {"num_slots": 3}, {"num_slots": "x", "owners": {}}, [1]])
def test_what_is_no_record(value):
    with pytest.raises(HoldfastError, match="not a slot record"):
        SlotRegistry.from_json(value)


def turned(registry, *turns):
    return replace(registry, turns=tuple(SimplexTurn(digest, kept) for digest, kept in turns))


def test_models_of_one_history_meet_though_one_was_turned_more_often():
    first = turned(SlotRegistry(9).take_left(["a", "b"]), ("t1", ()))
    second = turned(first.take_left(["c"]), ("t1", ()), ("t2", (0, 1)))
    assert first.merge(second) == second.merge(first) == second
    assert SlotRegistry.from_json(second.to_json()) == second
    assert second.grow(12).merge(first.grow(12)).turns == second.turns


@pytest.mark.parametrize(
    ("newcomer", "reason"),
    [
        (turned(SlotRegistry(9).take_left(["a", "b"]), ("other", ())), "turned in different ways"),
        (SlotRegistry(9).take_left(["a"]), "class 'a' lies elsewhere in the other model"),
        (turned(SlotRegistry(9).take_left(["a", "b"]).take_right(["z"]), ("t1", ())), "class 'z' lies elsewhere"),
    ],
)
def test_models_with_classes_at_other_places_do_not_meet(newcomer, reason):
    model = turned(SlotRegistry(9).take_left(["a", "b", "c"]), ("t1", ()), ("t2", (0, 1)))
    with pytest.raises(HoldfastError, match=reason):
        model.merge(newcomer)

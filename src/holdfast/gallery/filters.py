"""Filters of a search: conditions on label and metadata, all of which must hold."""

import json
import math
import operator
import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.gallery.item_limits import LARGEST_WHOLE, LONGEST_TEXT

Value = str | int | float | bool

LABEL = "label"
_VERSION_HINT = "no item has a field 'version'; items of some versions only: indexed_by (gallery search --indexed-by)"
_BOOL = "-bool"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_COMPARED = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}


@dataclass(frozen=True)
class Condition:
    """One field: equal to one of ``among``; if that is empty, a number within ``bounds`` (gt, gte, lt, lte)."""

    field: str
    among: tuple[Value, ...] = ()
    bounds: tuple[tuple[str, float], ...] = ()

    @cached_property
    def accepted(self) -> frozenset[tuple[type, Value]]:
        """``among`` with the type of each value; 1 and True are equal, and hashed alike."""
        return frozenset((_kind(value), value) for value in self.among)


Filter = tuple[Condition, ...]


def parse_filter(given: Mapping[str, Any] | None, known: Collection[str]) -> Filter | None:
    """Parse a filter such as ``{"shop": "north", "price": {"lt": 20}, "label": ["cat", "dog"]}``.

    Values are compared by type: the text "3" is not the number 3, but a whole number equals the same float. An item
    without the field does not match.

    given: the filter; None or empty for no filter.
    known: the fields that any item has.
    """
    if not given:
        return None
    if not isinstance(given, Mapping):
        raise HoldfastError(f"a filter is an object of field and value, not {type(given).__name__}")
    conditions = []
    for field, wanted in given.items():
        if field not in known:
            if field == "version":
                raise HoldfastError(f"{_VERSION_HINT}; fields to filter by: {', '.join(sorted(known)) or 'none yet'}")
            raise unknown_name("filter field", str(field), known or ["none yet"])
        if isinstance(wanted, Mapping):
            conditions.append(Condition(field, bounds=_bounds(field, wanted)))
            continue
        values = list(wanted) if isinstance(wanted, list | tuple | set) else [wanted]
        if not values:
            raise HoldfastError(f"filter on {field}: an empty list matches nothing; leave the field out")
        checked = (_filter_value(field, value) for value in values)
        merged = {(_kind(value), value): value for value in checked}
        conditions.append(Condition(field, among=tuple(merged.values())))
    return tuple(conditions)


def possible(where: Filter, types: Mapping[str, Collection[type]]) -> Filter | None:
    """The filter without the values that no item can have; None if no item can match.

    types: of the values that items have, by field: str, bool, and float for all numbers.
    """
    conditions = []
    for condition in where:
        stored = types.get(condition.field, ())
        among = tuple(value for value in condition.among if _kind(value) in stored)
        if not among and (condition.among or float not in stored):
            return None
        conditions.append(replace(condition, among=among))
    return tuple(conditions)


def types_of(fields: Mapping[str, Value]) -> set[tuple[str, type]]:
    """Each field with the type of its value, as ``possible`` compares it."""
    return {(field, _kind(value)) for field, value in fields.items()}


def matches(where: Filter, fields: Mapping[str, Value]) -> bool:
    """Whether an item with these fields matches; the reference for every engine."""
    return all(condition.field in fields and _matches(condition, fields[condition.field]) for condition in where)


def checked_name(name: object) -> str:
    """The name of a metadata field, if every store can hold it unchanged: letters, digits and underscores."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise HoldfastError(f"metadata field {name!r}: use at most 64 letters, digits and underscores, no digit first")
    if name == LABEL:
        raise HoldfastError("metadata field 'label': the label of an item is given as its label")
    return name


def plain_value(what: str, value: object) -> Value:
    """The value, if all stores compare it in the same way: text, a finite number, true or false; as a plain type."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int) and abs(value) <= LARGEST_WHOLE:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise HoldfastError(f"{what}: {_shown(value)} is not text, true, false or a finite number of at most 2^53")


def _shown(value: object) -> str:
    """A value in a message, as JSON writes it."""
    return json.dumps(value, ensure_ascii=False, default=str)[:80]


def check_text(what: str, text: str) -> None:
    """Refuse text that some store could not hold or search for."""
    if len(text) > LONGEST_TEXT:
        raise HoldfastError(f"{what[:80]}: {len(text)} characters; at most {LONGEST_TEXT} are kept")
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text):
        raise HoldfastError(f"{what[:80]}: holds control characters or broken Unicode; remove them")


def stored_field(field: str, value: Value) -> tuple[str, Value]:
    """A field as the embedded engine stores it: true and false as text under a separate name.

    Filters of qdrant-edge's Python package cannot find booleans: 0.9.0 reads True as the number 1.
    """
    return (f"{field}{_BOOL}", str(value)) if isinstance(value, bool) else (field, value)


def fields_from_stored(stored: Mapping[str, Value]) -> dict[str, Value]:
    """The fields that ``stored_field`` has made these of. No field's name has a hyphen (``checked_name``)."""
    return {
        name.removesuffix(_BOOL): value == str(True) if name.endswith(_BOOL) else value
        for name, value in stored.items()
    }


def _filter_value(field: str, value: object) -> Value:
    found = plain_value(f"filter on {field}", value)
    if isinstance(found, str):
        check_text(f"filter on {field}", found)
    return found


def _bounds(field: str, wanted: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    found = []
    for name, value in wanted.items():
        if name not in _COMPARED:
            raise unknown_name(f"bound on {field}", str(name), _COMPARED)
        number = plain_value(f"filter on {field}", value)
        if isinstance(number, bool | str):
            raise HoldfastError(f"filter on {field}: a bound must be a number, not {_shown(value)}")
        found.append((name, float(number)))
    if not found:
        raise HoldfastError(f"filter on {field}: give at least one of {', '.join(_COMPARED)}")
    return tuple(found)


def _matches(condition: Condition, value: Value) -> bool:
    if condition.among:
        return (_kind(value), value) in condition.accepted
    if isinstance(value, bool | str):
        return False
    return all(_COMPARED[name](value, bound) for name, bound in condition.bounds)


def _kind(value: Value) -> type:
    return type(value) if isinstance(value, bool | str) else float

"""Checks of a saved bridge: numbers that no fit gives would silently change what searches find."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from holdfast.bridges.choice import Evidence
from holdfast.bridges.score_scale import ScoreScale

LARGEST = 1e9
"""No fitted number is larger. Products of larger ones can overflow float32: a query would become zero or NaN."""
_LARGEST_RECORDED = 1e300
"""Counts, measures and seconds. JSON has whole numbers that no float can hold."""
_SHAPES: dict[str, tuple[str, ...]] = {
    "error_weights": ("old + 1",),
    "fitted": ("fitted", "fingerprint"),
    "map.weight": ("new", "old"),
    "map.left": ("new", "rank"),
    "map.right": ("rank", "old"),
    "map.bias": ("old",),
    "map.anchors": ("pairs", "new"),
    "map.residuals": ("pairs", "old"),
    "map.settings": ("settings",),
}
"""The sides of each tensor. Sides of one name are equal."""


def check_tensors(tensors: Mapping[str, Any], dims: tuple[int, ...], fingerprint: int) -> None:
    """Raise an error unless these can be the tensors of a bridge: float32 of its sizes, finite, not too large.

    dims: what the record says of the sizes of the new and of the old space.
    fingerprint: numbers of a fingerprint.
    """
    if len(dims) != 2 or any(type(size) is not int or size < 1 for size in dims):
        raise ValueError(f"its sizes are {dims}")
    sides = {"new": dims[0], "old": dims[1], "old + 1": dims[1] + 1, "fingerprint": fingerprint, "settings": 3}
    for name, tensor in tensors.items():
        part = np.asarray(tensor)
        if part.dtype != np.float32 or not np.abs(part).max(initial=0) <= LARGEST:
            raise ValueError(f"{name} is not float32, not finite or above {LARGEST:g}")
        for side, size in zip(_SHAPES[name], part.shape, strict=True):
            if sides.setdefault(side, size) != size:
                raise ValueError(f"its tensors do not fit its sizes {dims}")
    if "map.settings" in tensors:
        neighbours, temperature, _ = np.asarray(tensors["map.settings"])
        if neighbours < 1 or temperature < 1 / LARGEST:
            raise ValueError(f"{neighbours:g} neighbours at temperature {temperature:g}")


def check_record(kind: str, options: Mapping[str, Any], scale: ScoreScale, evidence: Evidence) -> None:
    """Raise an error unless a bridge of this kind can have these constants and this evidence. NaN is a missing number.

    Constants of scores are never missing, and the slope is positive: else hits would come in another order.
    """
    records: tuple[Any, ...] = (scale, evidence, *evidence.candidates)
    for record in records:
        for field in fields(record):
            _check_type(field.name, field.type, getattr(record, field.name))
    for ratios in (evidence.raw_exposure or {}, dict(evidence.curve), *(one.exposure for one in evidence.candidates)):
        for value in ratios.values():
            _check_type("exposure or curve", float, value)
    if not 1 / LARGEST <= scale.slope <= LARGEST or not abs(scale.offset) <= LARGEST:
        raise ValueError(f"scores of slope {scale.slope} and offset {scale.offset}")
    for one in evidence.candidates:
        for name, value in one.options.items():
            _check_type(name, bool if isinstance(value, bool) else float, 0.0 if value is None else value)
    if (evidence.chosen.kind, evidence.chosen.options) != (kind, options):
        raise ValueError(f"kind {kind} with {options}, but {evidence.chosen.kind} was chosen")


def _check_type(name: str, wanted: Any, value: Any) -> None:
    if wanted is float:
        valid = type(value) in (int, float) and (value != value or abs(value) <= _LARGEST_RECORDED)
    elif wanted is int:
        valid = type(value) is int and 0 <= value <= _LARGEST_RECORDED
    else:
        valid = wanted not in (str, bool) or type(value) is wanted
    if not valid:
        raise ValueError(f"{name} is {value!r:.40}")

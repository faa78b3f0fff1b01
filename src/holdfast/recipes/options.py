"""A strict schema for the options of anything that is called with keywords: its signature is the schema."""

import functools
import inspect
import json
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from holdfast.errors import HoldfastError

FILLED_IN = frozenset({"slots", "in_channels", "namespace"})
"""Options that a recipe may leave out although the callable has no default: they follow from the data."""


def options_schema(callee: Callable[..., Any], *, leave_out: Collection[str] = ()) -> type[BaseModel]:
    """A model whose fields are the keyword options of ``callee``; a trailing underscore (``lambda_``) is dropped."""
    return _schema(callee, frozenset(leave_out))


@functools.cache  # a table of a hundred runs asks for the same few again and again
def _schema(callee: Callable[..., Any], leave_out: frozenset[str]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(callee, eval_str=True).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            continue
        # What has no default and may be given by position is what the caller passes: a data root, labels.
        given = parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.default is parameter.empty
        if name in leave_out or (given and name not in FILLED_IN and not inspect.isclass(callee)):
            continue
        kind = Any if parameter.annotation is parameter.empty else parameter.annotation
        default = ... if parameter.default is parameter.empty else parameter.default
        if name in FILLED_IN:
            kind, default = kind | None, None
        fields[name.rstrip("_")] = (kind, default)
    config = ConfigDict(extra="forbid", strict=True)
    return create_model(getattr(callee, "__name__", "options"), __config__=config, **fields)


def validated(schema: type[BaseModel], values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """``values`` checked against ``schema``, defaults filled in; the first mistake in one line that names the key."""
    _refuse_what_json_bends(values, where)
    try:
        # Through JSON, where a list is a valid tuple even in strict mode, as it must be in TOML.
        checked = schema.model_validate_json(json.dumps(values))
    except ValidationError as error:
        raise HoldfastError(_one_line(error, schema, where)) from None
    return checked.model_dump(mode="json")


def _refuse_what_json_bends(value: Any, where: str) -> None:
    """Dates and infinities are TOML but no JSON: they would arrive as something else."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_what_json_bends(item, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_what_json_bends(item, where)
    elif isinstance(value, float) and not math.isfinite(value):
        raise HoldfastError(f"{where}: must be a finite number, got {value}")
    elif value is not None and not isinstance(value, str | bool | int | float):
        raise HoldfastError(f"{where}: dates and times have no place in a recipe, got {value}")


def keywords(callee: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Recipe options as arguments of a callee: ``lambda`` is ``lambda_`` again; what is filled in later is left out."""
    names = {name.rstrip("_"): name for name in inspect.signature(callee).parameters}
    return {names[key]: value for key, value in options.items() if not (key in FILLED_IN and value is None)}


def _one_line(error: ValidationError, schema: type[BaseModel], where: str) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in (where, *first["loc"]) if part != "")
    if first["type"] == "extra_forbidden":
        return f"{key}: unknown key; known here: {', '.join(schema.model_fields) or 'none'}"
    if first["type"] == "missing":
        return f"{key}: missing"
    return f"{key}: {first['msg'][0].lower()}{first['msg'][1:]}, got {first['input']!r}"

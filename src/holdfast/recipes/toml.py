"""Recipes as TOML text; the standard library reads it but does not write it."""

import json
from typing import Any

from holdfast.errors import HoldfastError


def dumps(table: dict[str, Any]) -> str:
    """TOML for nested tables of numbers, strings, booleans and lists; None is left out, as TOML has none."""
    return "\n".join(_lines(table, ())).strip() + "\n"


def _lines(table: dict[str, Any], path: tuple[str, ...]) -> list[str]:
    plain = {key: value for key, value in table.items() if not isinstance(value, dict) and value is not None}
    nested = {key: value for key, value in table.items() if isinstance(value, dict)}
    lines = []
    if path and (plain or not nested):
        lines.append(f"[{'.'.join(_key(part) for part in path)}]")
    lines += [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    if lines:
        lines.append("")
    for key, value in nested.items():
        lines += _lines(value, (*path, key))
    return lines


def _key(key: str) -> str:
    return key if key and all(c.isascii() and (c.isalnum() or c in "_-") for c in key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, bool | str):
        # A JSON string is a TOML basic string, but for the delete character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    raise HoldfastError(f"TOML has no way to write {value!r}")

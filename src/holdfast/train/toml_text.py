"""Recipes as TOML text."""

from collections.abc import Mapping
from typing import Any

import tomli_w


def to_toml(tables: Mapping[str, Any]) -> str:
    """Nested tables as TOML text. Values that are None are left out: TOML cannot write them."""
    return tomli_w.dumps(_without_none(tables))


def _without_none(tables: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in tables.items()
        if value is not None
    }

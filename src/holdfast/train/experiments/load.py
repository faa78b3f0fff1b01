"""Find a recipe, read it, apply settings such as "train.epochs=10", and write the command that runs it."""

import copy
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.untrusted_files import read_toml


def builtin_folder() -> Path:
    """The folder of the built-in recipes: in the package if installed, beside ``src`` in a checkout."""
    packaged = Path(__file__).parent / "builtin"
    return packaged if packaged.is_dir() else Path(__file__).parents[4] / "recipes"


def builtin_recipes() -> Iterator[tuple[str, Path]]:
    """(name, file) of every built-in recipe; a name is like ``cifar100-10/er``."""
    folder = builtin_folder()
    for path in sorted(folder.rglob("*.toml")):
        yield path.relative_to(folder).with_suffix("").as_posix(), path


def read_recipe(source: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The tables of a recipe, not yet checked.

    source: a TOML file, or the name of a built-in recipe.
    overrides: settings that change it, such as "train.epochs=10"; see ``with_overrides``.

    A recipe with ``extends = "FILE"`` (relative to its own folder) holds only the changes to that recipe.
    """
    return with_overrides(_read_extended(find_recipe(source)), overrides)


def find_recipe(source: str) -> Path:
    """The file of a recipe, by path or by the name of a built-in recipe."""
    path = Path(source)
    if path.is_file():
        return path
    known = dict(builtin_recipes())
    name = source.removeprefix("recipes/").removesuffix(".toml")
    if name in known:
        return known[name]
    raise HoldfastError(f"{source}: no such file, and no built-in recipe of this name; known: {', '.join(known)}")


def family(path: Path, methods: Collection[str]) -> str:
    """The first part of the names of its runs: the file's name, or its folder's if the file is named after a method."""
    return path.resolve().parent.name if path.stem in methods else path.stem


def with_overrides(recipe: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The recipe with ``a.b=value`` settings applied in order.

    Values are read as TOML, or as plain text if they are not valid TOML. Names are applied first: a new
    ``method.name``, ``backbone.name`` or ``scenario.name`` removes the options of the old one. A new method takes its
    options from the recipe's table ``[methods.NAME]``, if there is one. ``scenario.tasks`` and ``scenario.increment``
    replace each other.
    """
    settings = [_setting(text) for text in overrides]
    changed = copy.deepcopy(dict(recipe))
    for keys, value in settings:
        if len(keys) == 2 and keys[0] in ("method", "backbone", "scenario"):
            _remove_conflicts(changed, keys[0], keys[1], value)
    for keys, value in settings:
        table = changed
        for i, key in enumerate(keys[:-1]):
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                raise HoldfastError(f"setting {'.'.join(keys)}: {'.'.join(keys[: i + 1])} is not a table")
        table[keys[-1]] = value
    return changed


def _remove_conflicts(recipe: dict[str, Any], section: str, key: str, value: Any) -> None:
    """Remove options of ``section`` that do not fit the new ``value`` of ``key``."""
    table = recipe.get(section)
    if not isinstance(table, dict):
        return
    if key == "name" and value != table.get("name"):
        own = recipe.get("methods", {}) if section == "method" else {}
        settings = own.get(value, {}) if isinstance(own, dict) and isinstance(value, str) else {}
        recipe[section] = {"name": value, **(settings if isinstance(settings, dict) else {})}
    for one, other in (("tasks", "increment"), ("increment", "tasks")):
        if section == "scenario" and key == one:
            table.pop(other, None)


def _setting(text: str) -> tuple[list[str], Any]:
    key, equals, value = text.partition("=")
    keys = key.strip().split(".")
    if not equals or not all(keys):
        raise HoldfastError(f"setting {text!r}: write it as table.key=value, such as train.epochs=10")
    try:
        return keys, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return keys, value.strip()


def _read_extended(path: Path) -> dict[str, Any]:
    """The recipe merged into the one it extends, which must not extend another itself."""
    own = read_toml(path)
    base = own.pop("extends", None)
    if base is None:
        return own
    if not isinstance(base, str) or not (path.parent / base).is_file():
        raise HoldfastError(f"{path}: extends {base!r}, which does not exist; give a path relative to this file")
    tables = read_toml(path.parent / base)
    if "extends" in tables:
        raise HoldfastError(f"{path}: extends {base}, which extends another recipe; extend that one instead")
    for section in ("method", "backbone", "scenario"):
        if "name" in _table(own, section):
            raise HoldfastError(f"{path}: {section}.name cannot be changed by extends; write a full recipe")
    return _merge(tables, own)


def _merge(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base``, changed in place: values of ``changes`` replace its own, tables are merged."""
    for key, value in changes.items():
        below = base.get(key)
        base[key] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return base


def _table(of: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The table under ``key``; empty if there is none, or a value that is not a table (refused later by the check)."""
    found = of.get(key)
    return found if isinstance(found, dict) else {}

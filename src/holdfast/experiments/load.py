"""Find a recipe, read it, apply what was set on the command line."""

import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError


def builtin_folder() -> Path:
    """Where the recipes that come with Holdfast are: in the package when installed, beside ``src`` in a checkout."""
    packaged = Path(__file__).parent / "builtin"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "recipes"


def builtin_recipes() -> Iterator[tuple[str, Path]]:
    """Names, such as ``cifar100-10/er``, and files."""
    folder = builtin_folder()
    for path in sorted(folder.rglob("*.toml")):
        yield path.relative_to(folder).with_suffix("").as_posix(), path


def read_recipe(source: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The tables of a recipe file, or of a built-in recipe by name, with ``--set`` applied; not yet checked.

    A recipe that begins with ``extends = "FILE"`` (relative to its own folder) says only what it changes in that one.
    """
    return with_overrides(_extended(find_recipe(source)), overrides)


def find_recipe(source: str) -> Path:
    path = Path(source)
    if path.is_file():
        return path
    known = dict(builtin_recipes())
    name = source.removeprefix("recipes/").removesuffix(".toml")
    if name in known:
        return known[name]
    raise HoldfastError(f"{source}: no such file, and no built-in recipe of that name; known: {', '.join(known)}")


def family(path: Path, methods: Collection[str]) -> str:
    """What runs of a recipe are called by: its own name, or its folder's where there is one recipe per method."""
    return path.resolve().parent.name if path.stem in methods else path.stem


def with_overrides(recipe: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Apply ``a.b=value`` settings in order; values are read as TOML, and as plain text where that fails.

    Names come first: another ``method.name``, ``backbone.name`` or ``scenario.name`` brings none of the options that
    belonged to the recipe's own; a method takes its settings from the recipe's ``[methods.NAME]`` table, if there is
    one. ``scenario.tasks`` and ``scenario.increment`` replace each other.
    """
    settings = [_setting(text) for text in overrides]
    changed: dict[str, Any] = _copy(recipe)
    for keys, value in settings:
        if len(keys) == 2 and keys[0] in ("method", "backbone", "scenario"):
            _make_way(changed, keys[0], keys[1], value)
    for keys, value in settings:
        table = changed
        for i, key in enumerate(keys[:-1]):
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                raise HoldfastError(f"--set {'.'.join(keys)}: {'.'.join(keys[: i + 1])} is not a table")
        table[keys[-1]] = value
    return changed


def _make_way(recipe: dict[str, Any], section: str, key: str, value: Any) -> None:
    """Take out of ``section`` what cannot stand beside the new ``value`` of ``key``."""
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
        raise HoldfastError(f"--set {text!r}: write it as table.key=value, such as train.epochs=10")
    try:
        return keys, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return keys, value.strip()


def _extended(path: Path) -> dict[str, Any]:
    """The recipe, on top of the one it extends. One step only: what a recipe says is then in two files at most."""
    own = _read(path)
    base = own.pop("extends", None)
    if base is None:
        return own
    if not isinstance(base, str) or not (path.parent / base).is_file():
        raise HoldfastError(f"{path}: extends {base!r}, which is no file beside it; give a path from its folder")
    tables = _read(path.parent / base)
    if "extends" in tables:
        raise HoldfastError(f"{path}: extends {base}, which extends another recipe itself; name that one instead")
    for section in ("method", "backbone", "scenario"):
        if "name" in _table(own, section):
            raise HoldfastError(f"{path}: {section}.name is its base's to say; write a recipe of its own for another")
    return _on_top(tables, own)


def _on_top(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the leaves of ``changes`` in place of its own."""
    for key, value in changes.items():
        below = base.get(key)
        base[key] = _on_top(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return base


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise HoldfastError(f"{path}: not valid TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"{path}: not readable ({error})") from error


def _table(of: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The table under ``key``; empty where there is none, or something else that the check will refuse."""
    found = of.get(key)
    return found if isinstance(found, dict) else {}


def _copy(value: Any) -> Any:
    return {key: _copy(item) for key, item in value.items()} if isinstance(value, Mapping) else value

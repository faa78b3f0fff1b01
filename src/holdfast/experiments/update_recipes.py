"""Recipes of ``holdfast start`` and ``holdfast update``: their schema, and the two commands called with a recipe."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from holdfast.errors import HoldfastError
from holdfast.experiments.load import read_recipe, with_overrides
from holdfast.experiments.schema import (
    PreprocessSection,
    Recipe,
    Strict,
    backbone_section,
    named_section,
    train_section,
    validated,
)
from holdfast.lifecycle.adopted_model import read_adopted
from holdfast.lifecycle.adopted_parent import adopted_settings
from holdfast.lifecycle.image_defaults import survey_images
from holdfast.lifecycle.parent import describe_model, is_adopted
from holdfast.lifecycle.samples import holds_vectors
from holdfast.lifecycle.settings import (
    VersionSettings,
    default_settings,
    is_model,
    recorded_tables,
    takes_vectors,
    version_tables,
)
from holdfast.lifecycle.versions import start, update
from holdfast.methods import METHODS
from holdfast.pixels import Colour


def start_from_recipe(
    data: Path,
    out: Path,
    *,
    recipe: str | None = None,
    network: str | None = None,
    overrides: Sequence[str] = (),
    **options: Any,
) -> dict[str, Any]:
    """``lifecycle.start`` with the settings of a recipe.

    recipe: a file, or the name of a built-in recipe. Default: the default settings for the data and the network.
    network: name of the network, instead of a recipe. Default: that of ``overrides``, or a small one.
    overrides: changes to the settings, such as "train.epochs=10".
    options: further keywords of ``start``.
    """
    vectors = holds_vectors(data)
    if recipe is None:
        images = None if vectors else survey_images(data, options.get("split_folders"))
        named = network or _network_named(overrides)
        tables = default_settings(vectors=vectors, images=images, network=named).tables()
    elif network is not None:
        raise HoldfastError("--network and --recipe cannot be combined: the recipe's backbone.name is the network")
    else:
        tables = version_tables(read_recipe(recipe))
    checked = check_update_recipe(with_overrides(tables, overrides), vectors=vectors)
    if not checked["backbone"]:
        raise HoldfastError("backbone: missing; the first version needs a network")
    return start(data, out, settings=VersionSettings.from_tables(checked.tables), **options)


def _network_named(overrides: Sequence[str]) -> str | None:
    """The network that ``overrides`` name: its defaults are those to change, not the ones of the default network."""
    backbone = with_overrides({}, overrides).get("backbone")
    name = backbone.get("name") if isinstance(backbone, dict) else None
    return name if isinstance(name, str) else None


def update_from_recipe(
    model: Path, data: Path, out: Path, *, recipe: str | None = None, overrides: Sequence[str] = (), **options: Any
) -> dict[str, Any]:
    """``lifecycle.update`` with the settings of a recipe.

    recipe: a file, or the name of a built-in recipe. Default: the recipe that ``model`` was trained by.
    overrides: changes to it, such as "train.epochs=10".
    options: further keywords of ``update``.
    """
    adopted = is_adopted(model)
    replace_with = options.get("replace_with")
    if recipe is not None:
        tables = version_tables(read_recipe(recipe))
    elif adopted:
        named = _network_named(overrides) if replace_with is None or is_model(replace_with) else replace_with
        split_folders = options.get("split_folders")
        tables = adopted_settings(read_adopted(model), data, network=named, split_folders=split_folders).tables()
    else:
        tables = recorded_tables(model)
    raw = with_overrides(tables, overrides)
    if replace_with is not None and not is_model(replace_with):
        own = raw.get("backbone") if isinstance(raw.get("backbone"), dict) else {}
        assert isinstance(own, dict)
        raw["backbone"] = {**(own if own.get("name", replace_with) == replace_with else {}), "name": replace_with}
    vectors = holds_vectors(data) if adopted else takes_vectors(describe_model(model))
    checked = check_update_recipe(raw, vectors=vectors)
    return update(model, data, out, settings=VersionSettings.from_tables(checked.tables), **options)


class _Data(Strict):
    """size: side of the square that images are scaled and cut to, in pixels; default: 32, or that of the model.

    colour: default: rgb, or that of the model.
    """

    size: int | None = Field(None, ge=1)
    colour: Colour | None = None


class VectorData(Strict):
    """features, labels: names of the two arrays or columns of a file."""

    features: str = "features"
    labels: str = "labels"


class _Buffer(Strict):
    """per_class: images of each class that later versions replay."""

    per_class: int = Field(20, ge=0)


class _HeldOut(Strict):
    """share: of the new images, never trained on. per_class: at most so many later versions are checked on."""

    share: float = Field(0.2, ge=0, le=0.9)
    per_class: int = Field(1000, ge=0)


class UpdateTop(Strict):
    title: str = ""
    seed: int = Field(0, ge=0)
    data: dict[str, Any] = Field(default_factory=dict)
    backbone: dict[str, Any] | None = None
    method: dict[str, Any]
    methods: dict[str, dict[str, Any]] = Field(default_factory=dict)
    train: dict[str, Any] = Field(default_factory=dict)
    preprocess: dict[str, Any] = Field(default_factory=dict)
    buffer: dict[str, Any] = Field(default_factory=dict)
    held_out: dict[str, Any] = Field(default_factory=dict)


SECTIONS: dict[str, type[Strict]] = {"data": _Data, "buffer": _Buffer, "held_out": _HeldOut}


def check_update_recipe(raw: Mapping[str, Any], *, vectors: bool = False) -> Recipe:
    """Check a recipe as read from TOML. ``backbone`` is empty if the recipe names none.

    vectors: whether the samples are vectors and not images.
    """
    top = validated(UpdateTop, raw, "")
    for name, options in top.pop("methods").items():
        named_section({"name": name, **options}, METHODS, "method", f"methods.{name}")
    sections: dict[str, type[Strict]] = {**SECTIONS, "data": VectorData} if vectors else SECTIONS
    for name, section in sections.items():
        top[name] = validated(section, top[name], name)
    top["backbone"] = backbone_section(top["backbone"]) if top["backbone"] else {}
    top["method"] = named_section(top["method"], METHODS, "method", "method")
    top["train"] = train_section(top["train"], {"name": "vectors" if vectors else "folder"})
    top["preprocess"] = validated(PreprocessSection, top["preprocess"], "preprocess")
    if top["preprocess"]["unit"] is not None and not vectors:
        raise HoldfastError("preprocess.unit is for vectors, and these are images; leave it out")
    return Recipe(top)

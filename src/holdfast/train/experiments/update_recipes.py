"""Recipes of ``holdfast start`` and ``holdfast update``: their schema, and the two commands called with a recipe."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from holdfast.core.errors import HoldfastError
from holdfast.embedders.pixels import Colour
from holdfast.train.devices import resolve_device
from holdfast.train.encoders.named_backbone import NamedBackbone, named_backbone, same_network
from holdfast.train.events import ignore_event
from holdfast.train.experiments.load import read_recipe, with_overrides
from holdfast.train.experiments.schema import (
    BackboneExtras,
    PreprocessSection,
    Recipe,
    Strict,
    backbone_section,
    named_section,
    train_section,
    validated,
)
from holdfast.train.methods import METHODS
from holdfast.train.versions.image_defaults import mixed_precision, survey_images
from holdfast.train.versions.parent import describe_model, own_code_of
from holdfast.train.versions.samples import holds_vectors
from holdfast.train.versions.settings import (
    VersionSettings,
    default_settings,
    is_model,
    recorded_tables,
    tables_with_network,
    takes_vectors,
    version_tables,
)
from holdfast.train.versions.versions import advise_on_photographs, start, update


def start_from_recipe(
    data: Path,
    out: Path,
    *,
    recipe: str | None = None,
    backbone: str | None = None,
    overrides: Sequence[str] = (),
    **options: Any,
) -> dict[str, Any]:
    """``lifecycle.start`` with the settings of a recipe.

    recipe: a file, or the name of a built-in recipe. Default: the default settings for the data and the network.
    backbone: name of the network, or a file of its weights (``named_backbone``), instead of a recipe. Default: that of
        ``overrides``, or a small one.
    overrides: changes to the settings, such as "train.epochs=10".
    options: further keywords of ``start``.
    """
    vectors = holds_vectors(data)
    named = _named_network(backbone, overrides, recipe)
    if recipe is not None:
        tables = version_tables(read_recipe(recipe))
    else:
        images = None if vectors else survey_images(data, options.get("split_folders"))
        network = named or _network_named(overrides)
        precision = mixed_precision(resolve_device(options.get("device", "auto")))
        tables = default_settings(vectors=vectors, images=images, network=network, precision=precision).tables()
        if images is not None and network is None:
            advise_on_photographs(images, options.get("on_event", ignore_event))
    checked = check_update_recipe(with_overrides(tables, overrides), vectors=vectors)
    if "name" not in checked["backbone"]:
        raise HoldfastError("backbone: missing; the first version needs a network")
    return start(data, out, settings=VersionSettings.from_tables(checked.tables), **options)


def _named_network(backbone: str | None, overrides: Sequence[str], recipe: str | None = None) -> NamedBackbone | None:
    """The network that ``--backbone`` names, with the weights that ``overrides`` name; None if it is not given."""
    if backbone is None:
        return None
    if recipe is not None:
        raise HoldfastError("--backbone and --recipe cannot be combined: the recipe's backbone.name is the network")
    given = with_overrides({}, overrides).get("backbone")
    return named_backbone(backbone, given.get("weights") if isinstance(given, dict) else None)


def _network_named(overrides: Sequence[str]) -> NamedBackbone | None:
    """The network that ``overrides`` name: its defaults are those to change, not the ones of the default network."""
    backbone = with_overrides({}, overrides).get("backbone")
    name = backbone.get("name") if isinstance(backbone, dict) else None
    return named_backbone(name) if isinstance(name, str) else None


def update_from_recipe(
    model: Path,
    data: Path,
    out: Path,
    *,
    recipe: str | None = None,
    backbone: str | None = None,
    overrides: Sequence[str] = (),
    **options: Any,
) -> dict[str, Any]:
    """``lifecycle.update`` with the settings of a recipe.

    recipe: a file, or the name of a built-in recipe. Default: the recipe that ``model`` was trained by.
    backbone: name of the network, a file of its weights, or the folder of another model. The name of the model's own
        network changes nothing, but allows Holdfast to import it if it is the user's code. Another one replaces it, as
        ``replace_with`` of ``update``.
    overrides: changes to the recipe, such as "train.epochs=10".
    options: further keywords of ``update``.
    """
    description = describe_model(model)
    if backbone is not None and is_model(backbone):
        options["replace_with"], backbone = backbone, None
    named = _named_network(backbone, overrides)
    own_options = with_overrides({}, overrides).get("backbone")
    changed = isinstance(own_options, dict) and own_options.keys() - {"name", "freeze"}
    replaced = named is not None and (bool(changed) or not same_network(description, named))
    if not replaced and own_code_of(description) is None:
        named = None
    if recipe is not None:
        tables = version_tables(read_recipe(recipe))
    else:
        tables = recorded_tables(model)
        if named is not None and replaced:
            tables = tables_with_network(tables, named)
    raw = with_overrides(tables, overrides)
    if named is not None:
        own = raw.get("backbone") if isinstance(raw.get("backbone"), dict) else {}
        assert isinstance(own, dict)
        if own.get("name", named.name) != named.name:
            raise HoldfastError(f"--backbone {named.name}, but the recipe names {own['name']}; name one network")
        raw["backbone"] = {**named.table, **own}
        if replaced:
            options["replace_with"] = named.name
    checked = check_update_recipe(raw, vectors=takes_vectors(description))
    epochs_given = recipe is not None or "epochs" in with_overrides({}, overrides).get("train", {})
    return update(
        model,
        data,
        out,
        settings=VersionSettings.from_tables(checked.tables),
        limit_steps=not epochs_given,
        **options,
    )


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
    """per_class: images of each class that later versions replay. embed: save them with the model, not only paths."""

    per_class: int = Field(20, ge=0)
    embed: bool = False


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
    """Check a recipe as read from TOML. If it names no backbone, ``backbone`` is empty or has ``freeze`` alone.

    vectors: whether the samples are vectors and not images.
    """
    top = validated(UpdateTop, raw, "")
    for name, options in top.pop("methods").items():
        named_section({"name": name, **options}, METHODS, "method", f"methods.{name}")
    sections: dict[str, type[Strict]] = {**SECTIONS, "data": VectorData} if vectors else SECTIONS
    for name, section in sections.items():
        top[name] = validated(section, top[name], name)
    if not top["backbone"]:
        top["backbone"] = {}
    elif top["backbone"].keys() == {"freeze"}:  # of the network that the model before has
        top["backbone"] = {"freeze": validated(BackboneExtras, top["backbone"], "backbone")["freeze"]}
    else:
        top["backbone"] = backbone_section(top["backbone"])
    top["method"] = named_section(top["method"], METHODS, "method", "method")
    top["train"] = train_section(top["train"], vectors=vectors)
    top["preprocess"] = validated(PreprocessSection, top["preprocess"], "preprocess")
    if top["preprocess"]["unit"] is not None and not vectors:
        raise HoldfastError("preprocess.unit is for vectors, and these are images; leave it out")
    return Recipe(top)

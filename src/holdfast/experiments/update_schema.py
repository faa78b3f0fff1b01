"""What a recipe for one's own images may say: how version 1 is trained, and every version after it."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from holdfast.errors import HoldfastError
from holdfast.experiments.schema import (
    PreprocessSection,
    Recipe,
    Strict,
    backbone_section,
    named_section,
    train_section,
    validated,
)
from holdfast.methods import METHODS
from holdfast.pixels import Colour

DEFAULTS: dict[str, Any] = {
    "title": "Own images",
    "data": {"size": 32},
    "backbone": {"name": "resnet32"},
    "method": {"name": "simplex_hoc", "lambda": 0.3},
    "train": {"epochs": 30, "batch_size": 32, "optimizer": "adamw", "lr": 1e-3, "schedule": "cosine"},
}
"""Version 1 where no recipe is given: small pictures, a small ResNet, and a rate that suits most networks."""

VECTOR_DEFAULTS: dict[str, Any] = {**DEFAULTS, "title": "Own vectors", "data": {}, "backbone": {"name": "mlp"}}
"""The same for vectors."""


class _Data(Strict):
    """size: the side of the square that pictures are scaled and cut to."""

    size: int = Field(32, ge=1)
    colour: Colour = "rgb"


class VectorData(Strict):
    """features, labels: what the two arrays or columns of a file are called."""

    features: str = "features"
    labels: str = "labels"


class _Buffer(Strict):
    """per_class: images of each class that later versions replay."""

    per_class: int = Field(20, ge=0)


class _HeldOut(Strict):
    """share: of the new images, never trained on. per_class: how many of them later versions are still judged by."""

    share: float = Field(0.2, ge=0, le=0.9)
    per_class: int = Field(20, ge=0)


class OwnTop(Strict):
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
    """Check a recipe as read from TOML; ``backbone`` is empty where it names none, and the model's own is meant.

    vectors: what is trained on are vectors, and not images.
    """
    top = validated(OwnTop, raw, "")
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


def without_the_run(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe for ``holdfast run`` as one for own images: how it trains and what it replays, not on what.

    Size and colour are kept where its training set is a folder or a CSV file, the columns' names where it is vectors.
    Any other recipe is left as it is.
    """
    if "scenario" not in raw:
        return dict(raw)
    scenario, data = raw["scenario"], raw.get("data")
    if not isinstance(scenario, Mapping) or scenario.get("name") != "cl2r":
        raise HoldfastError("scenario.name: only a run of cl2r trains one model after another; leave the table out")
    train = data.get("train") if isinstance(data, Mapping) else None
    own = train if isinstance(train, Mapping) and train.get("name") in ("folder", "csv", "vectors") else {}
    tables = {key: value for key, value in raw.items() if key not in ("scenario", "data", "evaluation")}
    tables["data"] = {key: own[key] for key in ("size", "colour", "features", "labels") if key in own}
    if "buffer_per_class" in scenario:
        tables["buffer"] = {"per_class": scenario["buffer_per_class"]}
    return tables

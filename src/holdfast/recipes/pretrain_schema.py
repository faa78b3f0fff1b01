"""What a recipe for pre-training one model may say."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from holdfast.recipes.assemble import method_maker
from holdfast.recipes.models import head_of
from holdfast.recipes.options import validated
from holdfast.recipes.schema import (
    PreprocessSection,
    Recipe,
    Strict,
    backbone_section,
    dataset_section,
    method_section,
    train_section,
)


class _Top(Strict):
    title: str = ""
    seed: int = Field(0, ge=0)
    namespace: str | None = None
    slots_from: str | None = None
    data: dict[str, Any]
    backbone: dict[str, Any]
    method: dict[str, Any]
    methods: dict[str, dict[str, Any]] = Field(default_factory=dict)
    train: dict[str, Any] = Field(default_factory=dict)
    preprocess: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class PretrainRecipe(Recipe):
    """A checked recipe for one model.

    namespace: put before class names in the slot record; the name of the dataset unless given.
    slots_from: a model whose classes keep their slots; new classes take the lowest free ones. Without it, class after
    class from the left, so that the first 50 classes sit where they sit among the first 100.
    """

    @property
    def folder(self) -> Path:
        """DATASET/BACKBONE-CLASSES-HEAD, or without CLASSES where the reader has no such option."""
        backbone = self["backbone"]["name"].split(":")[-1].strip("/").split("/")[-1]
        classes = f"-{self['data']['classes']}" if self["data"].get("classes") else ""
        head = head_of(method_maker(self, 2)())
        return Path(self["data"]["name"]) / f"{backbone}{classes}-{head}"


def check_pretrain_recipe(raw: Mapping[str, Any]) -> PretrainRecipe:
    """Check a pre-training recipe as read from TOML; as strict as for runs."""
    top = validated(_Top, raw, "")
    for name, options in top.pop("methods").items():
        method_section({"name": name, **options}, f"methods.{name}")
    top["data"] = dataset_section(top["data"], "data")
    top["backbone"] = backbone_section(top["backbone"])
    top["method"] = method_section(top["method"], "method")
    top["train"] = train_section(top["train"], top["data"])
    top["preprocess"] = validated(PreprocessSection, top["preprocess"], "preprocess")
    return PretrainRecipe(top)

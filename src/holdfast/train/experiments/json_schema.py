"""The JSON Schema of recipes, for completion and checks in editors.

It is made from the same signatures that recipes are checked against. The options of a section depend on the function
that it names, so a section is one of several objects that differ in ``name``. Values that depend on the data (class
counts, sizes) are checked by ``holdfast run`` only.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from pydantic import BaseModel

from holdfast.train.data import READERS
from holdfast.train.encoders import BACKBONES, backbone_builder
from holdfast.train.engine import FitOptions
from holdfast.train.experiments.schema import (
    SPLITS,
    BackboneExtras,
    EvaluationSection,
    PreprocessSection,
    RunTables,
    options_schema,
)
from holdfast.train.experiments.update_recipes import SECTIONS, UpdateTop, VectorData
from holdfast.train.methods import METHODS
from holdfast.train.scenarios import SCENARIOS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
OWN_CODE = r"^(?!hf:|timm:)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"

Schema = dict[str, Any]


def recipe_json_schema() -> Schema:
    """The schema of recipes for ``holdfast run``. Sections of a recipe that ``extends`` another are not checked."""
    sections = {
        **_training(),
        "data": _object({split: _by_name(READERS, _split_keys()) for split in SPLITS}, SPLITS),
        "scenario": _by_name(SCENARIOS, leave_out={"num_slots", "seed", "models"}),
        "method": _method(),
        "evaluation": EvaluationSection.model_json_schema(),
    }
    return _recipe("A Holdfast recipe", sections, RunTables)


def own_recipe_json_schema() -> Schema:
    """The schema of recipes for ``holdfast start`` and ``holdfast update``."""
    sections = {name: section.model_json_schema() for name, section in SECTIONS.items()}
    sections["data"] = {"anyOf": [sections["data"], VectorData.model_json_schema()]}
    return _recipe("A Holdfast recipe for own images", {**_training(), **sections}, UpdateTop)


def _training() -> dict[str, Schema]:
    """The sections that every recipe has: how models are trained."""
    return {
        "title": {"type": "string"},
        "seed": {"type": "integer", "minimum": 0, "default": 0},
        "backbone": _backbone(),
        "method": _by_name(METHODS),
        "methods": _object({name: _settings(build) for name, build in METHODS.items()}),
        "train": options_schema(FitOptions, leave_out={"seed"}).model_json_schema(),
        "preprocess": PreprocessSection.model_json_schema(),
    }


def _recipe(title: str, sections: dict[str, Schema], top: type[BaseModel]) -> Schema:
    required = [name for name, field in top.model_fields.items() if field.is_required()]
    return {
        "$schema": DIALECT,
        "title": title,
        "if": {"required": ["extends"]},
        "then": {"properties": {"extends": {"type": "string"}, **dict.fromkeys(sections, True)}},
        "else": {"properties": sections, "required": required},
        "type": "object",
        "propertyNames": {"enum": ["extends", *sections]},
    }


def _by_name(
    table: Mapping[str, Callable[..., Any]], more: Mapping[str, Any] | None = None, *, leave_out: Collection[str] = ()
) -> Schema:
    choices = []
    for name, callee in table.items():
        options = options_schema(callee, leave_out=leave_out).model_json_schema()
        choices.append(_choice({"const": name}, options, more or {}))
    return {"type": "object", "required": ["name"], "properties": {"name": {"enum": list(table)}}, "oneOf": choices}


def _choice(name: Schema, options: Schema, more: Mapping[str, Any]) -> Schema:
    required = ["name", *options.get("required", []), *(["split"] if "split" in more else [])]
    return _object({"name": name, **more, **options.get("properties", {})}, required)


def _method() -> Schema:
    """One of the table, or the user's own class, which decides what it takes."""
    known = _by_name(METHODS)
    name = {"anyOf": [*known["properties"].values(), {"type": "string", "pattern": OWN_CODE}]}
    own = {"type": "object", "properties": {"name": {"type": "string", "pattern": OWN_CODE}}, "required": ["name"]}
    return {**known, "properties": {"name": name}, "oneOf": [*known["oneOf"], own]}


def _settings(build: Callable[..., Any]) -> Schema:
    """A method's settings without its name, any of them left out."""
    return _object(options_schema(build).model_json_schema().get("properties", {}))


def _backbone() -> Schema:
    given = BackboneExtras.model_json_schema()["properties"]
    choices = []
    for name in [*BACKBONES, "hf:"]:
        builder = backbone_builder(name)
        assert builder is not None
        options = options_schema(builder, leave_out={"name", *given}).model_json_schema()
        named = {"type": "string", "pattern": "^hf:"} if name == "hf:" else {"const": name}
        choices.append(_choice(named, options, given))
    for pattern in ("^timm:", OWN_CODE):  # the options are checked by timm or by the user's own function
        free = {"name": {"type": "string", "pattern": pattern}, **given}
        choices.append({"type": "object", "properties": free, "required": ["name"]})
    return {"type": "object", "required": ["name"], "oneOf": choices}


def _split_keys() -> Schema:
    return {"split": {"type": "string"}, "per_class": {"type": ["integer", "null"], "minimum": 1}}


def _object(properties: Mapping[str, Any], required: Collection[str] = ()) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }

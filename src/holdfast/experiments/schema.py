"""What a recipe may say. Everything is checked before anything runs, and the key at fault is named.

A strict schema for the options of anything that is called with keywords: its signature is the schema.

Recipes as TOML text; the standard library reads it but does not write it.
"""

import functools
import inspect
import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model

from holdfast.data import DATASETS
from holdfast.encoders import backbone_builder
from holdfast.errors import HoldfastError, unknown_name
from holdfast.evaluation import PROTOCOLS
from holdfast.methods import method_class
from holdfast.scenarios import SCENARIOS
from holdfast.training import FitOptions
from holdfast.training.options import OFF_FOR_VECTORS, refuse_augmentation


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Top(Strict):
    title: str = ""
    seed: int = Field(0, ge=0)
    data: dict[str, Any]
    scenario: dict[str, Any]
    backbone: dict[str, Any] | None = None
    method: dict[str, Any]
    methods: dict[str, dict[str, Any]] = {}
    train: dict[str, Any] = {}
    preprocess: dict[str, Any] = {}
    evaluation: dict[str, Any] = {}
    adopted: dict[str, Any] | None = None


class PreprocessSection(Strict):
    """mean, std, resize: for images. unit: for vectors."""

    mean: list[float] | None = None
    std: list[float] | None = None
    resize: int | None = Field(None, ge=1)
    unit: bool | None = None


class _Evaluation(Strict):
    protocols: list[Literal["template", "instance", "mixed"]] = Field(list(PROTOCOLS), min_length=1)  # type: ignore[arg-type]
    batch_size: int | None = Field(None, ge=1)
    compact: bool = False


class AdoptedSection(Strict):
    """folder: of an adopted model, which the first task is held to. features: where its vectors lie, if moved."""

    folder: str
    features: str | None = None


class _GivenBackbone(Strict):
    """What any backbone may be given, whoever built it."""

    weights: str | None = None
    weights_prefix: str | None = None
    weights_skip: list[str] | None = None
    freeze: list[str] | None = None


GIVEN_BACKBONE = tuple(_GivenBackbone.model_fields)
SPLITS = ("train", "query", "gallery")


@dataclass(frozen=True)
class Recipe:
    """A checked recipe as plain tables with every default written out; the tables are what runs are compared by."""

    tables: Mapping[str, Any]

    def __getitem__(self, section: str) -> Any:
        return self.tables[section]

    @property
    def method(self) -> str:
        return str(self["method"]["name"])

    @property
    def seed(self) -> int:
        return int(self["seed"])

    @property
    def short_name(self) -> str:
        """METHOD-tTASKS-sSEED, or iINCREMENT where the recipe says that instead."""
        scenario = self["scenario"]
        tasks = f"t{scenario['tasks']}" if scenario.get("tasks") else f"i{scenario.get('increment')}"
        method = self.method.rpartition(":")[2]  # of one's own code, the class
        return f"{method}-{tasks}-s{self.seed}"

    def to_toml(self) -> str:
        return dumps(dict(self.tables))


def check_recipe(raw: Mapping[str, Any]) -> Recipe:
    """Check a recipe as read from TOML. ``methods`` (settings for other methods) is checked and dropped."""
    top = validated(_Top, raw, "")
    for name, options in top.pop("methods").items():
        method_section({"name": name, **options}, f"methods.{name}")
    data = top["data"]
    for split in data:
        if split not in SPLITS:
            raise HoldfastError(f"data.{split}: unknown key; known here: {', '.join(SPLITS)}")
    for split in SPLITS:
        if not isinstance(data.get(split), dict):
            raise HoldfastError(f"data.{split}: missing; a recipe reads three sets: {', '.join(SPLITS)}")
        data[split] = dataset_section(data[split], f"data.{split}")
    leave_out = {"num_slots", "seed", "models"}
    top["scenario"] = named_section(top["scenario"], SCENARIOS, "scenario", "scenario", leave_out=leave_out)
    top["backbone"] = _backbone_beside(top["scenario"], top["backbone"])
    top["method"] = method_section(top["method"], "method")
    top["train"] = train_section(top["train"], data["train"])
    top["preprocess"] = validated(PreprocessSection, top["preprocess"], "preprocess")
    top["evaluation"] = validated(_Evaluation, top["evaluation"], "evaluation")
    adopted = top.pop("adopted")  # left out where there is none: recipes of older runs are equal to themselves
    if adopted is not None:
        top["adopted"] = validated(AdoptedSection, adopted, "adopted")
    if set(top["evaluation"]["protocols"]) == {"mixed"}:
        raise HoldfastError("evaluation.protocols: mixed gives no matrix; put template or instance beside it")
    return Recipe(top)


def named_section(
    section: Mapping[str, Any],
    table: Mapping[str, Any],
    kind: str,
    where: str,
    *,
    leave_out: set[str] | None = None,
) -> dict[str, Any]:
    name, options = _split_name(section, where)
    if name not in table:
        raise HoldfastError(f"{where}.name: {unknown_name(kind, name, table)}")
    return {"name": name, **validated(options_schema(table[name], leave_out=leave_out or ()), options, where)}


def method_section(section: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The options of a method, which may be the user's own."""
    name, _ = _split_name(section, where)
    try:
        build = method_class(name)
    except HoldfastError as error:
        raise HoldfastError(f"{where}.name: {error}") from error
    try:
        return named_section(section, {name: build}, "method", where)
    except (NameError, PydanticUserError) as error:  # types of the user's own that TOML has no way to write
        reason = str(error).splitlines()[0]
        raise HoldfastError(f"{where}.name: the signature of {name} cannot be read ({reason})") from error


def dataset_section(section: Mapping[str, Any], where: str) -> dict[str, Any]:
    own = {key: section[key] for key in ("split", "per_class") if key in section}
    rest = {key: value for key, value in section.items() if key not in own}
    checked = named_section(rest, DATASETS, "dataset", where)
    if not isinstance(own.get("split"), str):
        raise HoldfastError(f'{where}.split: missing; name the split to read, such as "train"')
    per_class = own.get("per_class")
    if per_class is not None and (not isinstance(per_class, int) or isinstance(per_class, bool) or per_class < 1):
        raise HoldfastError(f"{where}.per_class: must be a whole number of at least 1, got {per_class!r}")
    return {"name": checked.pop("name"), "split": own["split"], "per_class": per_class, **checked}


def train_section(section: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The options of training on ``data``; for vectors, whatever changes pictures is off."""
    holds_vectors = data["name"] == "vectors"
    given = {**OFF_FOR_VECTORS, **section} if holds_vectors else section
    options = validated(options_schema(FitOptions, leave_out={"seed"}), given, "train")
    if holds_vectors:
        refuse_augmentation(options)
    return options


def _backbone_beside(scenario: Mapping[str, Any], section: Mapping[str, Any] | None) -> dict[str, Any]:
    """Networks come from the recipe or from the models a scenario brings in, never from both."""
    if "model" not in scenario:
        if section is None:
            raise HoldfastError("backbone: missing")
        return backbone_section(section)
    if section:
        raise HoldfastError(f"backbone: {scenario['name']} takes its networks from its models; leave the table out")
    return {}


def backbone_section(section: Mapping[str, Any]) -> dict[str, Any]:
    name, options = _split_name(section, "backbone")
    builder = backbone_builder(name)
    given = {key: options.pop(key) for key in GIVEN_BACKBONE if key in options}
    given = {key: value for key, value in validated(_GivenBackbone, given, "backbone").items() if value is not None}
    for key in ("weights_prefix", "weights_skip"):
        if key in given and "weights" not in given:
            raise HoldfastError(f"backbone.{key}: says how to read backbone.weights, which is missing")
    if builder is None:  # timm takes whatever its model takes
        return {"name": name, **options, **given}
    try:
        schema = options_schema(builder, leave_out={"name", *GIVEN_BACKBONE})
    except (NameError, PydanticUserError) as error:  # types of the user's own that TOML has no way to write
        reason = str(error).splitlines()[0]
        raise HoldfastError(f"backbone.name: the signature of {name} cannot be read ({reason})") from error
    return {"name": name, **validated(schema, options, "backbone"), **given}


def _split_name(section: Mapping[str, Any], where: str) -> tuple[str, dict[str, Any]]:
    options = dict(section)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise HoldfastError(f"{where}.name: missing; it must be a string")
    return name, options


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

"""The schema of recipes. A recipe is checked before anything runs; an error names the wrong key.

The options of a dataset, scenario, backbone, method or of training are not listed here: they are the keyword
parameters of the function or class that the recipe names.
"""

import functools
import inspect
import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model

from holdfast.checks import PROTOCOLS
from holdfast.core.errors import HoldfastError, first_line, unknown_name
from holdfast.train.data import READERS
from holdfast.train.encoders import Readout, backbone_builder
from holdfast.train.engine import FitOptions
from holdfast.train.engine.build import BACKBONE_EXTRAS, FILLED_IN, naming_table
from holdfast.train.engine.fit_options import OFF_FOR_VECTORS, refuse_augmentation
from holdfast.train.methods import method_class
from holdfast.train.scenarios import SCENARIOS
from holdfast.train.toml_text import to_toml


class RecipeTable(BaseModel):
    """A table of a recipe: unknown keys and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class PreprocessTable(RecipeTable):
    """mean, std, resize: for images.
    unit: scale vectors to length 1.
    """

    mean: list[float] | None = None
    std: list[float] | None = None
    resize: int | None = Field(default=None, ge=1)
    unit: bool | None = None


class TrainingTables(RecipeTable):
    """What every recipe has: one that runs a scenario, pre-trains one model, or trains a version.

    methods: options of further methods, used if another method is set by name.
    """

    title: str = ""
    seed: int = Field(default=0, ge=0)
    method: dict[str, Any]
    methods: dict[str, dict[str, Any]] = Field(default={}, exclude=True)
    backbone: dict[str, Any] | None = None
    train: dict[str, Any] = {}
    preprocess: PreprocessTable = PreprocessTable()

    def __init__(self, **values: Any) -> None:
        """Errors are one line that names the wrong key."""
        _refuse_non_json(values, "")
        try:
            super().__init__(**{key: _as_json(value) for key, value in values.items()})
        except ValidationError as error:
            raise HoldfastError(_one_line(error, type(self), "")) from None

    def checked(self, *, vectors: bool) -> dict[str, Any]:
        """The tables with every default, once the options of method, network and training are checked.

        vectors: whether the samples are vectors, for which image augmentation is switched off.
        """
        for name, options in self.methods.items():
            method_section({"name": name, **options}, f"methods.{name}")
        return {
            **self.model_dump(mode="json"),
            "method": method_section(self.method, "method"),
            "train": train_section(self.train, vectors=vectors),
        }


class EvaluationTable(RecipeTable):
    """protocols: how models are compared.
    batch_size: images at a time; None for as many as fit the device.
    compact: store features at the size of the backbone.
    readout: the feature that is compared: the simplex feature, or the backbone's before the projection.
    """

    protocols: list[Literal["template", "instance", "mixed"]] = Field(default=list(PROTOCOLS), min_length=1)  # type: ignore[arg-type]
    batch_size: int | None = Field(default=None, ge=1)
    compact: bool = False
    readout: Readout = "simplex"


class RunTables(TrainingTables):
    """The top level of a recipe for ``holdfast run``."""

    data: dict[str, Any]
    scenario: dict[str, Any]
    evaluation: EvaluationTable = EvaluationTable()


class BackboneExtras(RecipeTable):
    """Options of every backbone, besides those of its own builder."""

    weights: str | None = None
    weights_prefix: str | None = None
    weights_skip: list[str] | None = None
    freeze: list[str] | None = None


SPLITS = ("train", "query", "gallery")
RECORDED = ("gather", "sync_bn")
"""Options of training on several GPUs, which is gone; recorded runs name them with these values."""


@dataclass(frozen=True)
class Recipe:
    """A checked recipe as plain tables with all defaults. Two runs are the same if their tables are equal."""

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
        """METHOD-tTASKS-sSEED, or METHOD-iINCREMENT-sSEED if the recipe gives the increment."""
        scenario = self["scenario"]
        tasks = f"t{scenario['tasks']}" if scenario.get("tasks") else f"i{scenario.get('increment')}"
        method = self.method.rpartition(":")[2]  # module:Class of the user's own code
        return f"{method}-{tasks}-s{self.seed}"

    def to_toml(self) -> str:
        return to_toml(self.tables)


def check_recipe(raw: Mapping[str, Any]) -> Recipe:
    """Check the tables of a recipe for ``holdfast run`` and fill in defaults. ``methods`` is checked and dropped."""
    if "scenario" not in raw and isinstance(raw.get("data"), Mapping) and "name" in raw["data"]:
        raise HoldfastError("a recipe of one model, which holdfast pretrain trains; a run needs a table scenario")
    tables = RunTables(**raw)
    data = dict(tables.data)
    for split in data:
        if split not in SPLITS:
            raise HoldfastError(f"data.{split}: unknown key; known here: {', '.join(SPLITS)}")
    for split in SPLITS:
        if not isinstance(data.get(split), dict):
            raise HoldfastError(f"data.{split}: missing; a recipe reads three sets: {', '.join(SPLITS)}")
        data[split] = dataset_section(data[split], f"data.{split}")
    leave_out = {"num_slots", "seed", "models"}
    scenario = named_section(tables.scenario, SCENARIOS, "scenario", "scenario", leave_out=leave_out)
    backbone = _run_backbone_section(scenario, tables.backbone)
    top = tables.checked(vectors=data["train"]["name"] == "vectors")
    top |= {"data": data, "scenario": scenario, "backbone": backbone}
    if top["train"]["random_reference"] and method_class(top["method"]["name"]).old_features == "none":
        name = top["method"]["name"]
        raise HoldfastError(f"train.random_reference: {name} reads no features of an old model; leave it out")
    if set(top["evaluation"]["protocols"]) == {"mixed"}:
        raise HoldfastError("evaluation.protocols: mixed gives no matrix; add template or instance")
    return Recipe(top)


def named_section(
    section: Mapping[str, Any],
    table: Mapping[str, Any],
    kind: str,
    where: str,
    *,
    leave_out: set[str] | None = None,
) -> dict[str, Any]:
    """Check a section with a ``name`` and the options of ``table[name]``.

    kind: what the table lists, for the error message.
    where: the key of the section, for the error message.
    leave_out: parameters that are not options of a recipe.
    """
    name, options = _split_name(section, where)
    if name not in table:
        raise HoldfastError(f"{where}.name: {unknown_name(kind, name, table)}")
    return {"name": name, **validated(options_schema(table[name], leave_out=leave_out or ()), options, where)}


def method_section(section: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The options of a method, which may be the user's own code."""
    name, _ = _split_name(section, where)
    try:
        build = method_class(name)
    except HoldfastError as error:
        raise HoldfastError(f"{where}.name: {error}") from error
    try:
        return named_section(section, {name: build}, "method", where)
    except (NameError, PydanticUserError) as error:  # the user's own types, which TOML cannot write
        raise HoldfastError(f"{where}.name: the signature of {name} cannot be read ({first_line(error)})") from error


def dataset_section(section: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The options of a dataset's reader, with ``split`` and ``per_class``."""
    own = {key: section[key] for key in ("split", "per_class") if key in section}
    rest = {key: value for key, value in section.items() if key not in own}
    checked = named_section(rest, READERS, "dataset", where)
    if not isinstance(own.get("split"), str):
        raise HoldfastError(f'{where}.split: missing; name the split to read, such as "train"')
    per_class = own.get("per_class")
    if per_class is not None and (not isinstance(per_class, int) or isinstance(per_class, bool) or per_class < 1):
        raise HoldfastError(f"{where}.per_class: must be a whole number of at least 1, got {per_class!r}")
    return {"name": checked.pop("name"), "split": own["split"], "per_class": per_class, **checked}


def train_section(section: Mapping[str, Any], *, vectors: bool) -> dict[str, Any]:
    """The options of training on images, or on ``vectors``, for which image augmentation is switched off."""
    given = {**OFF_FOR_VECTORS, **section} if vectors else dict(section)
    for name in RECORDED:
        if given.get(name) is True:
            del given[name]
    options = validated(options_schema(FitOptions, leave_out={"seed"}), given, "train")
    if vectors:
        with naming_table("train"):
            refuse_augmentation(options)
    return options


def _run_backbone_section(scenario: Mapping[str, Any], section: Mapping[str, Any] | None) -> dict[str, Any]:
    """Networks come either from the recipe's backbone or from the models that a scenario names, not from both."""
    if "model" not in scenario:
        if section is None:
            raise HoldfastError("backbone: missing")
        return backbone_section(section)
    if section:
        raise HoldfastError(f"backbone: {scenario['name']} takes its networks from its models; leave the table out")
    return {}


def backbone_section(section: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a backbone's builder, with ``BackboneExtras``."""
    name, options = _split_name(section, "backbone")
    builder = backbone_builder(name)
    given = {key: options.pop(key) for key in BACKBONE_EXTRAS if key in options}
    given = {key: value for key, value in validated(BackboneExtras, given, "backbone").items() if value is not None}
    for key in ("weights_prefix", "weights_skip"):
        if key in given and "weights" not in given:
            raise HoldfastError(f"backbone.{key}: needs backbone.weights, which is missing")
    if builder is None:  # timm checks the options itself
        return {"name": name, **options, **given}
    try:
        schema = options_schema(builder, leave_out={"name", *BACKBONE_EXTRAS})
    except (NameError, PydanticUserError) as error:  # the user's own types, which TOML cannot write
        raise HoldfastError(f"backbone.name: the signature of {name} cannot be read ({first_line(error)})") from error
    return {"name": name, **validated(schema, options, "backbone"), **given}


def _split_name(section: Mapping[str, Any], where: str) -> tuple[str, dict[str, Any]]:
    options = dict(section)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise HoldfastError(f"{where}.name: missing; it must be a string")
    return name, options


def options_schema(callee: Callable[..., Any], *, leave_out: Collection[str] = ()) -> type[BaseModel]:
    """A model with one field per keyword option of ``callee``; a trailing underscore (``lambda_``) is dropped.

    leave_out: parameters that are not options.
    """
    return _schema(callee, frozenset(leave_out))


@functools.cache  # a sweep of a hundred runs needs the same few
def _schema(callee: Callable[..., Any], leave_out: frozenset[str]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(callee, eval_str=True).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            continue
        # Parameters without a default that may be positional are passed by the caller: a data root, labels.
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
    """``values`` checked against ``schema``, with defaults. The error names the first wrong key, in one line."""
    _refuse_non_json(values, where)
    try:
        # As JSON, because a list is then accepted for a tuple even in strict mode; TOML has no tuples.
        checked = schema.model_validate_json(json.dumps(values))
    except ValidationError as error:
        raise HoldfastError(_one_line(error, schema, where)) from None
    return checked.model_dump(mode="json")


def _as_json(value: Any) -> Any:
    """A table with lists for tuples, which TOML does not have."""
    return json.loads(json.dumps(value)) if isinstance(value, Mapping) else value


def _refuse_non_json(value: Any, where: str) -> None:
    """Refuse dates and infinities: TOML has them, JSON does not."""
    if isinstance(value, BaseModel):
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_non_json(item, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_non_json(item, where)
    elif isinstance(value, float) and not math.isfinite(value):
        raise HoldfastError(f"{where}: must be a finite number, got {value}")
    elif value is not None and not isinstance(value, str | bool | int | float):
        raise HoldfastError(f"{where}: a recipe cannot hold dates and times, got {value}")


def _one_line(error: ValidationError, schema: type[BaseModel], where: str) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in (where, *first["loc"]) if part != "")
    if first["type"] == "extra_forbidden":
        table: Any = schema
        for part in first["loc"][:-1]:
            table = table.model_fields[part].annotation
        return f"{key}: unknown key; known here: {', '.join(table.model_fields) or 'none'}"
    if first["type"] == "missing":
        return f"{key}: missing"
    return f"{key}: {first['msg'][0].lower()}{first['msg'][1:]}, got {first['input']!r}"

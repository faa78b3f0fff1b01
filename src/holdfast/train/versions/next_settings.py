"""The settings of an update: those that its model was trained by, changed as the caller asks, and never against it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.train.data.sampler import steps_per_epoch
from holdfast.train.encoders import Preprocess, VectorInput
from holdfast.train.encoders.named_backbone import NamedBackbone, named_backbone, same_network
from holdfast.train.encoders.preprocess import VECTORS_KIND, input_from_json
from holdfast.train.experiments.load import read_recipe, with_overrides
from holdfast.train.named_code import trusted_code
from holdfast.train.randomness import GENERATOR_LOCK
from holdfast.train.versions.parent import Parent, describe_model, own_code_of, read_parent, recorded_recipe
from holdfast.train.versions.settings import VersionSettings
from holdfast.train.versions.version_defaults import SMALL_SIDE, pretrained_fit


def given_tables(settings: VersionSettings | str | Path | None) -> dict[str, Any] | None:
    """The tables of settings, or of a recipe (a file, or the name of a built-in one); None for None."""
    if isinstance(settings, VersionSettings):
        return {**settings.tables(), "methods": settings.methods}
    return None if settings is None else version_tables(read_recipe(str(settings)))


def chosen_network(backbone: str | None, changes: Sequence[str]) -> NamedBackbone | None:
    """The network that ``backbone`` names, with the weights that ``changes`` name; None if it is not given."""
    if backbone is None:
        return None
    table = with_overrides({}, changes).get("backbone")
    return named_backbone(backbone, table.get("weights") if isinstance(table, dict) else None)


def next_settings(
    model: Path,
    settings: VersionSettings | str | Path | None = None,
    *,
    backbone: str | None = None,
    changes: Sequence[str] = (),
) -> tuple[Parent, VersionSettings, str | None]:
    """The model, the settings of the version after it, and the network or model that replaces its own, if one does.

    The parameters are those of ``update``. Settings that contradict the model are refused by name.
    """
    description = describe_model(model)
    other_model = backbone is not None and is_model(backbone)
    named = None if other_model else chosen_network(backbone, changes)
    table = with_overrides({}, changes).get("backbone")
    options = isinstance(table, dict) and table.keys() - {"name", "freeze"}
    replaced = named is not None and (bool(options) or not same_network(description, named))
    if not replaced and own_code_of(description) is None:
        named = None
    tables = given_tables(settings)
    if tables is None:
        tables = recorded_tables(model)
        if named is not None and replaced:
            tables = tables_with_network(tables, named)
    tables = with_overrides(tables, changes)
    if named is not None:
        own = tables.get("backbone") or {}
        if own.get("name", named.name) != named.name:
            raise HoldfastError(f"--backbone {named.name}, but the recipe names {own['name']}; name one network")
        tables["backbone"] = {**named.table, **own}
    complete = _completed(VersionSettings(**tables, vectors=takes_vectors(description)), description, model)
    _build_own_code(description, complete, model)
    parent = read_parent(model)
    method = (recorded_recipe(model) or {}).get("method")
    trained_by = method.get("name") if isinstance(method, Mapping) else None
    _refuse_contradictions(complete, parent, trained_by, replaced=other_model or replaced)
    return parent, complete, backbone if other_model else named.name if named is not None and replaced else None


TRAINING_OF_NETWORK = (
    "epochs", "batch_size", "optimizer", "lr", "lr_groups", "momentum", "weight_decay", "decay_norms", "schedule",
    "milestones", "decay", "final_lr", "warmup",
)  # fmt: skip
"""Options of training that suit a network; the others belong to the data, which stay as they are in an update."""


def tables_with_network(tables: Mapping[str, Any], named: NamedBackbone) -> dict[str, Any]:
    """The recorded recipe of a model with another network and, if it has trained weights, the training that suits it.

    Sizes and crops of the images are those of the model: old and new network get the same images.
    """
    train = dict(tables.get("train", {}))
    if named.input is not None:
        suits = pretrained_fit().table()
        train |= {key: suits[key] for key in TRAINING_OF_NETWORK}
    return {**tables, "backbone": named.table, "train": train}


def is_model(name: str) -> bool:
    """Whether ``name`` is a model folder; otherwise it names a backbone."""
    return (Path(name) / "config.json").is_file()


def recorded_tables(model: Path) -> dict[str, Any]:
    """The tables of the recipe that ``model`` was trained by, as ``VersionSettings`` takes them.

    Without ``method.slots``: slots may have been added since.
    """
    recorded = recorded_recipe(model)
    if recorded is None:
        raise HoldfastError(
            f"{model}: no recipe of holdfast start, update or run is with it; give one by --recipe (settings in Python)"
        )
    tables = version_tables(recorded)
    if isinstance(tables.get("method"), dict):
        tables["method"] = {key: value for key, value in tables["method"].items() if key != "slots"}
    return tables


def trained_steps(model: Path) -> int | None:
    """Steps that a model of images was trained for; None if it takes vectors or if they are not recorded."""
    description = describe_model(model)
    info = description.get("info")
    data = info.get("data") if isinstance(info, Mapping) else None
    if recorded_recipe(model) is None or not isinstance(data, Mapping) or takes_vectors(description):
        return None
    fit = VersionSettings(**recorded_tables(model)).fit
    return fit.epochs * steps_per_epoch(data["images"], data.get("replayed", 0), fit.batch_size)


def version_tables(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe of ``holdfast run`` as one of ``holdfast start``: training and replay without the data.

    Size and colour are kept if its training set is a folder or a CSV file, and the columns' names if it is vectors.
    Other recipes are copied unchanged.
    """
    if "scenario" not in recipe:
        return dict(recipe)
    scenario, data = recipe["scenario"], recipe.get("data")
    if not isinstance(scenario, Mapping) or scenario.get("name") != "cl2r":
        raise HoldfastError("scenario.name: only a run of cl2r trains one model after another; leave the table out")
    train = data.get("train") if isinstance(data, Mapping) else None
    own = train if isinstance(train, Mapping) and train.get("name") in ("folder", "csv", "vectors") else {}
    tables = {key: value for key, value in recipe.items() if key not in ("scenario", "data", "evaluation")}
    tables["data"] = {key: own[key] for key in ("size", "colour", "features", "labels") if key in own}
    if isinstance(tables.get("train"), Mapping):  # ``random_reference`` is for the first model of a scenario
        tables["train"] = {key: value for key, value in tables["train"].items() if key != "random_reference"}
    if "buffer_per_class" in scenario:
        tables["buffer"] = {"per_class": scenario["buffer_per_class"]}
    return tables


def takes_vectors(description: Mapping[str, Any]) -> bool:
    """Whether the model of this ``config.json`` takes vectors."""
    preprocess = description["preprocess"]
    return isinstance(preprocess, Mapping) and preprocess.get("kind") == VECTORS_KIND


def _completed(settings: VersionSettings, description: Mapping[str, Any], model: Path) -> VersionSettings:
    """``settings`` with size, colour and slots of the model if they are not set."""
    if not settings.vectors:
        preprocess = description["preprocess"]
        own = preprocess if isinstance(preprocess, Mapping) and "size" in preprocess else {}
        size = SMALL_SIDE if settings.train["resized_crop"] or not own else own["size"][0]
        data = {"size": settings.data.size or size, "colour": settings.data.colour or own.get("colour", "rgb")}
        settings = settings.changed(data=data)
    slots = description.get("info", {}).get("slots")
    if not settings.takes_slots() or not isinstance(slots, Mapping):
        return settings
    count = slots.get("num_slots", 0)
    if description.get("dim") != count - 1:
        return settings
    own_slots = settings.method.get("slots") or count
    if own_slots != count:
        raise HoldfastError(
            f"method.slots: {own_slots}, but {model} has {count}; leave it out, or first "
            f"holdfast slots grow {model} --to {own_slots}"
        )
    return settings.with_slots(count)


def _build_own_code(description: Mapping[str, Any], settings: VersionSettings, model: Path) -> None:
    """Build the network that the caller names, so that the model can be rebuilt with it.

    Code that only the model folder names is never run.
    """
    code = own_code_of(description)
    if code is None or code in trusted_code():
        return
    if settings.network != code:
        raise HoldfastError(
            f"{model}: its network is code of your own, {code}, which no model folder may name; give --backbone "
            f'{code}, or --recipe with backbone.name = "{code}" (backbone="{code}" in Python); reports and galleries '
            f"take holdfast --code {code}"
        )
    _built_spec(settings, input_from_json(description["preprocess"]))


def _built_spec(settings: VersionSettings, preprocess: Any) -> Any:
    with GENERATOR_LOCK:
        encoder = settings.encoder_maker(preprocess)()
    return getattr(encoder.backbone, "backbone_spec", None)


def _refuse_contradictions(
    settings: VersionSettings, parent: Parent, trained_by: str | None, *, replaced: bool
) -> None:
    method, folder = settings.method["name"], parent.folder
    if trained_by is not None and method != trained_by:
        raise HoldfastError(f"method.name: {method}, but {folder} was trained with {trained_by}")
    fresh = settings.build_method()
    if fresh.num_slots is None and parent.encoder.dim != fresh.feature_dim(parent.encoder.feature_dim):
        raise HoldfastError(f"method.name: {method} has no slots, but {folder} was trained into those of a simplex")
    if fresh.num_slots is not None and fresh.num_slots != parent.encoder.dim + 1:
        raise HoldfastError(f"method.name: {method} needs slots, but {folder} was trained without any")
    if settings.network is not None and not replaced:
        _refuse_other_network(settings, parent)
    own, wanted = parent.preprocess, settings.preprocess.model_dump()
    if isinstance(own, VectorInput):
        if wanted["unit"] not in (None, own.unit):
            unit, other = ("true", "false") if own.unit else ("false", "true")
            raise HoldfastError(f"preprocess.unit: {other}, but {folder} has {unit}")
        return
    assert isinstance(own, Preprocess)
    for key, value in (("mean", list(own.mean)), ("std", list(own.std))):
        if wanted[key] is not None and list(wanted[key]) != value:
            raise HoldfastError(f"preprocess.{key}: {wanted[key]}, but {folder} has {value}")
    if wanted["resize"] not in (None, own.resize):
        raise HoldfastError(f"preprocess.resize: {wanted['resize']}, but {folder} has {own.resize or 'none'}")
    if settings.data.colour != own.colour:
        raise HoldfastError(f"data.colour: {settings.data.colour}, but {folder} takes {own.colour} images")
    trained = settings.train["resized_crop"] or settings.data.size
    if trained != own.height_width[0]:
        raise HoldfastError(f"data.size: training would see {trained} pixels a side, but {folder} takes "
                            f"{own.height_width[0]}")  # fmt: skip


def _refuse_other_network(settings: VersionSettings, parent: Parent) -> None:
    spec = getattr(parent.encoder.backbone, "backbone_spec", None)
    own = spec["name"] if isinstance(spec, Mapping) else type(parent.encoder.backbone).__name__
    advice = "leave the backbone out, or replace the network with --backbone"
    if settings.network != own:
        raise HoldfastError(f"backbone.name: {settings.network}, but the network of {parent.folder} is {own}; {advice}")
    if (settings.backbone or {}).get("weights") is not None:
        raise HoldfastError(f"backbone.weights: {parent.folder} brings its own weights; {advice}")
    if not own.startswith(("hf:", "timm:")) and _built_spec(settings, parent.preprocess) != spec:
        raise HoldfastError(f"backbone: options other than those of {parent.folder}; {advice}")

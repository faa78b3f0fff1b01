"""How the next version is trained: the recipe, held against the model it goes on from."""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.encoders import Preprocess, VectorInput
from holdfast.encoders.preprocess import KIND, input_from_json
from holdfast.errors import HoldfastError
from holdfast.experiments.assemble import encoder_maker, method_maker
from holdfast.experiments.load import read_recipe, with_overrides
from holdfast.experiments.schema import Recipe
from holdfast.experiments.update_schema import DEFAULTS, VECTOR_DEFAULTS, check_update_recipe, without_the_run
from holdfast.lifecycle.parent import Parent, describe_model, own_code_of, read_parent, recipe_beside, refuse_adopted
from holdfast.methods import METHODS, Method
from holdfast.randomness import GLOBAL_GENERATOR


def start_settings(recipe: str | None, overrides: Sequence[str], *, vectors: bool = False) -> Recipe:
    """The recipe of version 1, for images or vectors: the one named, or the defaults; it must name a backbone."""
    usual = VECTOR_DEFAULTS if vectors else DEFAULTS
    raw = without_the_run(read_recipe(recipe)) if recipe is not None else usual
    checked = check_update_recipe(with_overrides(raw, overrides), vectors=vectors)
    if not checked["backbone"]:
        raise HoldfastError("backbone: missing; the first version needs a network")
    return checked


def update_settings(
    model: Path, recipe: str | None, overrides: Sequence[str], replace_with: str | None
) -> tuple[Parent, Recipe]:
    """The model and the recipe of what follows it; whatever contradicts the model is refused by the key's name.

    Without a recipe the model's own is used again.
    """
    description = describe_model(model)
    refuse_adopted(model, description.get("info"))
    given = without_the_run(read_recipe(recipe)) if recipe is not None else None
    beside = recipe_beside(model)
    if given is None and beside is None:
        raise HoldfastError(f"{model}: no recipe of its training lies beside it; name one with --recipe")
    raw = with_overrides(given if given is not None else without_the_run(beside or {}), overrides)
    made_by = _table(beside, "method").get("name") if beside else None
    if given is None:
        _table(raw, "method").pop("slots", None)  # slots may have been added since
    if replace_with is not None and not (Path(replace_with) / "config.json").is_file():
        own = _table(raw, "backbone")
        raw["backbone"] = {**(own if own.get("name", replace_with) == replace_with else {}), "name": replace_with}
    _fill_in(raw, description, model)
    preprocess = description["preprocess"]
    checked = check_update_recipe(raw, vectors=isinstance(preprocess, Mapping) and preprocess.get("kind") == KIND)
    _build_own_code(description, checked, model)
    parent = read_parent(model)
    _refuse_contradictions(checked, parent, made_by, replaced=replace_with is not None)
    return parent, checked


def method_of(recipe: Recipe) -> Method:
    """A fresh method; its slots are in the recipe by now."""
    return method_maker(recipe, 0)()


def _table(raw: dict[str, Any], name: str) -> dict[str, Any]:
    table = raw.setdefault(name, {})
    return table if isinstance(table, dict) else {}


def _fill_in(raw: dict[str, Any], description: Mapping[str, Any], model: Path) -> None:
    """What the recipe leaves open and the model decides: size, colour, slots."""
    preprocess = description["preprocess"]
    if isinstance(preprocess, Mapping) and "size" in preprocess:
        data = _table(raw, "data")
        data.setdefault("colour", preprocess.get("colour", "rgb"))
        if not _table(raw, "train").get("resized_crop"):
            data.setdefault("size", preprocess["size"][0])
    slots = description.get("info", {}).get("slots")
    method = _table(raw, "method")
    takes_slots = "slots" in inspect.signature(METHODS.get(method.get("name", ""), object)).parameters
    if takes_slots and isinstance(slots, Mapping) and description.get("dim") == slots.get("num_slots", 0) - 1:
        own = method.setdefault("slots", slots["num_slots"])
        if own != slots["num_slots"]:
            raise HoldfastError(
                f"method.slots: {own}, but {model} has {slots['num_slots']}; leave it out, or first "
                f"holdfast slots grow {model} --to {own}"
            )


def _build_own_code(description: Mapping[str, Any], recipe: Recipe, model: Path) -> None:
    """Build what the user's recipe names, so that the model may be rebuilt with it; a folder's word is not enough."""
    code = own_code_of(description)
    if code is None:
        return
    if recipe["backbone"].get("name") != code:
        raise HoldfastError(
            f"{model}: its network is code of your own, {code}, which no model folder may name; give --recipe with "
            f'backbone.name = "{code}"'
        )
    _built_spec(recipe, input_from_json(description["preprocess"]))


def _built_spec(recipe: Recipe, preprocess: Any) -> Any:
    with GLOBAL_GENERATOR:
        encoder = encoder_maker(recipe, preprocess, lambda: method_of(recipe))()
    return getattr(encoder.backbone, "backbone_spec", None)


def _refuse_contradictions(recipe: Recipe, parent: Parent, made_by: str | None, *, replaced: bool) -> None:
    if made_by is not None and recipe.method != made_by:
        raise HoldfastError(f"method.name: {recipe.method}, but {parent.folder} was trained with {made_by}")
    fresh = method_of(recipe)
    if fresh.num_slots is None and parent.encoder.dim != fresh.feature_dim(parent.encoder.feature_dim):
        raise HoldfastError(
            f"method.name: {recipe.method} has no slots, but {parent.folder} was trained into those of a simplex"
        )
    if fresh.num_slots is not None and fresh.num_slots != parent.encoder.dim + 1:
        raise HoldfastError(f"method.name: {recipe.method} needs slots, but {parent.folder} was trained without any")
    own = parent.preprocess
    if recipe["backbone"] and not replaced:
        _refuse_other_network(recipe, parent, own)
    if isinstance(own, VectorInput):
        if recipe["preprocess"]["unit"] not in (None, own.unit):
            unit, other = ("true", "false") if own.unit else ("false", "true")
            raise HoldfastError(f"preprocess.unit: {other}, but {parent.folder} has {unit}")
        return
    for key, mine in (("mean", list(own.mean)), ("std", list(own.std))):
        if recipe["preprocess"][key] not in (None, mine):
            raise HoldfastError(f"preprocess.{key}: {recipe['preprocess'][key]}, but {parent.folder} has {mine}")
    if recipe["data"]["colour"] != own.colour:
        raise HoldfastError(f"data.colour: {recipe['data']['colour']}, but {parent.folder} takes {own.colour} images")
    seen = recipe["train"]["resized_crop"] or recipe["data"]["size"]
    if seen != own.height_width[0]:
        raise HoldfastError(f"data.size: training would see {seen} pixels a side, but {parent.folder} takes "
                            f"{own.height_width[0]}")  # fmt: skip


def _refuse_other_network(recipe: Recipe, parent: Parent, preprocess: Preprocess | VectorInput) -> None:
    spec = getattr(parent.encoder.backbone, "backbone_spec", None)
    named = recipe["backbone"]["name"]
    mine = spec["name"] if isinstance(spec, Mapping) else type(parent.encoder.backbone).__name__
    way_out = "leave the table out, or replace the network with --replace-with"
    if named != mine:
        raise HoldfastError(f"backbone.name: {named}, but the network of {parent.folder} is {mine}; {way_out}")
    if "weights" in recipe["backbone"]:
        raise HoldfastError(f"backbone.weights: {parent.folder} brings its own weights; {way_out}")
    if not named.startswith(("hf:", "timm:")) and _built_spec(recipe, preprocess) != spec:
        raise HoldfastError(f"backbone: options other than those of {parent.folder}; {way_out}")

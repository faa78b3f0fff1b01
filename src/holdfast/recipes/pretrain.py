"""Pre-train a model on one set of classes, into its slots or with a trainable classifier; killed, it goes on."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.backbones import Encoder
from holdfast.data import ImageSet
from holdfast.data.sampler import steps_per_epoch
from holdfast.devices import resolve_device
from holdfast.engine import FitOptions, fit
from holdfast.engine.checkpoint import CheckpointFile
from holdfast.engine.journal import Journal, read_events
from holdfast.engine.slot_record import read_slots
from holdfast.environment import describe
from holdfast.errors import HoldfastError
from holdfast.methods import Method
from holdfast.named_code import is_named_code
from holdfast.randomness import GLOBAL_GENERATOR, derived_seed
from holdfast.recipes.assemble import SharedData, encoder_maker, method_maker, preprocess_of, trained_size, try_encoder
from holdfast.recipes.claim import claim
from holdfast.recipes.models import BroughtIn, head_of
from holdfast.recipes.options import keywords
from holdfast.recipes.pretrain_schema import PretrainRecipe, check_pretrain_recipe
from holdfast.recipes.sittings import Sitting
from holdfast.run_folder import RunFolder
from holdfast.scenarios import SlotRegistry, Task
from holdfast.storage import write_text

Log = Callable[[dict[str, Any]], None]


def pretrain(
    recipe: PretrainRecipe,
    folder: RunFolder,
    *,
    shared: SharedData | None = None,
    device: str = "auto",
    watch: Log = lambda event: None,
) -> dict[str, Any]:
    """Train ``recipe``'s model; afterwards ``Encoder.from_pretrained`` reads ``folder``. Returns the model's record.

    A folder that holds another recipe's model is refused; what this one's left there is gone on with.
    """
    claim(recipe.tables, folder, resume=True, check=lambda raw: _checked_in_folder(raw, recipe))
    where = resolve_device(device)
    shared = shared or SharedData()
    if (folder.path / "config.json").exists():
        watch({"event": "done"})
        return dict(Encoder.from_pretrained(folder.path).info["pretrained"])
    images = shared.one_set(recipe["data"])
    make_method = method_maker(recipe, images.num_classes)
    method = make_method()
    task = _whole_set(recipe, images, method, shared.models)
    options = FitOptions(**keywords(FitOptions, recipe["train"]), seed=recipe.seed)
    preprocess = preprocess_of(recipe["preprocess"], images, size=trained_size(images, options))
    make_encoder = encoder_maker(recipe, preprocess, make_method)
    with GLOBAL_GENERATOR:
        try_encoder(make_encoder(), preprocess, make_method(), options)
        torch.manual_seed(derived_seed(recipe.seed, 0, "encoder"))
        encoder = make_encoder()
    with folder.held():
        write_text(folder.recipe, recipe.to_toml())
        Sitting(folder, describe(str(where))).note()
        journal, checkpoint = Journal(folder.log), CheckpointFile(folder.checkpoint)

        def log(event: dict[str, Any]) -> None:
            journal(event)
            watch(event)

        watch({"event": "plan", "steps": [options.epochs * steps_per_epoch(len(images), 0, options.batch_size)]})
        fit(
            encoder,
            method,
            task,
            shared.images(images, where, options.images),
            options=options,
            log=log,
            checkpoint=checkpoint,
        )
        encoder.info = {**encoder.info, "pretrained": _record(recipe, images, method, folder)}
        encoder.write_into(folder.path)
        checkpoint.clear()
    watch({"event": "done"})
    return dict(encoder.info["pretrained"])


def _checked_in_folder(raw: dict[str, Any], recipe: PretrainRecipe) -> Mapping[str, Any]:
    """The folder's recipe, checked; code is imported on the user's word alone, never because a folder names it."""
    method = raw.get("method")
    named = method.get("name") if isinstance(method, Mapping) else None
    if isinstance(named, str) and is_named_code(named) and named != recipe.method:
        raise HoldfastError(f"holds a model trained with {named}; choose another --out")
    return check_pretrain_recipe(raw).tables


def _whole_set(recipe: PretrainRecipe, images: ImageSet, method: Method, models: Path) -> Task:
    """One task with every class, each on its slot."""
    namespace = recipe["namespace"] if recipe["namespace"] is not None else recipe["data"]["name"]
    names = [f"{namespace}/{name}" if namespace else name for name in images.class_names]
    registry = SlotRegistry(method.num_slots or len(names))
    if recipe["slots_from"] is not None:
        older = BroughtIn(models).load(recipe["slots_from"])
        try:
            registry = registry.meet(read_slots(older, models / recipe["slots_from"]))
        except HoldfastError as error:
            raise HoldfastError(f"slots_from: {error}") from error
    registry = registry.take_left(name for name in names if name not in registry.owners)
    classes = tuple(range(len(names)))
    return Task(
        number=1,
        new_classes=classes,
        seen_classes=classes,
        new_indices=np.arange(len(images)),
        buffer_indices=np.empty(0, dtype=np.int64),
        registry=registry,
        slots=tuple(registry.slot(name) for name in names),
        start="scratch",
        reference="none",
    )


def _record(recipe: PretrainRecipe, images: ImageSet, method: Method, folder: RunFolder) -> dict[str, Any]:
    epochs = [event for event in read_events(folder.log) if event["event"] == "epoch"]
    return {
        "head": head_of(method),
        "data": recipe["data"]["name"],
        "classes": images.num_classes,
        "images": len(images),
        "fingerprint": images.fingerprint,
        "epochs": recipe["train"]["epochs"],
        "steps": epochs[-1]["step"],
        "seconds": round(sum(event["seconds"] for event in epochs), 2),
        "loss": epochs[-1]["loss"],
    }

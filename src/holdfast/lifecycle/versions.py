"""Train one version of a user's own model, judge it and write it; killed, it goes on.

Whether there is enough to learn from: classes to tell apart, and images of each.

One's own images: version 1 from nothing, and then exactly the next version, compatible with the one in use.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.devices import resolve_device
from holdfast.encoders import Encoder, Preprocess, VectorInput
from holdfast.errors import HoldfastError
from holdfast.evaluation.check import RESAMPLES, check_options
from holdfast.experiments.assemble import encoder_maker, preprocess_of, trained_size, try_encoder
from holdfast.experiments.schema import Recipe, keywords
from holdfast.lifecycle.inputs import Picture, Reader, holds_vectors, reader_to_judge, reader_to_train
from holdfast.lifecycle.parent import KeptImages, Parent, describe_model
from holdfast.lifecycle.plan import Plan, drawn_buffer, lay_out, once
from holdfast.lifecycle.settings import method_of, start_settings, update_settings
from holdfast.lifecycle.train_version import Making, make
from holdfast.methods import Method
from holdfast.randomness import GLOBAL_GENERATOR, derived_seed
from holdfast.scenarios import SlotRegistry
from holdfast.training import FitOptions
from holdfast.training.slots import read_slots
from holdfast.wording import are, counted, first_few, have

Log = Callable[[dict[str, Any]], None]
FEWEST_SLOTS = 100


def start(
    data: Path,
    out: Path,
    *,
    recipe: str | None = None,
    overrides: Sequence[str] = (),
    slots: int | None = None,
    embed_buffer: bool = False,
    device: str = "auto",
    watch: Log = lambda event: None,
) -> dict[str, Any]:
    """Version 1, from nothing: ``Encoder.from_pretrained(out)`` afterwards reads it. What it was trained on.

    slots: room for classes, now and later; by default the recipe's ``method.slots``, or twice the classes there are,
    at least 100.
    """
    settings = start_settings(recipe, overrides, vectors=holds_vectors(data))
    where = resolve_device(device)
    reader = reader_to_train(settings, None)
    pictures = reader.find(data)
    refuse_one_class(pictures, data)
    _warn(nested_classes(pictures, data), watch)
    _warn(lone_images(pictures, ()), watch)
    if "slots" in settings["method"]:
        own = slots or settings["method"]["slots"] or max(FEWEST_SLOTS, 2 * len({one.name for one in pictures}))
        settings = Recipe({**settings.tables, "method": {**settings["method"], "slots": own}})
    elif slots is not None:
        raise HoldfastError(f"--slots: {settings.method} has none; leave it out")
    method = method_of(settings)
    plan = lay_out(
        pictures,
        reader,
        settings,
        method,
        None,
        KeptImages(),
        share=settings["held_out"]["share"],
        registry=SlotRegistry(method.num_slots or 1),
    )
    options = _options(settings)
    preprocess = preprocess_of(settings["preprocess"], plan.images, size=trained_size(plan.images, options))
    build = encoder_maker(settings, preprocess, lambda: method_of(settings))
    _try(build, preprocess, settings, options)
    if embed_buffer:
        plan = _embedding(plan, settings, preprocess)
    making = Making(settings, options, plan, preprocess, None)
    return make(making, out, method, lambda: _seeded(build, settings.seed), where, watch)


def update(
    model: Path,
    data: Path,
    out: Path,
    *,
    recipe: str | None = None,
    overrides: Sequence[str] = (),
    replace_with: str | None = None,
    embed_buffer: bool = False,
    buffer_from: Path | None = None,
    check_on: Path | None = None,
    min_gain: float = 0.0,
    device: str = "auto",
    watch: Log = lambda event: None,
) -> dict[str, Any]:
    """The version after ``model``, trained on ``data`` and the buffer, held to ``model`` and judged against it.

    replace_with: another network (a backbone's name) or another model's folder instead of the model's own weights.
    buffer_from: draw the buffer anew from these images. check_on: judge by these, and hold nothing out of ``data``.
    """
    check_options("instance", 0.95, min_gain, RESAMPLES)
    parent, settings = update_settings(model, recipe, overrides, replace_with)
    where = resolve_device(device)
    if out.resolve() == model.resolve():
        raise HoldfastError(f"{out}: --out must not be the model itself, whose stored vectors are still in use")
    reader = reader_to_train(settings, parent.preprocess)
    parent = _judged_by_what_is_left(parent, reader, watch)
    method = method_of(settings)
    buffer = parent.buffer or KeptImages()
    if buffer_from is not None:
        buffer = drawn_buffer(reader.find(buffer_from), reader, settings, parent)
    registry, brought_in = _slots_and_replacement(parent, method, replace_with)
    pictures = reader.find(data)
    _warn(nested_classes(pictures, data), watch)
    _warn(lone_images(pictures, parent.classes), watch)
    plan = lay_out(
        pictures,
        reader,
        settings,
        method,
        parent,
        buffer,
        share=0.0 if check_on else settings["held_out"]["share"],
        replaced=replace_with is not None,
        registry=registry,
    )
    if check_on is not None:
        held = {one.sha256 for one in parent.held_out.pictures}
        trained = {one.sha256 for one in (*pictures, *buffer.pictures)} - held
        plan = replace(plan, judged=_not_trained_on(reader.find(check_on), trained, watch))
    options = _options(settings)
    trained_size(plan.images, options)
    build = _network(parent, settings, brought_in, replace_with)
    _try(build, parent.preprocess, settings, options)
    if not len(buffer) and parent.classes:
        text = f"{parent.folder} has no buffer: only the new images are trained on; --buffer-from FOLDER draws one"
        watch({"event": "warning", "text": text})
    if embed_buffer or (parent.buffer is not None and parent.buffer.embedded is not None):
        plan = _embedding(plan, settings, parent.preprocess)
    making = Making(
        settings,
        options,
        plan,
        parent.preprocess,
        parent,
        replace_with=replace_with if brought_in is None else brought_in.info["origin"],
        new_buffer=buffer_from is not None,
        min_gain=min_gain,
    )
    return make(making, out, method, lambda: _seeded(build, settings.seed), where, watch)


def _warn(text: str | None, watch: Log) -> None:
    if text is not None:
        watch({"event": "warning", "text": text})


def _not_trained_on(pictures: Sequence[Picture], trained: set[str], watch: Log) -> KeptImages:
    """What ``--check-on`` names, each content once, without those that the new model is trained on."""
    different = once(pictures, KeptImages())
    left = tuple(one for one in different if one.sha256 not in trained)
    if len(left) < len(different):
        trained_on, images = len(different) - len(left), counted(len(different), "image")
        text = f"{trained_on} of {images} to check on {are(trained_on)} trained on; left out"
        watch({"event": "warning", "text": text})
    return KeptImages(left)


def _judged_by_what_is_left(parent: Parent, reader: Reader, watch: Log) -> Parent:
    """Without the held-out images whose files are gone or changed: fewer to judge by, but no reason to stop."""
    left = parent.held_out.left(reader)
    lost = len(parent.held_out) - len(left)
    if lost:
        images = counted(len(parent.held_out), "held-out image")
        text = f"{lost} of {images} of earlier versions {are(lost)} gone or changed; left out"
        watch({"event": "warning", "text": text})
    return replace(parent, held_out=left)


def _options(recipe: Recipe) -> FitOptions:
    return FitOptions(**keywords(FitOptions, recipe["train"]), seed=recipe.seed)


def _try(
    build: Callable[[], Encoder], preprocess: Preprocess | VectorInput, recipe: Recipe, options: FitOptions
) -> None:
    with GLOBAL_GENERATOR:
        try_encoder(build(), preprocess, method_of(recipe), options)


def _seeded(build: Callable[[], Encoder], seed: int) -> Encoder:
    with GLOBAL_GENERATOR:
        torch.manual_seed(derived_seed(seed, 0, "encoder"))
        return build()


def _network(
    parent: Parent, recipe: Recipe, brought_in: Encoder | None, replace_with: str | None
) -> Callable[[], Encoder]:
    """What makes the network that training begins with, with the model's preprocessing and the recipe's freezing."""

    def build() -> Encoder:
        if replace_with is not None and brought_in is None:
            return encoder_maker(recipe, parent.preprocess, lambda: method_of(recipe))()
        source = Path(replace_with) if replace_with is not None else parent.folder
        encoder = Encoder.from_pretrained(source).float()
        encoder.preprocess = parent.preprocess
        if brought_in is not None:
            encoder.info["origin"] = brought_in.info["origin"]
        if recipe["backbone"].get("freeze") is not None:
            encoder.freeze(recipe["backbone"]["freeze"])
        return encoder

    return build


def _slots_and_replacement(
    parent: Parent, method: Method, replace_with: str | None
) -> tuple[SlotRegistry, Encoder | None]:
    """Who owns which slot before the new classes come, and the model brought in, whose slots must agree."""
    if method.num_slots is None:
        registry = SlotRegistry(max(1, len(parent.classes)), {name: i for i, name in enumerate(parent.classes)})
    else:
        registry = read_slots(parent.encoder, parent.folder)
    if replace_with is None or not (Path(replace_with) / "config.json").is_file():
        return registry, None
    brought_in = Encoder.from_pretrained(replace_with)
    folder = Path(replace_with)
    weights = describe_model(folder)["weights_sha256"]
    brought_in.info["origin"] = {"model": folder.resolve().name, "weights_sha256": weights}
    if method.num_slots is not None:
        try:
            registry = registry.meet(read_slots(brought_in, folder))
        except HoldfastError as error:
            raise HoldfastError(f"--replace-with {replace_with}: {error}") from error
    return registry, brought_in


def _embedding(plan: Plan, recipe: Recipe, preprocess: Preprocess | VectorInput) -> Plan:
    """The same with the pixels of what is kept, so that no file of it is needed any more."""
    buffer = plan.buffer.with_pixels(np.ascontiguousarray(plan.images.images[plan.next_rows]))
    kept_out = plan.kept_out
    if kept_out.embedded is None:
        kept_out = kept_out.with_pixels(kept_out.pixels(reader_to_judge(recipe, preprocess), "held-out images"))
    return replace(plan, buffer=buffer, kept_out=kept_out)


NAMED = 5


def refuse_one_class(pictures: Sequence[Picture], source: Path) -> None:
    """With one class every feature is right, so training would teach nothing, and say that all went well."""
    names = {one.name for one in pictures}
    if len(names) == 1:
        raise HoldfastError(
            f"{source}: has one class only, {names.pop()!r}, and a model learns by telling classes apart; give two or "
            "more, each as a folder or a label of its own"
        )


def nested_classes(pictures: Sequence[Picture], source: Path) -> str | None:
    """A warning where classes hold no images themselves but several folders of them: ``source`` may be too high.

    Images that lie deeper are no mistake by themselves, so one and the same folder in each class (``images``, say) is
    taken as it is.
    """
    if not source.is_dir():
        return None
    top = source / "train" if (source / "train").is_dir() else source  # as ``folder_listing`` reads it
    inside: defaultdict[str, set[str]] = defaultdict(set)
    for one in pictures:
        assert one.path is not None
        _, *folders, _ = one.path.relative_to(os.path.abspath(top)).parts
        inside[one.name].add(folders[0] if folders else "")
    nested = sorted(name for name, found in inside.items() if "" not in found)
    deeper = sorted({folder for name in nested for folder in inside[name]})
    if len(deeper) < 2:
        return None
    which = f"{len(nested)} of {counted(len(inside), 'class')} ({first_few(nested)}) {have(len(nested))}"
    only = f"no images directly inside, only folders of images ({first_few(deeper)})"
    advice = f"if these folders are the classes, --data is one level too high: try {top / nested[0]}"
    return f"{which} {only}, and each counts as one class; {advice}"


def lone_images(pictures: Sequence[Picture], known: Collection[str]) -> str | None:
    """A warning where classes that are not ``known`` yet come with a single image: it cannot be held out as well."""
    contents: defaultdict[str, set[str]] = defaultdict(set)
    for one in pictures:
        contents[one.name].add(one.sha256)
    lone = sorted(name for name, found in contents.items() if len(found) == 1 and name not in known)
    if not lone:
        return None
    named = ", ".join(map(repr, lone[:NAMED])) + (f" and {len(lone) - NAMED} more" if len(lone) > NAMED else "")
    have = "has a single example" if len(lone) == 1 else "have a single example each"
    return (
        f"{len(lone)} of {counted(len(contents), 'class')} {have} ({named}): trained on, so no version can "
        "be judged by these classes until more come"
    )


__all__ = ["start", "update"]

"""Train version 1 of a model on one's own images or vectors, and then each next version, compatible with the last."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.checks.verdict import accepted_loss
from holdfast.core.errors import HoldfastError
from holdfast.core.wording import are, counted
from holdfast.train.data.sampler import steps_per_epoch
from holdfast.train.devices import resolve_device
from holdfast.train.encoders import Encoder, Input
from holdfast.train.encoders.named_backbone import named_backbone
from holdfast.train.engine import Cancellation, RunControl
from holdfast.train.engine.build import preprocess_of, trained_size, try_encoder
from holdfast.train.engine.model_slots import read_slots
from holdfast.train.events import Note, OnEvent, RunWarning, ignore_event
from holdfast.train.experiments.load import with_overrides
from holdfast.train.randomness import GENERATOR_LOCK, derived_seed
from holdfast.train.scenarios import SlotRegistry
from holdfast.train.versions.next_settings import (
    chosen_network,
    given_tables,
    is_model,
    next_settings,
    trained_steps,
)
from holdfast.train.versions.parent import Parent, SampleSet, describe_model
from holdfast.train.versions.plan import Plan, VersionContext, draw_buffer, plan_version
from holdfast.train.versions.samples import (
    Reader,
    SampleRef,
    SourceOptions,
    distinct,
    equal_looking_classes,
    find_samples,
    holds_vectors,
    in_several_classes,
    known_mask,
    nested_classes,
    refuse_one_class,
    single_sample_classes,
)
from holdfast.train.versions.settings import VersionSettings
from holdfast.train.versions.train_version import VersionJob, refuse_other_folder, train_version
from holdfast.train.versions.version_defaults import (
    DEFAULT_NETWORK,
    FEWEST_EPOCHS,
    FIRST_UPDATE,
    ImageSurvey,
    completed,
    default_settings,
    mixed_precision,
    photograph_advice,
    survey_images,
)

FEWEST_SLOTS = 100


def start(
    data: str | Path,
    out: str | Path,
    *,
    settings: VersionSettings | str | Path | None = None,
    backbone: str | Path | None = None,
    changes: Sequence[str] = (),
    split_folders: bool | None = None,
    skip_unreadable: bool = False,
    device: str = "auto",
    on_event: OnEvent = ignore_event,
    cancel: Cancellation | None = None,
) -> dict[str, Any]:
    """Train version 1 of a model and write it to ``out``, from where ``Encoder.from_pretrained`` reads it.

    data: a folder with one folder of images per class, a CSV file of path,label, or vectors (npz, parquet).
    out: folder of the new model. If it holds part of the same training, that training is resumed.
    settings: method, network and training, or a recipe: a file, or the name of a built-in one. Default:
        ``default_settings``, with the size of the images and the epochs chosen by the data: d-Simplex-HOC on a small
        network. For vectors: Cosine-HOC on a head that begins as the identity.
    backbone: name of the network, or a file of its weights (``named_backbone``), if no settings are given.
    changes: changes to the settings, such as "train.epochs=10". ``method.slots`` are the vertices of the simplex, one
        for each class now and later; default: twice the number of classes and at least 100.
    split_folders: whether the folders in ``data`` are splits, of which ``train`` is read. Default: if all of them are
        named like splits (train, val, valid, validation, test, query, gallery).
    skip_unreadable: leave out files and folders that cannot be used; OUT.unreadable.csv beside ``out`` lists them.
        Default: refuse them, all in one error.
    device: "cpu", "cuda", "cuda:N" or "auto" (a GPU if there is one).
    on_event: called with progress events (``holdfast.train.events``).
    cancel: stops the training between two steps.

    Returns the model's ``info``: version number, method, classes, slots, the numbers of images, and under ``accuracy``
    how often the nearest neighbour of a held-out sample is right, by the model and by the raw pixels or vectors.

    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from holdfast import load_split, start
    >>> images = load_split("glyphs", "train", train_classes=2, test_classes=1, per_class_train=8, size=16)
    >>> for number, (pixels, label) in enumerate(zip(images.images, images.labels)):
    ...     file = Path(f"photos/{label}/{number}.png")
    ...     file.parent.mkdir(parents=True, exist_ok=True)
    ...     Image.fromarray(pixels[..., 0]).save(file)
    >>> fast = ["backbone.name=small", "backbone.width=4", "train.epochs=1", "data.size=16"]
    >>> info = start("photos", "models/1", changes=fast, device="cpu")
    >>> info["task"], info["classes"]
    (1, ['0', '1'])
    """
    data, out = Path(data), Path(out)
    refuse_other_folder(out)
    torch_device = resolve_device(device)
    vectors, tables = holds_vectors(data), given_tables(settings)
    if tables is not None and backbone is not None:
        raise HoldfastError("--backbone and --recipe cannot be combined: the recipe's backbone.name is the network")
    # Another network's defaults are those to change, not the ones of the default network.
    table = with_overrides({}, changes).get("backbone")
    name = backbone or (table.get("name") if isinstance(table, dict) else None)
    network = None if tables is not None or name is None else chosen_network(str(name), changes if backbone else ())

    def decided(images: ImageSurvey | None) -> VersionSettings:
        usual = tables
        if usual is None:
            precision = mixed_precision(torch_device)
            usual = default_settings(vectors=vectors, images=images, network=network, precision=precision).tables()
        return completed(VersionSettings(**with_overrides(usual, changes), vectors=vectors))

    settings = decided(None)  # so that a wrong setting is refused before the data are read
    reader = settings.training_reader(None)
    (found,) = find_samples(reader, [data], SourceOptions(split_folders, skip_unreadable), out, on_event)
    if tables is None and not vectors:
        images = survey_images(found.samples)
        settings = decided(images)
        reader = settings.training_reader(None)
        if network is None:
            _tell(photograph_advice(images), on_event)
    samples = found.samples
    refuse_one_class(samples, data)
    _warn(nested_classes(samples, found.top), on_event)
    _warn(single_sample_classes(samples, ()), on_event)
    _warn(equal_looking_classes(samples, ()), on_event)
    _warn(in_several_classes(reader, samples, ()), on_event)
    if settings.takes_slots() and not settings.method.get("slots"):
        settings = settings.with_slots(max(FEWEST_SLOTS, 2 * len({one.class_name for one in samples})))
    registry = SlotRegistry(settings.build_method().num_slots or 1)
    plan = plan_version(samples, SampleSet(), VersionContext(settings, reader, None, registry))
    plan = replace(plan, skipped=len(found.problems))
    preprocess = preprocess_of(
        settings.preprocess.model_dump(), plan.images, size=trained_size(plan.images, settings.fit)
    )
    build = settings.encoder_maker(preprocess)
    _try_once(build, preprocess, settings)
    if settings.buffer.embed:
        plan = _with_pixels(plan, settings, preprocess)
    job = VersionJob(settings, plan, preprocess, None, _seeded(build, settings.seed))
    return train_version(job, out, torch_device, RunControl(on_event, cancel or Cancellation()))


def update(
    model: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    settings: VersionSettings | str | Path | None = None,
    backbone: str | Path | None = None,
    changes: Sequence[str] = (),
    buffer_from: str | Path | None = None,
    check_on: str | Path | None = None,
    max_loss: float | None = None,
    split_folders: bool | None = None,
    skip_unreadable: bool = False,
    device: str = "auto",
    on_event: OnEvent = ignore_event,
    cancel: Cancellation | None = None,
) -> dict[str, Any]:
    """Train the version after ``model``, compatible with it, check the two against each other, and write it to ``out``.

    model: folder of the model in use; it is only read.
    data: the new images or vectors, as for ``start``. New classes take new slots; known classes may have new images.
    out: folder of the new model. If it holds part of the same training, that training is resumed.
    settings: method, network and training, or a recipe. Default: those that ``model`` was trained with. Unless settings
        or ``changes`` say how many epochs, there are fewer if all would take more steps than ``model`` was trained for,
        or more than half of them if ``model`` is a first version of the default network. This does not hold for vectors
        and for a network that is replaced.
    backbone: name of the network, a file of its weights, or the folder of another model. Another than the model's own
        replaces it; ``hf:`` and ``timm:`` start from their trained weights. The name of the model's own network allows
        Holdfast to import it if it is the user's code.
    changes: changes to the settings, such as "train.epochs=10".
    buffer_from: data to draw a new replay buffer from, if the model has none or its files are lost.
    check_on: data to check the new model on; nothing is held out of ``data`` then.
    max_loss: the loss that the check accepts, as a fraction of 1; 0.01, one point, by default.
    split_folders, skip_unreadable: as for ``start``; they hold for ``buffer_from`` and ``check_on`` too.
    device: "cpu", "cuda", "cuda:N" or "auto" (a GPU if there is one).
    on_event: called with progress events (``holdfast.train.events``).
    cancel: stops the training between two steps.

    Returns the model's ``info``, with the verdict under ``evidence``; ``out`` also has check.json and check.html.

    >>> import numpy as np
    >>> from holdfast import start, update
    >>> rng = np.random.default_rng(0)
    >>> for name, classes in (("spring", range(3)), ("summer", range(3, 6))):
    ...     labels = np.repeat(classes, 20)
    ...     np.savez(f"{name}.npz", features=np.eye(8)[labels] + 0.1 * rng.standard_normal((60, 8)), labels=labels)
    >>> _ = start("spring.npz", "models/1", device="cpu")
    >>> info = update("models/1", "summer.npz", "models/2", device="cpu")
    >>> info["task"], info["evidence"][0]["which"]
    (2, 'known classes')
    """
    model, data, out = Path(model), Path(data), Path(out)
    limit_steps = settings is None and "epochs" not in with_overrides({}, changes).get("train", {})
    accepted_loss(max_loss)
    if out.resolve() == model.resolve():
        raise HoldfastError(f"{out}: --out must not be the model itself, which is still in use")
    refuse_other_folder(out)
    backbone = None if backbone is None else str(backbone)
    parent, settings, replace_with = next_settings(model, settings, backbone=backbone, changes=changes)
    torch_device = resolve_device(device)
    reader = settings.training_reader(parent.preprocess)
    parent = _without_lost_files(parent, reader, on_event)
    registry, replacement = _slots_and_replacement(parent, settings, replace_with)
    replaced = replace_with is not None
    context = VersionContext(settings, reader, parent, registry, replaced=replaced)
    sources = [Path(one) for one in (data, buffer_from, check_on) if one is not None]
    found = find_samples(reader, sources, SourceOptions(split_folders, skip_unreadable), out, on_event)
    samples = found[0].samples
    buffer = parent.buffer or SampleSet()
    if buffer_from is not None:
        buffer = draw_buffer(found[1].samples, context)
    _warn(nested_classes(samples, found[0].top), on_event)
    _warn(single_sample_classes(samples, parent.classes), on_event)
    _warn(equal_looking_classes(samples, parent.classes), on_event)
    _warn(in_several_classes(reader, samples, (*buffer.samples, *parent.held_out.samples)), on_event)
    if check_on is None:
        plan = plan_version(samples, buffer, context)
    else:
        without = {"share": 0.0, "per_class": settings.held_out.per_class}
        plan = plan_version(samples, buffer, replace(context, settings=settings.changed(held_out=without)))
        plan = replace(plan, checked=_without_trained(found[-1].samples, plan.trained, reader.noun, on_event))
    plan = replace(plan, skipped=sum(len(one.problems) for one in found))
    if limit_steps and not replaced:
        settings = _with_steps(settings, parent, plan, on_event)
    preprocess, build = parent.preprocess, _network(parent, settings, replacement, replace_with)
    _try_once(build, preprocess, settings)
    if not len(buffer) and parent.classes:
        text = (
            f"{parent.folder} has no buffer, so only the new {reader.noun}s are trained on; --buffer-from FOLDER "
            "(buffer_from in Python) draws one"
        )
        on_event(RunWarning(text))
    if settings.buffer.embed or (parent.buffer is not None and parent.buffer.embedded is not None):
        plan = _with_pixels(plan, settings, preprocess)
    job = VersionJob(
        settings,
        plan,
        preprocess,
        parent,
        _seeded(build, settings.seed),
        replace_with=_recorded_replacement(replacement, replace_with),
        new_buffer=buffer_from is not None,
        max_loss=max_loss,
    )
    return train_version(job, out, torch_device, RunControl(on_event, cancel or Cancellation()))


def _tell(text: str | None, on_event: OnEvent) -> None:
    if text is not None:
        on_event(Note(text))


def _with_steps(settings: VersionSettings, parent: Parent, plan: Plan, on_event: OnEvent) -> VersionSettings:
    """``settings`` with fewer epochs if all of them would take too many steps, but not fewer than 15."""
    steps = trained_steps(parent.folder)
    if steps is None:
        return settings
    network = (describe_model(parent.folder)["backbone"] or {}).get("name")
    first = parent.number == 1 and network == DEFAULT_NETWORK
    share, words = (FIRST_UPDATE, "about half as many steps as") if first else (1, "about as many steps as")
    fit = settings.fit
    per_epoch = steps_per_epoch(len(plan.task.new_indices), len(plan.task.buffer_indices), fit.batch_size)
    wanted = math.ceil(share * steps / per_epoch)
    epochs = min(fit.epochs, max(FEWEST_EPOCHS, wanted))
    if epochs < fit.epochs:
        why = f"{words} the model before was trained" if wanted >= epochs else "the fewest that are used by default"
        text = f"{counted(epochs, 'epoch')} instead of {fit.epochs}: {why}"
        on_event(Note(f"{text}; --set train.epochs=N sets another number"))
    return settings.with_epochs(epochs)


def _recorded_replacement(replacement: Encoder | None, replace_with: str | None) -> str | dict[str, str] | None:
    if replacement is not None:
        return replacement.info["origin"]
    return None if replace_with is None else named_backbone(replace_with).name


def _warn(text: str | None, on_event: OnEvent) -> None:
    if text is not None:
        on_event(RunWarning(text))


def _without_trained(samples: Sequence[SampleRef], trained: np.ndarray, noun: str, on_event: OnEvent) -> SampleSet:
    """The samples of ``check_on``, each content once, without those that a version is trained on (``short_hashes``)."""
    different = distinct(samples)
    left = tuple(one for one, known in zip(different, known_mask(different, trained), strict=True) if not known)
    if len(left) < len(different):
        dropped, images = len(different) - len(left), counted(len(different), noun)
        on_event(RunWarning(f"{dropped} of {images} to check on {are(dropped)} trained on; left out"))
    return SampleSet(left)


def _without_lost_files(parent: Parent, reader: Reader, on_event: OnEvent) -> Parent:
    """``parent`` without the held-out samples that are gone or changed: the check then has fewer queries."""
    left = parent.held_out.unchanged(reader)
    lost = len(parent.held_out) - len(left)
    if lost:
        images = counted(len(parent.held_out), f"held-out {reader.noun}")
        on_event(RunWarning(f"{lost} of {images} of earlier versions {are(lost)} gone or changed; left out"))
    return replace(parent, held_out=left)


def _try_once(build: Callable[[], Encoder], preprocess: Input, settings: VersionSettings) -> None:
    with GENERATOR_LOCK:
        try_encoder(build(), preprocess, settings.build_method(), settings.fit)


def _seeded(build: Callable[[], Encoder], seed: int) -> Callable[[], Encoder]:
    def seeded() -> Encoder:
        with GENERATOR_LOCK:
            torch.manual_seed(derived_seed(seed, 0, "encoder"))
            return build()

    return seeded


def _network(
    parent: Parent, settings: VersionSettings, replacement: Encoder | None, replace_with: str | None
) -> Callable[[], Encoder]:
    """Builds the network that training starts with, with the parent's preprocessing and the settings' freezing."""
    if replace_with is not None and replacement is None:
        return settings.encoder_maker(parent.preprocess)

    def build() -> Encoder:
        encoder = Encoder.from_pretrained(parent.folder if replace_with is None else Path(replace_with)).float()
        encoder.preprocess = parent.preprocess
        if replacement is not None:
            encoder.info["origin"] = replacement.info["origin"]
        freeze = (settings.backbone or {}).get("freeze")
        if freeze is not None:
            encoder.freeze(freeze)
        return encoder

    return build


def _slots_and_replacement(
    parent: Parent, settings: VersionSettings, replace_with: str | None
) -> tuple[SlotRegistry, Encoder | None]:
    """The slots assigned before the new classes come, and the replacing model, if it is one; their slots must agree."""
    if settings.takes_slots():
        registry = read_slots(parent.encoder, parent.folder)
    else:
        registry = SlotRegistry(max(1, len(parent.classes)), {name: i for i, name in enumerate(parent.classes)})
    if replace_with is None or not is_model(replace_with):
        return registry, None
    folder = Path(replace_with)
    replacement = Encoder.from_pretrained(folder)
    weights = describe_model(folder)["weights_sha256"]
    replacement.info["origin"] = {"model": folder.resolve().name, "weights_sha256": weights}
    if settings.takes_slots():
        try:
            registry = registry.merge(read_slots(replacement, folder))
        except HoldfastError as error:
            raise HoldfastError(f"--backbone {replace_with}: {error}") from error
    return registry, replacement


def _with_pixels(plan: Plan, settings: VersionSettings, preprocess: Input) -> Plan:
    """``plan`` with the pixels of the samples that are saved, so that their files are not needed any more."""
    buffer = plan.buffer.with_pixels(np.ascontiguousarray(plan.images.images[plan.next_rows]))
    held_out = plan.held_out
    if held_out.embedded is None:
        held_out = held_out.with_pixels(held_out.pixels(settings.check_reader(preprocess), "held-out"))
    return replace(plan, buffer=buffer, held_out=held_out)

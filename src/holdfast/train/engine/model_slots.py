"""The slots saved with a model: written after training, read, and grown to a larger simplex."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from holdfast.core.checksums import CHECKSUM_FILE, verify_checksums, write_checksums
from holdfast.core.errors import HoldfastError
from holdfast.core.storage import replacing_folder
from holdfast.train.encoders import Encoder
from holdfast.train.encoders.identity_layer import IdentityLayer
from holdfast.train.geometry import cosine_matrix, embed_in_larger_simplex
from holdfast.train.geometry.sphere import unit
from holdfast.train.methods import Method
from holdfast.train.scenarios import SimplexTurn, SlotRegistry, Task
from holdfast.train.scenarios.slots_of_runs import registry_from_info
from holdfast.train.tensor_files import read_torch, write_torch


def record_slots(encoder: Encoder, registry: SlotRegistry, method: Method) -> None:
    """Write the slot of each class and the turns of the simplex into ``encoder.info``, which is saved with the model.

    registry: the slots of the task.
    method: its simplex may be larger than the registry. If it has none, the record of an earlier training is removed.
    """
    info = {key: value for key, value in encoder.info.items() if key != "slots"}
    if method.num_slots is not None:
        info["slots"] = _registry_of(method, registry, method.num_slots).to_json()
    encoder.info = info


def _registry_of(method: Method, registry: SlotRegistry, num_slots: int) -> SlotRegistry:
    return replace(registry, num_slots=num_slots, turns=tuple(SimplexTurn(*turn) for turn in method.turns))


def refuse_other_turns(task: Task, method: Method, models: Mapping[str, nn.Module | None]) -> None:
    """Refuse a model with classes at other places than the method's simplex has them.

    task: the task to train; the method has not turned its simplex for it yet.
    models: the network to train and the old model, by what they are called in the message.
    """
    if method.num_slots is None:
        return
    own = _registry_of(method, task.registry, method.num_slots)
    if task.registry.turns not in ((), own.turns):  # plans of several tasks have no turns yet
        raise HoldfastError(
            f"task {task.number}: its classes have their slots from a model with a turned simplex; train from that "
            "model, with the state of its method"
        )
    for what, model in models.items():
        record = model.info.get("slots") if isinstance(model, Encoder) else None
        if not isinstance(record, Mapping) or record.get("num_slots") != method.num_slots:
            continue  # sizes are compared elsewhere
        registry = SlotRegistry.from_json(record)
        try:
            own.shared_turns(registry)
        except HoldfastError as error:
            raise HoldfastError(f"task {task.number}, {what}: {error}") from error


def read_slots(encoder: Encoder, folder: Path) -> SlotRegistry:
    """The slots saved with a model; an error if there are none or they do not fit its features."""
    if "slots" not in encoder.info:
        raise HoldfastError(f"{folder}: has no slot record; it was not trained into a simplex")
    registry = registry_from_info(encoder.info["slots"], folder)
    if encoder.dim != registry.num_slots - 1:
        raise HoldfastError(
            f"{folder}: its features have size {encoder.dim}, not that of a simplex of {registry.num_slots} slots; "
            "it was trained with a classifier of its own"
        )
    return registry


TOLERANCE = 1e-5
"""Largest change of a cosine between two old features: float32 rounding of the weights."""


@dataclass(frozen=True)
class Grown:
    """A model that was written with ``after`` slots; equal to ``before`` if it was only copied."""

    model: Path
    written: Path
    before: int
    after: int


def in_a_run(folder: Path) -> bool:
    """Whether a model belongs to a run, whose stored features have its size."""
    return not (folder / CHECKSUM_FILE).exists() and (folder.resolve().parent.parent / "recipe.toml").exists()


def grow_models(folders: Sequence[Path], num_slots: int, out: Path | None = None) -> list[Grown]:
    """Grow every model to ``num_slots``; returns the models that were written.

    folders: the models.
    num_slots: the new number of slots. In place, models that already have it are not changed.
    out: folder for copies; default: in place.

    All models are grown and checked before the first is written, and each folder is replaced as a whole. After a kill
    every model is complete, grown or not, and the same call finishes the work.
    """
    planned: list[tuple[Grown, Encoder]] = []
    for folder in folders:
        target = folder if out is None else out / folder.resolve().name
        if out is None and in_a_run(folder):
            raise HoldfastError(f"{folder}: belongs to a run whose features have its size; write copies with --out")
        if target in [other.written for other, _ in planned]:
            raise HoldfastError(f"two models would be written to {target}; grow them one by one")
        verify_checksums(folder)  # a new seal must not cover files changed under the old one
        encoder = Encoder.from_pretrained(folder)
        before = read_slots(encoder, folder).num_slots
        if before != num_slots or out is not None:
            planned.append((Grown(folder, target, before, num_slots), grown_encoder(encoder, folder, num_slots)))
    for change, encoder in planned:
        with replacing_folder(change.written) as temporary:
            shutil.copytree(change.model, temporary, dirs_exist_ok=True)
            encoder.write_into(temporary)
            if encoder.info["slots"].get("turns"):
                _grow_turn(temporary / METHOD_FILE, change.before, change.after)
            if (temporary / CHECKSUM_FILE).exists():
                write_checksums(temporary)
    return [change for change, _ in planned]


def grown_encoder(encoder: Encoder, folder: Path, num_slots: int) -> Encoder:
    """The same network with a larger projection; checks that cosines between its features stay the same."""
    registry = read_slots(encoder, folder)
    if registry.num_slots == num_slots:
        return encoder
    try:
        larger = registry.grow(num_slots)
    except HoldfastError as error:
        raise HoldfastError(f"{folder}: {error}") from error
    if num_slots - 1 == encoder.feature_dim:
        raise HoldfastError(
            f"{folder}: {num_slots} slots would need features of the backbone's own size, for which an encoder has no "
            f"projection; grow to {num_slots + 1}"
        )
    before = torch.eye(encoder.dim) if encoder.projection is None else encoder.projection.weight.detach()
    after = embed_in_larger_simplex(before.T, registry.num_slots, num_slots).T.contiguous()
    _check_cosines(before, after, folder)
    info = {**encoder.info, "slots": larger.to_json()}
    new = Encoder(encoder.backbone, num_slots - 1, preprocess=encoder.preprocess, feature_dim=encoder.feature_dim,
                  info=info, readout=encoder.readout, layer=encoder.layer)  # fmt: skip
    assert new.projection is not None
    if isinstance(encoder.projection, IdentityLayer) and isinstance(new.projection, IdentityLayer):
        new.projection.begin(encoder.projection.centre)
    with torch.no_grad():
        new.projection.weight = torch.nn.Parameter(after)
    if encoder.frozen:
        new.freeze(encoder.frozen)
    return new.eval()


METHOD_FILE, BASIS = "method.safetensors", "turned.basis"


def _grow_turn(file: Path, before: int, after: int) -> None:
    """Take the turn of a simplex, which is saved with a method's state, to the larger simplex.

    Growing is an isometry of the space into a larger one, so the same map acts inside the image of its basis.
    """
    if before == after or not file.exists():
        return
    state, metadata = read_torch(file)
    state[BASIS] = unit(embed_in_larger_simplex(state[BASIS], before, after))
    write_torch(file, state, metadata)


def _check_cosines(before: Tensor, after: Tensor, folder: Path) -> None:
    h = torch.randn(256, before.shape[1], generator=torch.Generator().manual_seed(0)).to(before)
    change = (cosine_matrix(h @ before.T, h @ before.T) - cosine_matrix(h @ after.T, h @ after.T)).abs().max()
    if not change <= TOLERANCE:
        raise HoldfastError(f"{folder}: growing changed a cosine by {change:.1e}; nothing was written")

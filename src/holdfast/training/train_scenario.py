"""Walk a scenario: one model after another, each from disk to disk, so that a kill costs one task at most."""

from collections.abc import Callable

import torch
from torch import nn

from holdfast.data.device_images import DeviceImages, StreamedImages
from holdfast.encoders import Encoder
from holdfast.errors import HoldfastError
from holdfast.methods import Method
from holdfast.randomness import GLOBAL_GENERATOR, derived_seed
from holdfast.run_folder import RunFolder
from holdfast.scenarios import Scenario, Task
from holdfast.storage import read_tensors, replacing_folder, write_tensors
from holdfast.training.checkpoint import CheckpointFile, restore_method
from holdfast.training.fit import Log, fit
from holdfast.training.kept_features import KeptFeatures, Remembered, remember
from holdfast.training.options import FitOptions
from holdfast.training.ranks import ALONE, Ranks, share_of


def walk(
    scenario: Scenario,
    images: DeviceImages | StreamedImages,
    folder: RunFolder,
    *,
    make_encoder: Callable[[], Encoder],
    make_method: Callable[[], Method],
    options: FitOptions,
    load_model: Callable[[str], Encoder] = Encoder.from_pretrained,
    load_reference: Callable[[str], nn.Module] | None = None,
    log: Log = lambda event: None,
    after_task: Callable[[Task, Encoder], None] = lambda task, encoder: None,
    ranks: Ranks = ALONE,
) -> None:
    """Train every task of ``scenario`` that ``folder`` does not have yet; what it has is left untouched.

    Each task reads the previous model and the method's state from the folder even when they are still in memory: an
    uninterrupted run and a resumed one then take the same path. ``load_model`` gives the models that tasks bring in, by
    name; ``load_reference`` those they are only held to, where these are read otherwise.
    ``after_task`` is called for every task in order, also for those found finished. Of several ranks the first
    alone writes and calls it, while the others wait.
    """
    for task in scenario.tasks:
        share_of(task, options, ranks, images.device)  # what cannot be shared is refused now, not at the fifth task
    if ranks.first:
        folder.models.mkdir(parents=True, exist_ok=True)
        folder.sweep()
    ranks.wait()
    checkpoint = CheckpointFile(folder.checkpoint)
    for task in scenario.tasks:
        if not folder.model(task.number).is_dir():
            encoder = _starting_encoder(task, folder, make_encoder, load_model, options.seed)
            method = make_method()
            if task.number > 1:
                previous = scenario.tasks[task.number - 2]
                restore_method(method, previous, encoder.dim, folder.method(previous.number))
            old = _reference(task, folder, load_reference or load_model)
            kept = _kept(task, images, folder, encoder.dim) if method.reads_kept else None
            fit(
                encoder,
                method,
                task,
                images,
                old=old,
                kept=kept,
                options=options,
                log=log,
                checkpoint=checkpoint,
                ranks=ranks,
            )
            if ranks.first:
                remembered = _remembered(scenario, task, images, encoder) if method.reads_kept else None
                _save(folder, task, encoder, method, remembered)
                checkpoint.clear()
                log({"event": "task", "task": task.number, "classes": task.num_seen})
        if ranks.first:
            after_task(task, _load(folder, task.number))
        ranks.wait()
        if not folder.model(task.number).is_dir():
            raise HoldfastError(
                f"{folder.model(task.number)}: not seen from here; ranks on several machines need one folder they share"
            )
    if ranks.first:
        checkpoint.clear()  # a kill between saving the last model and clearing leaves one behind


def _starting_encoder(
    task: Task,
    folder: RunFolder,
    make_encoder: Callable[[], Encoder],
    load_model: Callable[[str], Encoder],
    seed: int,
) -> Encoder:
    if task.start == "previous":
        return _load(folder, task.number - 1)
    if task.start == "loaded":
        assert task.model is not None
        return load_model(task.model)
    with GLOBAL_GENERATOR:
        torch.manual_seed(derived_seed(seed, 0, "encoder"))
        return make_encoder()


def _reference(task: Task, folder: RunFolder, load_model: Callable[[str], nn.Module]) -> nn.Module | None:
    if task.reference == "loaded":
        assert task.model is not None
        return load_model(task.model)
    return _load(folder, task.number - 1) if task.reference == "previous" else None


def _load(folder: RunFolder, number: int) -> Encoder:
    return Encoder.from_pretrained(folder.model(number))


def _kept(task: Task, images: DeviceImages | StreamedImages, folder: RunFolder, dim: int) -> KeptFeatures | None:
    """What the models before ``task`` gave its buffer, from their folders; None where there is nothing of it.

    Past models whose features have another size than ``dim`` are left out: a model brought in cannot be compared with
    them. On a simplex all sizes are equal, and what was kept holds across a replacement.
    """
    if task.number == 1 or not len(task.buffer_indices):
        return None
    past = [Remembered(**read_tensors(folder.kept(number))[0]) for number in range(1, task.number)]
    fitting = [one for one in past if one.features.shape[1] == dim]
    return KeptFeatures(task, images, fitting) if fitting else None


def _remembered(
    scenario: Scenario, task: Task, images: DeviceImages | StreamedImages, encoder: Encoder
) -> Remembered | None:
    """What the model just trained gives the next task's buffer, where there is one."""
    following = scenario.tasks[task.number :]
    if not following or not len(following[0].buffer_indices):
        return None
    return remember(encoder, images, following[0].buffer_indices)


def _save(folder: RunFolder, task: Task, encoder: Encoder, method: Method, remembered: Remembered | None) -> None:
    encoder.info = {**encoder.info, "task": task.number}
    if method.num_slots is None:  # ``fit`` recorded none; ``update`` reads from the record which classes are known
        encoder.info["slots"] = task.registry.to_json()
    with replacing_folder(folder.model(task.number)) as temporary:
        encoder.write_into(temporary)
        write_tensors(temporary / folder.method(task.number).name, method.state_dict())
        if remembered is not None:
            write_tensors(temporary / folder.kept(task.number).name, remembered._asdict())
        space_map = method.space_map()
        if space_map is not None:
            space_map.save(temporary / folder.space_map(task.number).name)

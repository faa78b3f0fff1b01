"""Compare the versions of one model, made by ``start`` and ``update``: each one's queries on each one's gallery."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.checks.history import check_history
from holdfast.core.errors import HoldfastError
from holdfast.core.wording import are, counted
from holdfast.train.data import ImageSet
from holdfast.train.data.openset import half_of_each_class
from holdfast.train.devices import resolve_device
from holdfast.train.encoders import extract
from holdfast.train.versions.parent import Parent, SampleSet, describe_model, is_adopted, read_parent, recorded_recipe
from holdfast.train.versions.samples import Reader
from holdfast.train.versions.settings import VersionSettings, recorded_tables
from holdfast.vectors import FeatureSet, feature_set
from holdfast.vectors.search import Progress

FEWEST_QUERIES = 2


def report_versions(
    folders: Sequence[str | Path],
    *,
    device: str = "auto",
    progress: Progress = lambda stage, done, total: None,
) -> dict[str, Any]:
    """The versions in ``folders``, and the score of each one's queries on the gallery of each earlier one, as JSON.

    folders: folders of ``start`` and ``update``. A single one stands for itself and all versions before it that are in
        folders beside it. Several may have any order.
    device: "cpu", "cuda", "cuda:N" or "auto" (a GPU if there is one).
    progress: called with what is being done, the amount done and the total.

    Images are those that the newest version's folder lists as held out: no version was trained on them. A seeded half
    of each class are queries; the other half is the gallery. The record has ``versions``, oldest first, with what each
    folder says (classes, accuracy, ``evidence`` of its check, ``old_items``), ``history`` (``check_history``) and
    ``notes``. Refused: fewer than two versions, two versions of the same number, no held-out image that can be read.

    >>> import numpy as np
    >>> from holdfast import start, update
    >>> from holdfast.train.versions import report_versions
    >>> rng = np.random.default_rng(0)
    >>> for name, classes in (("spring", range(3)), ("summer", range(3, 6))):
    ...     labels = np.repeat(classes, 20)
    ...     np.savez(f"{name}.npz", features=np.eye(8)[labels] + 0.1 * rng.standard_normal((60, 8)), labels=labels)
    >>> _ = start("spring.npz", "models/1", device="cpu")
    >>> _ = update("models/1", "summer.npz", "models/2", device="cpu")
    >>> record = report_versions(["models/2"], device="cpu")
    >>> len(record["versions"]), record["history"]["verdict"] in ("better", "not shown")
    (2, True)
    """
    torch_device = resolve_device(device)
    versions, notes = _versions([Path(folder) for folder in folders])
    newest = versions[-1]
    settings = VersionSettings.from_tables(recorded_tables(newest.folder))
    reader = replace(settings, vectors=newest.preprocess.takes_vectors).check_reader(newest.preprocess)
    held_out, lost = _held_out(newest, reader)
    notes += lost
    names = np.array([one.class_name for one in held_out.samples])
    classes, codes = np.unique(names, return_inverse=True)
    queries = half_of_each_class(codes, "query", 0)
    if int(queries.sum()) < FEWEST_QUERIES:
        raise HoldfastError(
            f"{newest.folder}: no class has two held-out {reader.noun}s, so there is nothing to search; hold more out "
            "(held_out.share) in the next update"
        )
    images = ImageSet(held_out.pixels(reader, "held-out"), codes.astype(np.int64), tuple(classes.tolist()), "")
    searches = []
    for done, version in enumerate(versions):
        progress(f"embedding with version {version.number}", done, len(versions))
        searches.append(_queries_and_gallery(version, images, names, queries, torch_device))
    names_shown = [str(version.number) for version in versions]
    history = check_history(searches, names=names_shown, device=torch_device, progress=progress)
    return {
        "kind": "versions",
        "versions": [_described(version) for version in versions],
        "history": history.as_json(),
        "held_out": len(held_out),
        "notes": notes,
    }


def _versions(folders: Sequence[Path]) -> tuple[list[Parent], list[str]]:
    """The versions, oldest first, and what is missing."""
    if not folders:
        raise HoldfastError("a report needs at least one folder of holdfast start or update")
    found = [_read(folder) for folder in folders]
    notes: list[str] = []
    if len(found) == 1:
        found, notes = _with_older(found[0])
    found.sort(key=lambda one: one.number)
    for earlier, later in pairwise(found):
        if earlier.number == later.number:
            raise HoldfastError(
                f"{later.folder}: is version {later.number}, as is {earlier.folder}; name one folder for each version"
            )
        parent = later.info.get("parent")
        follows = later.number == earlier.number + 1
        if follows and isinstance(parent, Mapping) and parent.get("weights_sha256") != earlier.weights_sha256:
            raise HoldfastError(
                f"{later.folder}: was made from another model than {earlier.folder}; name the versions of one model"
            )
    missing = sorted(set(range(found[0].number, found[-1].number)) - {one.number for one in found})
    notes += [f"version {number} is not shown: its folder was not named" for number in missing]
    if len(found) < 2:
        raise HoldfastError(
            f"{found[0].folder}: one version only{'; ' + notes[0] if notes else ''}. A report compares at least two: "
            "holdfast update makes the next one"
        )
    return found, notes


def _read(folder: Path) -> Parent:
    description = describe_model(folder)
    info = description.get("info")
    if not isinstance(info, Mapping) or "task" not in info or recorded_recipe(folder) is None:
        raise HoldfastError(f"{folder}: was not made by holdfast start or update; compare models by holdfast check")
    return read_parent(folder)


def _with_older(newest: Parent) -> tuple[list[Parent], list[str]]:
    """The version and all before it that are found in folders beside it."""
    found = [newest]
    while isinstance(found[-1].info.get("parent"), Mapping):
        wanted, beside = found[-1].info["parent"], found[-1].folder.resolve().parent
        name = str(wanted.get("name"))
        folder = beside / name
        number = found[-1].number - 1
        missing = f"version {number} and those before it are not shown: {folder}"
        if Path(name).name != name or not (folder / "config.json").is_file():
            return found, [f"{missing} does not exist"]
        if describe_model(folder)["weights_sha256"] != wanted.get("weights_sha256"):
            return found, [f"{missing} has other weights than the model that version {number + 1} was made from"]
        if is_adopted(folder):
            return found, [f"version {number} is not shown: {folder} is an adopted model, without a network"]
        found.append(_read(folder))
    return found, []


def _held_out(newest: Parent, reader: Reader) -> tuple[SampleSet, list[str]]:
    """The held-out samples that can be read, and a note on the others."""
    every = newest.held_out
    if not len(every):
        raise HoldfastError(f"{newest.folder}: has no held-out {reader.noun}s, so its versions cannot be compared here")
    left = every.unchanged(reader)
    lost = len(every) - len(left)
    if not len(left):
        raise HoldfastError(
            f"{newest.folder}: all {len(every)} held-out {reader.noun}s are gone or changed, the first is "
            f"{every.samples[0].path}; put them back"
        )
    note = f"{lost} of {counted(len(every), f'held-out {reader.noun}')} {are(lost)} gone or changed and left out"
    return left, [note] if lost else []


def _queries_and_gallery(
    version: Parent, images: ImageSet, names: np.ndarray, queries: np.ndarray, device: torch.device
) -> tuple[FeatureSet, FeatureSet]:
    features = extract(version.encoder, images, device=device)
    ids = np.arange(len(names))
    return tuple(  # type: ignore[return-value]
        feature_set(f"{what} of version {version.number}", features[rows], names[rows], ids[rows])
        for what, rows in (("queries", queries), ("gallery", ~queries))
    )


def _described(version: Parent) -> dict[str, Any]:
    info = version.info
    kept = ("method", "data", "accuracy", "parent", "evidence", "old_items")
    return {
        "number": version.number,
        "name": version.folder.resolve().name,
        "weights_sha256": version.weights_sha256,
        "dim": version.encoder.dim,
        "classes": len(version.classes),
        **{key: info[key] for key in kept if key in info},
    }

"""Whether a model may join: new queries on what each older version stored, judged by ``holdfast.check``."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.encoders.compact import compacted
from holdfast.errors import HoldfastError
from holdfast.evaluation import check
from holdfast.evaluation.result import FEWEST_UNITS, INCOMPATIBLE, NOT_JUDGED
from holdfast.gallery.forward_pass import full_features
from holdfast.gallery.items import Stored
from holdfast.gallery.models import Carriage, ready
from holdfast.gallery.state import GalleryState
from holdfast.gallery.versions import Candidate, Version, keep_model, read_candidate, registry_of, slots_together
from holdfast.scenarios import SlotRegistry
from holdfast.wording import counted

MOST_QUERIES = 300
MOST_GALLERY = 5000


def register(parts: GalleryState, model: Path, *, force: bool) -> Version:
    """Take a model in as the newest version; see ``Gallery.register``.

    The caller holds ``parts.registering``, so that no other model joins meanwhile, but not ``parts.writing``: others
    add, delete and search while the new model embeds. What they may have changed is looked at again before the commit.
    """
    candidate, models = read_candidate(model), parts.models
    _slots_with(parts, candidate)  # refuses what cannot join, before anything is embedded
    # The number stays free: of what may happen meanwhile only a rollback changes versions, and it keeps numbers used.
    last = max(one.number for one in models.versions())
    version = candidate.version(max(last, parts.catalogue.setting("last_version", 0)) + 1, [])
    with _forgotten_on_error(parts, version):
        # First of all: the folder it comes from may change while the model embeds.
        keep_model(candidate, parts.folder.version(version.number))
        checks = _still_known(parts, _judge_all(parts, version, candidate))
        refused = [check for check in checks if check["verdict"] == INCOMPATIBLE]
        if refused and not force:
            where = f"on version {refused[0]['version']}: {refused[0]['reason']}"
            how = "--force registers it all the same (in Python: force=True)"
            raise HoldfastError(f"{model}: incompatible {where}; {how}")
    with parts.writing:
        with _forgotten_on_error(parts, version):
            slots = _slots_with(parts, candidate)
            version = replace(version, checks=_still_known(parts, checks))
            parts.engine.create(version.collection, version.stored_dim)
        record = None if slots is None else slots.to_json()
        parts.catalogue.put_version(version.number, version.as_json(), {"slots": record})
        models.welcome(version, candidate.encoder)
    return version


@contextlib.contextmanager
def _forgotten_on_error(parts: GalleryState, version: Version) -> Iterator[None]:
    """Remove the copy of the model where the block raises."""
    try:
        yield
    except BaseException:
        parts.models.forget(version.number)
        raise


def _slots_with(parts: GalleryState, candidate: Candidate) -> SlotRegistry | None:
    """Everybody's slots once the model has joined; refused where it cannot join the versions there are now."""
    models = parts.models
    if models.leaving is not None:
        raise HoldfastError(f"version {models.leaving} is being rolled back; finish or cancel that first")
    for known in models.versions():
        if known.weights_sha256 == candidate.weights_sha256:
            raise HoldfastError(f"{candidate.folder}: these weights are version {known.number} already")
    return slots_together(registry_of(parts.catalogue.setting("slots")), candidate, models.newest().dim)


def _still_known(parts: GalleryState, checks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the verdicts on versions that a rollback has taken out since."""
    known = {one.number for one in parts.models.versions()}
    return [check for check in checks if check["version"] in known]


def _judge_all(parts: GalleryState, new: Version, candidate: Candidate) -> list[dict[str, Any]]:
    """The new model's queries on what each older version holds: one verdict each, none without labels and images."""
    encoder, verdicts = candidate.encoder, []
    for old in parts.models.versions():
        with parts.searches.one():  # until this is left, a rollback keeps the vectors and the basis of ``old``
            if old not in parts.models.versions():
                continue
            bases = {new.number: candidate.basis, old.number: parts.models.basis_of(old.number)}
            sample = _sample(parts, old)
        if sample is None:
            continue
        carriage = Carriage(bases.__getitem__)

        def embed(images: Tensor, old: Version = old, carriage: Carriage = carriage) -> np.ndarray:
            # Without the lock of other forward passes: nobody else uses this encoder yet, and searches must not wait.
            full = full_features(encoder, images, parts.models.device)
            rows = full if candidate.basis is None else compacted(full, candidate.basis)
            return carriage.carry(rows.numpy(), new, old)

        verdicts.append(judge(old.number, sample, lambda item: ready(encoder, str(item.path)), embed))
    return verdicts


@dataclass(frozen=True)
class CheckSample:
    """Labelled items of one version: candidates for queries, the gallery they are put to, stored vectors by key."""

    queries: list[Stored]
    gallery: list[Stored]
    vectors: dict[int, np.ndarray]


def _sample(parts: GalleryState, version: Version) -> CheckSample | None:
    """None where the version holds no items with labels and images."""
    items = parts.catalogue.labelled_images(version.number)
    if not items:
        return None
    queries, gallery = _split(items)
    vectors = parts.engine.fetch(version.collection, [item.key for item in (*queries, *gallery)])
    # Items that were deleted or moved since they were listed have no vector any more.
    gallery = [item for item in gallery if item.key in vectors]
    classes = {item.label for item in gallery}
    return CheckSample([item for item in queries if item.key in vectors and item.label in classes], gallery, vectors)


def judge(
    version: int, sample: CheckSample, read: Callable[[Stored], Tensor], embed: Callable[[Tensor], np.ndarray]
) -> dict[str, Any]:
    """The verdict on a new model's queries among items of an older version.

    The old model's features are the stored vectors. The new one's are made from the images: ``read`` opens one, and
    ``embed`` gives the features of many, carried to where the stored vectors lie. Images that can no longer be read are
    passed over.
    """
    images: list[Tensor] = []
    asked: list[Stored] = []
    for item in sample.queries:
        if len(asked) == MOST_QUERIES:
            break
        with contextlib.suppress(HoldfastError):
            images.append(read(item))
            asked.append(item)
    if len(asked) < FEWEST_UNITS:
        found_items = counted(len(asked), "labelled item")
        reason = f"{found_items} with readable images and others of the same class; {FEWEST_UNITS} are needed"
        return {"version": version, "verdict": NOT_JUDGED, "reason": reason}
    vectors, gallery, labels = sample.vectors, sample.gallery, np.array([item.label for item in asked])
    found = check(
        (np.stack([vectors[item.key] for item in gallery]), np.array([item.label for item in gallery])),
        (np.stack([vectors[item.key] for item in asked]), labels),
        (embed(torch.cat(images)), labels),
    ).as_json()
    kept = ("verdict", "reason", "score", "queries", "gallery", "self_test", "cross_test", "gain")
    return {"version": version, **{name: found[name] for name in kept}}


def _split(items: list[Stored]) -> tuple[list[Stored], list[Stored]]:
    """Candidates for queries and the gallery: apart, every second item at most, no query without its class there."""
    order = np.random.default_rng(0).permutation(len(items))
    left = Counter(item.label for item in items)
    queries: list[Stored] = []
    gallery: list[Stored] = []
    for item in (items[place] for place in order):
        if len(queries) < len(items) // 2 and left[item.label] > 1 and len(queries) < 2 * MOST_QUERIES:
            left[item.label] -= 1
            queries.append(item)
        else:
            gallery.append(item)
    if len(gallery) > MOST_GALLERY:
        # One of every class first: a query whose class was left out would be wrong by our making.
        first = list({item.label: item for item in gallery}.values())
        taken = {item.key for item in first}
        gallery = first + [item for item in gallery if item.key not in taken][: max(0, MOST_GALLERY - len(first))]
    return queries, gallery

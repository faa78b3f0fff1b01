"""Register a model: check its queries on the stored vectors of each older version, then make it the newest version."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.encoders.compact import to_compact
from holdfast.errors import HoldfastError
from holdfast.evaluation import check
from holdfast.evaluation.verdict import FEWEST_UNITS, INCOMPATIBLE, NOT_JUDGED
from holdfast.gallery.items import Stored
from holdfast.gallery.models import BasisConverter, full_features, preprocess_image
from holdfast.gallery.state import GalleryState
from holdfast.gallery.versions import Candidate, Version, copy_model, merged_slots, read_candidate, registry_from_json
from holdfast.scenarios import SlotRegistry
from holdfast.wording import counted

MOST_QUERIES = 300
MOST_GALLERY = 5000


def register(state: GalleryState, model: Path, *, force: bool) -> Version:
    """Make a model the newest version; see ``Gallery.register``.

    The caller holds ``state.registering``, so that no other model is registered meanwhile, but not ``state.writing``:
    others add, delete and search while the new model embeds. What they may have changed is checked again before the
    commit.
    """
    candidate, models = read_candidate(model), state.models
    _slots_with(state, candidate)  # refuses incompatible models before anything is embedded
    # The number stays free: of concurrent operations only a rollback changes versions, and it never frees a number.
    last = max(one.number for one in models.versions())
    version = candidate.version(max(last, state.catalogue.setting("last_version", 0)) + 1, [])
    with _delete_model_on_error(state, version):
        # Copied first, because the source folder may change while the model embeds.
        copy_model(candidate, state.folder.version(version.number))
        checks = _of_current_versions(state, _check_all(state, version, candidate))
        refused = [check for check in checks if check["verdict"] == INCOMPATIBLE]
        if refused and not force:
            where = f"on version {refused[0]['version']}: {refused[0]['reason']}"
            how = "--force registers it all the same (in Python: force=True)"
            raise HoldfastError(f"{model}: incompatible {where}; {how}")
    with state.writing:
        with _delete_model_on_error(state, version):
            slots = _slots_with(state, candidate)
            version = replace(version, checks=_of_current_versions(state, checks))
            state.engine.create(version.collection, version.stored_dim)
        record = None if slots is None else slots.to_json()
        state.catalogue.put_version(version.number, version.as_json(), {"slots": record})
        models.add_version(version, candidate.encoder)
    return version


@contextlib.contextmanager
def _delete_model_on_error(state: GalleryState, version: Version) -> Iterator[None]:
    """Delete the copy of the model if the block raises."""
    try:
        yield
    except BaseException:
        state.models.delete_model(version.number)
        raise


def _slots_with(state: GalleryState, candidate: Candidate) -> SlotRegistry | None:
    """The slots of all models, the candidate's included; refused if it cannot join the current versions."""
    models = state.models
    if models.rollback_version is not None:
        raise HoldfastError(f"version {models.rollback_version} is being rolled back; finish or cancel that first")
    for known in models.versions():
        if known.weights_sha256 == candidate.weights_sha256:
            raise HoldfastError(f"{candidate.folder}: these weights are version {known.number} already")
    return merged_slots(registry_from_json(state.catalogue.setting("slots")), candidate, models.newest().dim)


def _of_current_versions(state: GalleryState, checks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The checks without those on versions that a rollback has removed."""
    known = {one.number for one in state.models.versions()}
    return [check for check in checks if check["version"] in known]


def _check_all(state: GalleryState, new: Version, candidate: Candidate) -> list[dict[str, Any]]:
    """Check the new model's queries on each older version that holds items with labels and images."""
    encoder, checks = candidate.encoder, []
    for old in state.models.versions():
        with state.searches.running():  # a rollback waits for this before it deletes vectors and basis of ``old``
            if old not in state.models.versions():
                continue
            bases = {new.number: candidate.basis, old.number: state.models.basis_of(old.number)}
            sample = _sample(state, old)
        if sample is None:
            continue
        converter = BasisConverter(bases.__getitem__)

        def embed(images: Tensor, old: Version = old, converter: BasisConverter = converter) -> np.ndarray:
            # Without the lock of other forward passes: only this call uses the encoder, and searches must not wait.
            full = full_features(encoder, images, state.models.device)
            rows = full if candidate.basis is None else to_compact(full, candidate.basis)
            return converter.convert(rows.numpy(), new, old)

        checks.append(
            check_on_sample(old.number, sample, lambda item: preprocess_image(encoder, str(item.path)), embed)
        )
    return checks


@dataclass(frozen=True)
class CheckSample:
    """Labelled items of one version.

    queries: candidates for queries.
    gallery: the items that are searched.
    vectors: the stored vectors of both, by key.
    """

    queries: list[Stored]
    gallery: list[Stored]
    vectors: dict[int, np.ndarray]


def _sample(state: GalleryState, version: Version) -> CheckSample | None:
    """None if the version holds no items with labels and images."""
    items = state.catalogue.labelled_images(version.number)
    if not items:
        return None
    queries, gallery = _split(items)
    vectors = state.engine.fetch(version.collection, [item.key for item in (*queries, *gallery)])
    # Items that were deleted or re-embedded since they were listed have no vector here any more.
    gallery = [item for item in gallery if item.key in vectors]
    classes = {item.label for item in gallery}
    return CheckSample([item for item in queries if item.key in vectors and item.label in classes], gallery, vectors)


def check_on_sample(
    version: int, sample: CheckSample, read: Callable[[Stored], Tensor], embed: Callable[[Tensor], np.ndarray]
) -> dict[str, Any]:
    """``holdfast.check`` of a new model's queries on items of an older version, as JSON.

    The old model's features are the stored vectors; the new model's are computed from the images. Items with images
    that cannot be read are not used as queries.

    version: the older version's number.
    read: opens and preprocesses the image of an item.
    embed: features of images (N x C x H x W) in the basis of the stored vectors, N x stored_dim.
    """
    images: list[Tensor] = []
    queries: list[Stored] = []
    for item in sample.queries:
        if len(queries) == MOST_QUERIES:
            break
        with contextlib.suppress(HoldfastError):
            images.append(read(item))
            queries.append(item)
    if len(queries) < FEWEST_UNITS:
        found_items = counted(len(queries), "labelled item")
        reason = f"{found_items} with readable images and others of the same class; {FEWEST_UNITS} are needed"
        return {"version": version, "verdict": NOT_JUDGED, "reason": reason}
    vectors, gallery, labels = sample.vectors, sample.gallery, np.array([item.label for item in queries])
    found = check(
        (np.stack([vectors[item.key] for item in gallery]), np.array([item.label for item in gallery])),
        (np.stack([vectors[item.key] for item in queries]), labels),
        (embed(torch.cat(images)), labels),
    ).as_json()
    kept = ("verdict", "reason", "score", "queries", "gallery", "self_test", "cross_test", "gain")
    return {"version": version, **{name: found[name] for name in kept}}


def _split(items: list[Stored]) -> tuple[list[Stored], list[Stored]]:
    """Candidates for queries, at most half of the items, and the gallery; every query's class is in the gallery."""
    order = np.random.default_rng(0).permutation(len(items))
    left = Counter(item.label for item in items)
    queries: list[Stored] = []
    gallery: list[Stored] = []
    for item in (items[row] for row in order):
        if len(queries) < len(items) // 2 and left[item.label] > 1 and len(queries) < 2 * MOST_QUERIES:
            left[item.label] -= 1
            queries.append(item)
        else:
            gallery.append(item)
    if len(gallery) > MOST_GALLERY:
        # One item of every class first: a query without its class in the gallery could not be answered.
        first = list({item.label: item for item in gallery}.values())
        taken = {item.key for item in first}
        gallery = first + [item for item in gallery if item.key not in taken][: max(0, MOST_GALLERY - len(first))]
    return queries, gallery

"""Whether a model may join: new queries on what each older version stored, judged by ``holdfast.check``."""

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.backbones import Encoder
from holdfast.checking import check
from holdfast.checking.result import FEWEST_UNITS, INCOMPATIBLE, NOT_JUDGED
from holdfast.errors import HoldfastError
from holdfast.gallery.items import Stored
from holdfast.gallery.models import ready
from holdfast.gallery.parts import Parts
from holdfast.gallery.versions import Version, keep_model, read_candidate, registry_of, slots_together
from holdfast.wording import counted

MOST_QUERIES = 300
MOST_GALLERY = 5000


def register(parts: Parts, model: Path, *, force: bool) -> Version:
    """Take a model in as the newest version; see ``Gallery.register``. Whoever calls holds ``parts.writing``."""
    candidate, models = read_candidate(model), parts.models
    if models.leaving is not None:
        raise HoldfastError(f"version {models.leaving} is being rolled back; finish or cancel that first")
    for known in models.versions():
        if known.weights_sha256 == candidate.weights_sha256:
            raise HoldfastError(f"{model}: these weights are version {known.number} already")
    newest = models.newest()
    slots = slots_together(registry_of(parts.catalogue.setting("slots")), candidate, newest.dim)
    number = max(newest.number, parts.catalogue.setting("last_version", 0)) + 1
    keep_model(candidate, parts.folder.version(number))
    try:
        version = candidate.version(number, [])
        version = replace(version, checks=_judge_all(parts, version, candidate.encoder))
        refused = [check for check in version.checks if check["verdict"] == INCOMPATIBLE]
        if refused and not force:
            where = f"on version {refused[0]['version']}: {refused[0]['reason']}"
            raise HoldfastError(
                f"{model}: incompatible {where}; --force registers it all the same (in Python: force=True)"
            )
        parts.engine.create(version.collection, version.stored_dim)
    except BaseException:
        models.forget(number)
        raise
    record = None if slots is None else slots.to_json()
    parts.catalogue.put_version(number, version.as_json(), {"slots": record})
    models.welcome(version, candidate.encoder)
    return version


def _judge_all(parts: Parts, new: Version, encoder: Encoder) -> list[dict[str, Any]]:
    """The new model's queries on what each older version holds: one verdict each, none without labels and images."""
    verdicts = []
    for old in parts.models.versions():

        def embed(images: Tensor, old: Version = old) -> np.ndarray:
            return parts.models.carry(parts.models.image_vectors(images, new, encoder), new, old)

        def fetch(keys: list[int], old: Version = old) -> dict[int, np.ndarray]:
            return parts.engine.fetch(old.collection, keys)

        items = parts.catalogue.labelled_images(old.number)
        if items:
            verdicts.append(judge(old.number, items, fetch, lambda item: ready(encoder, str(item.path)), embed))
    return verdicts


def judge(
    version: int,
    items: list[Stored],
    fetch: Callable[[list[int]], dict[int, np.ndarray]],
    read: Callable[[Stored], Tensor],
    embed: Callable[[Tensor], np.ndarray],
) -> dict[str, Any]:
    """The verdict on new queries among ``items``: those of one older version that have labels and images.

    Some items are taken as queries, the others stay as the gallery: by the old model as they are stored (``fetch``, by
    key), by the new one from their images (``read``, then ``embed``, which carries the features to where the stored
    vectors lie). Images that can no longer be read are passed over.
    """
    candidates, gallery = _split(items)
    images: list[Tensor] = []
    asked: list[Stored] = []
    for item in candidates:
        if len(asked) == MOST_QUERIES:
            break
        with contextlib.suppress(HoldfastError):
            images.append(read(item))
            asked.append(item)
    if len(asked) < FEWEST_UNITS:
        found_items = counted(len(asked), "labelled item")
        reason = f"{found_items} with readable images and others of the same class; {FEWEST_UNITS} are needed"
        return {"version": version, "verdict": NOT_JUDGED, "reason": reason}
    vectors = fetch([item.key for item in (*asked, *gallery)])
    labels = np.array([item.label for item in asked])
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

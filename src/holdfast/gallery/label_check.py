"""The check of a new model's queries on labelled items of an older version, when the model is registered."""

import contextlib
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.evaluation import check
from holdfast.evaluation.verdict import FEWEST_UNITS, NOT_JUDGED
from holdfast.gallery.bridge_pairs import fetch_in_blocks
from holdfast.gallery.catalogue import ItemWithPath
from holdfast.gallery.items import Stored
from holdfast.gallery.state import GalleryState
from holdfast.gallery.versions import Version
from holdfast.wording import counted

MOST_QUERIES = 300
MOST_GALLERY = 5000


@dataclass(frozen=True)
class CheckSample:
    """Labelled items of one version.

    queries: candidates for queries.
    gallery: the items that are searched.
    vectors: the stored vectors of both, by key.
    """

    queries: list[Stored]
    gallery: list[ItemWithPath]
    vectors: dict[int, np.ndarray]


class NewQueries(NamedTuple):
    """Queries of the new model in the space of an older version, N x stored_dim.

    bridged: by the bridge; None without one. plain: without it; None if the two spaces cannot be compared.
    """

    bridged: np.ndarray | None
    plain: np.ndarray | None


def split(items: Sequence[ItemWithPath], avoid: Container[str]) -> tuple[list[ItemWithPath], list[ItemWithPath]]:
    """Candidates for queries, at most half of the labelled items, and the gallery with every query's class.

    avoid: ids that become queries last, because the bridge may need them.
    """
    labelled = [item for item in items if item.label is not None]
    order = [labelled[row] for row in np.random.default_rng(0).permutation(len(labelled)).tolist()]
    order.sort(key=lambda item: item.id in avoid)
    left = Counter(item.label for item in labelled)
    queries: list[ItemWithPath] = []
    gallery: list[ItemWithPath] = []
    for item in order:
        if len(queries) < len(labelled) // 2 and left[item.label] > 1 and len(queries) < 2 * MOST_QUERIES:
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


def read_check_sample(
    state: GalleryState, version: Version, queries: Sequence[ItemWithPath], gallery: Sequence[ItemWithPath]
) -> CheckSample | None:
    """The items with their stored vectors; None if the version holds no items with labels and images."""
    if not gallery:
        return None
    vectors = fetch_in_blocks(state, version, [item.key for item in (*queries, *gallery)])
    # Items that were deleted or re-embedded since they were listed have no vector here any more.
    kept = [item for item in gallery if item.key in vectors]
    classes = {item.label for item in kept}
    stored, _ = state.catalogue.by_key([item.key for item in queries if item.key in vectors])
    in_order = [stored[item.key] for item in queries if item.key in stored and item.label in classes]
    return CheckSample(in_order, kept, vectors)


def check_on_sample(
    version: int, sample: CheckSample, read: Callable[[Stored], Tensor], embed: Callable[[Tensor], NewQueries]
) -> dict[str, Any]:
    """``holdfast.check`` of a new model's queries on items of an older version, as JSON.

    The old model's features are the stored vectors; the new model's are computed from the images. Items with images
    that cannot be read are not used as queries. With a bridge, and where the spaces can be compared, ``without`` has
    verdict, cross_test and gain of the queries without it.

    version: the older version's number.
    read: opens and preprocesses the image of an item.
    embed: queries of images (N x C x H x W) in the space of the stored vectors.
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
    old_gallery = (np.stack([vectors[item.key] for item in gallery]), np.array([item.label for item in gallery]))
    old_queries = (np.stack([vectors[item.key] for item in queries]), labels)
    new = embed(torch.cat(images))
    used = new.plain if new.bridged is None else new.bridged
    found = check(old_gallery, old_queries, (used, labels)).as_json()
    kept = ("verdict", "reason", "score", "queries", "gallery", "self_test", "cross_test", "gain")
    record = {"version": version, **{name: found[name] for name in kept}}
    if new.bridged is not None and new.plain is not None:
        without = check(old_gallery, old_queries, (new.plain, labels)).as_json()
        record["without"] = {name: without[name] for name in ("verdict", "cross_test", "gain")}
    return record

"""The check of a new model's queries on labelled items of an older version, when the model is registered."""

import contextlib
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.evaluation import check
from holdfast.evaluation.verdict import FEWEST_UNITS, NOT_JUDGED
from holdfast.gallery.bridge_pairs import fetch_in_blocks
from holdfast.gallery.catalogue import ItemsWithPath
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
    gallery: labels of the items that are searched, by key.
    vectors: the stored vectors of both, by key.
    """

    queries: list[Stored]
    gallery: dict[int, str]
    vectors: dict[int, np.ndarray]


class NewQueries(NamedTuple):
    """Queries of the new model in the space of an older version, N x stored_dim.

    bridged: by the bridge; None without one. plain: without it; None if the two spaces cannot be compared.
    """

    bridged: np.ndarray | None
    plain: np.ndarray | None


class CheckSplit(NamedTuple):
    """Keys and labels of candidates for queries, and of the gallery, in random order."""

    queries: dict[int, str]
    gallery: dict[int, str]


def split(items: ItemsWithPath, avoid: Container[str] | None = None) -> CheckSplit:
    """Candidates for queries, at most half of the labelled items, and the gallery with every query's class.

    avoid: ids that become queries last, because the bridge may need them; None for none.
    """
    # With arrays: a loop over all items of a large gallery would slow down searches of other threads.
    codes: dict[str | None, int] = {None: -1}
    code_of = np.array([codes.setdefault(label, len(codes) - 1) for label in items.labels], dtype=np.int64)
    labelled = np.flatnonzero(code_of >= 0)
    order = labelled[np.random.default_rng(0).permutation(len(labelled))]
    wanted = np.array([items.ids[row] in avoid for row in order.tolist()], dtype=bool) if avoid else None
    if wanted is not None:
        order = np.concatenate([order[~wanted], order[wanted]])
    left = np.bincount(code_of[order])
    most = min(len(order) // 2, 2 * MOST_QUERIES)
    queries: list[int] = []
    passed: list[int] = []
    for row in order.tolist():
        if len(queries) == most:
            break
        if left[code_of[row]] > 1:
            left[code_of[row]] -= 1
            queries.append(row)
        else:
            passed.append(row)
    gallery = np.concatenate([np.array(passed, dtype=np.int64), order[len(queries) + len(passed) :]])
    if len(gallery) > MOST_GALLERY:
        # One item of every class first: a query without its class in the gallery could not be answered.
        first = gallery[np.unique(code_of[gallery], return_index=True)[1]]
        rest = gallery[~np.isin(gallery, first)]
        gallery = np.concatenate([first, rest[: max(0, MOST_GALLERY - len(first))]])
    return CheckSplit(
        *({items.keys[row]: str(items.labels[row]) for row in rows} for rows in (queries, gallery.tolist()))
    )


def read_check_sample(state: GalleryState, version: Version, chosen: CheckSplit) -> CheckSample | None:
    """The items with their stored vectors; None if the version holds no items with labels and images."""
    if not chosen.gallery:
        return None
    vectors = fetch_in_blocks(state, version, [*chosen.queries, *chosen.gallery])
    # Items that were deleted or re-embedded since they were listed have no vector here any more.
    gallery = {key: label for key, label in chosen.gallery.items() if key in vectors}
    classes = set(gallery.values())
    wanted = [key for key, label in chosen.queries.items() if key in vectors and label in classes]
    stored, _ = state.catalogue.by_key(wanted)
    return CheckSample([stored[key] for key in wanted if key in stored], gallery, vectors)


def joint_confidence(checks: int) -> float:
    """The confidence of each of several checks at which a model that gains nothing is refused by 5 % of them together.

    A model is refused if one check finds it incompatible, and with many versions one of them will by chance.
    """
    return 1 - 0.05 / max(1, checks)


def check_on_sample(
    version: int,
    sample: CheckSample,
    read: Callable[[Stored], Tensor],
    embed: Callable[[Tensor], NewQueries],
    confidence: float = 0.95,
) -> dict[str, Any]:
    """``holdfast.check`` of a new model's queries on items of an older version, as JSON.

    The old model's features are the stored vectors; the new model's are computed from the images. Items with images
    that cannot be read are not used as queries. With a bridge, and where the spaces can be compared, ``without`` has
    verdict, cross_test and gain of the queries without it.

    version: the older version's number.
    read: opens and preprocesses the image of an item.
    embed: queries of images (N x C x H x W) in the space of the stored vectors.
    confidence: of the intervals; see ``joint_confidence``.
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
    old_gallery = (np.stack([vectors[key] for key in gallery]), np.array(list(gallery.values())))
    old_queries = (np.stack([vectors[item.key] for item in queries]), labels)
    new = embed(torch.cat(images))
    used = new.plain if new.bridged is None else new.bridged
    found = check(old_gallery, old_queries, (used, labels), confidence=confidence).as_json()
    kept = ("verdict", "reason", "score", "confidence", "queries", "gallery", "self_test", "cross_test", "gain")
    record = {"version": version, **{name: found[name] for name in kept}}
    if new.bridged is not None and new.plain is not None:
        without = check(old_gallery, old_queries, (new.plain, labels), confidence=confidence).as_json()
        record["without"] = {name: without[name] for name in ("verdict", "cross_test", "gain")}
    return record

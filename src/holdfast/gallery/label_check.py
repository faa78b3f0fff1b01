"""The check of a new model's queries on labelled items of an older version, when the model is registered."""

import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from holdfast.checks import check
from holdfast.checks.verdict import FEWEST_UNITS, NOT_JUDGED
from holdfast.core.errors import HoldfastError
from holdfast.core.saved_samples import BUFFER, HELD_OUT, read_sample_list
from holdfast.core.wording import counted
from holdfast.gallery.bridge_pairs import fetch_in_blocks
from holdfast.gallery.catalogue import ItemsWithPath
from holdfast.gallery.gallery_items import StoredItem
from holdfast.gallery.gallery_versions import Version
from holdfast.gallery.state import GalleryState

MOST_QUERIES = 2000
MOST_GALLERY = 5000
_IMAGES_AT_ONCE = 64
_NUMBERS_AT_ONCE = 2**14
HELD, UNKNOWN, TRAINED = "held_out", "unknown", "trained"
"""Items held out from training, items of which nothing is known, and items that the model was trained on."""
ENOUGH = 50
"""With so many held-out queries no others are used."""


@dataclass(frozen=True)
class NamedSamples:
    """The samples that a model folder names: held out from all training so far, or kept for replay.

    model: the name of the folder.
    kinds: ``HELD`` or ``TRAINED`` by the path that a sample was read from; empty if the folder has no lists.
    """

    model: str
    kinds: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path | None) -> "NamedSamples":
        """Those of a model folder; None for a version of vectors alone."""
        kinds: dict[str, str] = {}
        if folder is None:
            return cls("", kinds)
        for stem, kind in ((HELD_OUT, HELD), (BUFFER, TRAINED)):
            listed = read_sample_list(folder, stem)
            kinds |= {path: kind for _, path, _ in (() if listed is None else listed.samples)}
        return cls(folder.resolve().name, kinds)

    def kinds_of(self, items: Iterable[StoredItem]) -> dict[int, str]:
        """The kind of each item, by key."""
        return {item.key: self.kinds.get(str(item.path), UNKNOWN) for item in items}

    def best(self, items: Sequence[StoredItem], kinds: Mapping[int, str]) -> list[StoredItem]:
        """The held-out items if there are enough; else with them those of unknown kind, and then all."""
        for allowed in ((HELD,), (HELD, UNKNOWN)):
            found = [item for item in items if kinds[item.key] in allowed]
            if len(found) >= ENOUGH:
                return found
        return list(items)

    def describe(self, items: Iterable[StoredItem], kinds: Mapping[int, str]) -> dict[str, Any]:
        """How many items of each kind were used, and ``text``, a sentence about them."""
        counts = Counter(kinds[item.key] for item in items)
        held, unknown, trained = counts[HELD], counts[UNKNOWN], counts[TRAINED]
        parts = []
        if held:
            parts.append(f"{counted(held, 'held-out item')} of model {self.model}, not used in training")
        if unknown:
            which = "not known whether used in training" if self.kinds else "the model folder names no held-out images"
            parts.append(f"{counted(unknown, 'item')}, {which}")
        if trained:
            parts.append(f"{counted(trained, 'item')} used in training")
        return {HELD: held, UNKNOWN: unknown, TRAINED: trained, "model": self.model, "text": "; ".join(parts)}


@dataclass(frozen=True)
class CheckSample:
    """Labelled items of one version.

    queries: candidates for queries.
    gallery: labels of the items that are searched, by key.
    vectors: the stored vectors of both, by key.
    """

    queries: list[StoredItem]
    gallery: dict[int, str]
    vectors: dict[int, np.ndarray]


class NewQueries(NamedTuple):
    """Queries of the new model in the space of an older version, N x stored_dim.

    bridged: by the bridge; None without one. plain: without it; None if the two spaces cannot be compared.
    """

    bridged: np.ndarray | None
    plain: np.ndarray | None


class CheckSplit(NamedTuple):
    """Keys and labels of candidates for queries, and of the gallery, in the order of the hashes of their ids."""

    queries: dict[int, str]
    gallery: dict[int, str]


def split(
    items: ItemsWithPath, avoid: Container[str] | None = None, kinds: Mapping[int, str] | None = None
) -> CheckSplit:
    """Candidates for queries, at most half of the labelled items, and the gallery with every query's class.

    avoid: ids that become queries last, because the bridge may need them; None for none.
    kinds: ``HELD`` or ``TRAINED`` by key, as far as it is known. Held-out items become queries first, and no others if
        there are enough; items that were trained on become queries last.

    An item's place depends on its id alone, so nearly the same gallery gives nearly the same queries.
    """
    # With arrays, which are made number by number: no other thread runs while a list of all items becomes an array.
    codes: dict[str | None, int] = {None: -1}
    code_of = np.fromiter((codes.setdefault(label, len(codes) - 1) for label in items.labels), np.int64)
    labelled = np.flatnonzero(code_of >= 0)
    hashes = np.fromiter((_id_hash(items.ids[row]) for row in _one_by_one(labelled)), np.uint64)
    order = labelled[np.argsort(hashes, kind="stable")]
    ranks = {HELD: 0, UNKNOWN: 1, TRAINED: 2}
    rank = np.fromiter((ranks[(kinds or {}).get(items.keys[row], UNKNOWN)] for row in _one_by_one(order)), np.int64)
    if avoid:
        rank += 3 * np.fromiter((items.ids[row] in avoid for row in _one_by_one(order)), np.int64)
    order = order[np.argsort(rank, kind="stable")]
    held_out = int((rank == 0).sum())
    left = np.bincount(code_of[order])
    most = min(len(order) // 2, MOST_QUERIES, held_out if held_out >= ENOUGH else len(order))
    queries: list[int] = []
    passed: list[int] = []
    for row in _one_by_one(order):
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


def _one_by_one(numbers: np.ndarray) -> Iterator[int]:
    for start in range(0, len(numbers), _NUMBERS_AT_ONCE):
        yield from numbers[start : start + _NUMBERS_AT_ONCE].tolist()


def _id_hash(id: str) -> int:
    return int.from_bytes(hashlib.blake2b(id.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def read_check_sample(state: GalleryState, version: Version, chosen: CheckSplit) -> CheckSample | None:
    """The items with their stored vectors; None if the version holds no items with labels and images."""
    if not chosen.gallery:
        return None
    vectors = fetch_in_blocks(state, version, [*chosen.queries, *chosen.gallery])
    # Items that were deleted or re-embedded since they were listed have no vector here any more.
    gallery = {key: label for key, label in chosen.gallery.items() if key in vectors}
    classes = set(gallery.values())
    wanted = [key for key, label in chosen.queries.items() if key in vectors and label in classes]
    stored = state.catalogue.items(wanted)
    return CheckSample([stored[key] for key in wanted if key in stored], gallery, vectors)


def joint_confidence(checks: int) -> float:
    """The confidence of each of several checks at which a model that gains nothing is refused by 5 % of them together.

    A model is refused if one check finds it worse than the old one, and with many versions one of them will by chance.
    """
    return 1 - 0.05 / max(1, checks)


def check_on_sample(
    version: int,
    sample: CheckSample,
    read: Callable[[StoredItem], np.ndarray],
    embed: Callable[[np.ndarray], NewQueries],
    samples: NamedSamples,
    confidence: float = 0.95,
) -> dict[str, Any]:
    """``holdfast.check`` of a new model's queries on items of an older version, as JSON.

    The old model's features are the stored vectors; the new model's are computed from the images. Items with images
    that cannot be read are not used as queries. With a bridge, and where the spaces can be compared, ``without`` has
    verdict, loss, cross_test and gain of the queries without it. ``items_used`` says which items were the queries.

    version: the older version's number.
    read: opens and preprocesses the image of an item.
    embed: queries of images (N x H x W x C) in the space of the stored vectors.
    samples: what the new model's folder says about its training.
    confidence: of the intervals; see ``joint_confidence``.
    """
    kinds = samples.kinds_of(sample.queries)
    queries, new = _embedded(samples.best(sample.queries, kinds), read, embed)
    if len(queries) < FEWEST_UNITS or new is None:
        found_items = counted(len(queries), "labelled item")
        reason = f"{found_items} with readable images and others of the same class; {FEWEST_UNITS} are needed"
        return {"version": version, "verdict": NOT_JUDGED, "reason": reason}
    vectors, gallery, labels = sample.vectors, sample.gallery, np.array([item.label for item in queries])
    old_gallery = (np.stack([vectors[key] for key in gallery]), np.array(list(gallery.values())))
    old_queries = (np.stack([vectors[item.key] for item in queries]), labels)
    used = new.plain if new.bridged is None else new.bridged
    if used is not None and np.array_equal(old_queries[0], used):
        return {"version": version, "verdict": NOT_JUDGED, "reason": "the two models give the same vectors"}
    found = check(old_gallery, old_queries, (used, labels), confidence=confidence).as_json()
    kept = (
        "verdict",
        "reason",
        "score",
        "confidence",
        "queries",
        "gallery",
        "self_test",
        "cross_test",
        "gain",
        "better",
        "loss",
    )
    record = {"version": version, **{name: found[name] for name in kept}}
    record["items_used"] = samples.describe(queries, kinds)
    if new.bridged is not None and new.plain is not None:
        without = check(old_gallery, old_queries, (new.plain, labels), confidence=confidence).as_json()
        record["without"] = {name: without[name] for name in ("verdict", "better", "loss", "cross_test", "gain")}
    return record


def _embedded(
    items: Sequence[StoredItem], read: Callable[[StoredItem], np.ndarray], embed: Callable[[np.ndarray], NewQueries]
) -> tuple[list[StoredItem], NewQueries | None]:
    """The items with images that can be read, and their new queries; None without any."""
    queries: list[StoredItem] = []
    parts: list[NewQueries] = []
    for start in range(0, len(items), _IMAGES_AT_ONCE):
        images: list[np.ndarray] = []
        for item in items[start : start + _IMAGES_AT_ONCE]:
            with contextlib.suppress(HoldfastError):
                images.append(read(item))
                queries.append(item)
        if images:
            parts.append(embed(np.concatenate(images)))
    if not parts:
        return [], None
    bridged, plain = ([getattr(part, name) for part in parts] for name in ("bridged", "plain"))
    return queries, NewQueries(*(None if rows[0] is None else np.concatenate(rows) for rows in (bridged, plain)))

"""Items of a gallery embedded by two models: the pairs that a bridge between two versions is fitted on."""

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.gallery.gallery_items import StoredItem
from holdfast.gallery.gallery_versions import Version
from holdfast.gallery.state import GalleryState
from holdfast.gallery.version_models import prepare_image, unit_row

if TYPE_CHECKING:
    from holdfast.embedders.image_encoder import ImageEncoder

_LOOK_UP = 500
_NUMBERS_PER_FETCH = 2**14
"""Numbers read from the engine at a time. The embedded engine makes Python lists of them while other threads wait."""


@dataclass(frozen=True)
class PairItems:
    """Items of one version that are to be embedded by a new model too.

    vectors: their stored vectors, by place in ``items``.
    """

    items: list[StoredItem]
    vectors: dict[int, np.ndarray]


@dataclass(frozen=True)
class ItemPairs:
    """The same items as stored by an old and by a new version.

    old: N x stored_dim of the old version; new: N x stored_dim of the new one.
    labels: N classes, None where an item has none.
    """

    old: np.ndarray
    new: np.ndarray
    labels: list[str | None]

    def __len__(self) -> int:
        return len(self.old)

    def joined(self, other: "ItemPairs", most: int) -> "ItemPairs":
        """These pairs and others of the same versions, at most ``most`` of all, at random with a fixed seed."""
        if not len(self):
            return other
        old, new = np.concatenate([self.old, other.old]), np.concatenate([self.new, other.new])
        labels = [*self.labels, *other.labels]
        rows = np.sort(np.random.default_rng(0).permutation(len(old))[:most])
        return ItemPairs(old[rows], new[rows], [labels[row] for row in rows.tolist()])


def choose_with_images(state: GalleryState, keys: Sequence[int], most: int) -> list[StoredItem]:
    """At most ``most`` items whose image is at hand, at random with a fixed seed.

    keys: of items that have the path of an image.
    """
    order = np.random.default_rng(0).permutation(len(keys))
    chosen: list[StoredItem] = []
    for start in range(0, len(order), _LOOK_UP):
        block = [keys[row] for row in order[start : start + _LOOK_UP].tolist()]
        found, _ = state.catalogue.by_key(block)
        for key in block:
            if key in found and os.path.isfile(str(found[key].path)):
                chosen.append(found[key])
                if len(chosen) == most:
                    return chosen
    return chosen


def read_pair_items(state: GalleryState, version: Version, items: list[StoredItem]) -> PairItems:
    """The items with their stored vectors. Items that were deleted or re-embedded since they were read are left out."""
    vectors = fetch_in_blocks(state, version, [item.key for item in items])
    kept = [item for item in items if item.key in vectors]
    return PairItems(kept, {place: vectors[item.key] for place, item in enumerate(kept)})


def fetch_in_blocks(state: GalleryState, version: Version, keys: Sequence[int]) -> dict[int, np.ndarray]:
    """The stored vectors of those keys that exist, read so that searches of other threads do not wait for long.

    A write of another thread consists of many steps, and each would wait for one block. So this thread pauses after
    every block for as long as the block took.
    """
    size = max(1, _NUMBERS_PER_FETCH // version.stored_dim)
    found: dict[int, np.ndarray] = {}
    for start in range(0, len(keys), size):
        began = time.perf_counter()
        found |= state.engine.fetch(version.collection, keys[start : start + size])
        time.sleep(min(0.05, time.perf_counter() - began))
    return found


def embed_images(
    items: Sequence[StoredItem],
    encoder: "ImageEncoder",
    embed: Callable[[np.ndarray], np.ndarray],
    progress: Callable[[int, int], None],
) -> dict[int, np.ndarray]:
    """The images of items embedded by a model, by place in ``items``; images that cannot be read are left out.

    embed: stored forms of prepared images (N x H x W x C), N x stored_dim.
    progress: called with the number of items done and the number of all.
    """
    found: dict[int, np.ndarray] = {}
    total, size = len(items), encoder.batch_size
    for start in range(0, total, size):
        opened: list[tuple[int, np.ndarray]] = []
        for place in range(start, min(total, start + size)):
            with contextlib.suppress(HoldfastError):
                opened.append((place, prepare_image(encoder, items[place].path)))
        if opened:
            rows = embed(np.concatenate([image for _, image in opened]))
            for (place, _), row in zip(opened, rows, strict=True):
                with contextlib.suppress(HoldfastError):
                    found[place] = unit_row(row, "image", 0)
        progress(min(total, start + size), total)
    return found


def pairs_of(items: Sequence[StoredItem], old: Mapping[int, np.ndarray], new: Mapping[int, np.ndarray]) -> ItemPairs:
    """The pairs of those items that both models embedded; ``old`` and ``new`` are vectors by place in ``items``."""
    kept = [place for place in new if place in old]
    if not kept:
        return ItemPairs(np.empty((0, 0), np.float32), np.empty((0, 0), np.float32), [])
    old_rows, new_rows = (np.stack([rows[place] for place in kept]) for rows in (old, new))
    return ItemPairs(old_rows, new_rows, [items[place].label for place in kept])

"""Items of a gallery embedded by two models: the pairs that a bridge between two versions is fitted on."""

import contextlib
import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from holdfast.encoders import Encoder
from holdfast.errors import HoldfastError
from holdfast.evaluation import FeatureSet
from holdfast.evaluation.feature_files import read_features
from holdfast.evaluation.feature_set import shorten
from holdfast.gallery.given_vectors import check_model
from holdfast.gallery.items import Stored
from holdfast.gallery.models import forward_batch_size, preprocess_image, stored_form, unit_row
from holdfast.gallery.state import GalleryState
from holdfast.gallery.versions import Version

_HASH = re.compile("[0-9a-f]{64}")
_LOOK_UP = 500
_NUMBERS_PER_FETCH = 2**14
"""Numbers read from the engine at a time. The embedded engine makes Python lists of them while other threads wait."""


@dataclass(frozen=True)
class PairItems:
    """Items of one version that are to be embedded by a new model too.

    items: the items.
    vectors: their stored vectors, by place in ``items``; None if the version holds no items: its model then embeds the
        images of these items, which belong to other versions.
    """

    items: list[Stored]
    vectors: dict[int, np.ndarray] | None


@dataclass(frozen=True)
class Pairs:
    """The same items as stored by an old and by a new version.

    old: N x stored_dim of the old version; new: N x stored_dim of the new one.
    labels: N classes, None where an item has none.
    """

    old: np.ndarray
    new: np.ndarray
    labels: list[str | None]

    def __len__(self) -> int:
        return len(self.old)


class NewVectors:
    """The new model's vectors of some items.

    given: a file (npz, npy with ids in a second file, parquet) or a FeatureSet with ids, which are those of items.
    """

    def __init__(self, given: str | Path | FeatureSet) -> None:
        found = given if isinstance(given, FeatureSet) else read_features(given, "gallery")
        if found.ids is None:
            raise HoldfastError(f"{found.name}: has no ids; they say which item of the gallery each vector belongs to")
        self._features = found
        self.name = found.name
        self._row_of = {str(name): row for row, name in enumerate(found.ids)}

    def __contains__(self, id: object) -> bool:
        return id in self._row_of

    def ids(self) -> list[str]:
        """The id of each row."""
        return list(self._row_of)

    def choose(self, state: GalleryState, most: int, reserved: Collection[int]) -> dict[int, list[Stored]]:
        """At most ``most`` items of each version that are in the file, at random with a fixed seed, by version.

        reserved: keys of items that are not used.
        Refused: a file without an id of the gallery.
        """
        names = list(self._row_of)
        order = np.random.default_rng(0).permutation(len(names)).tolist()
        chosen: dict[int, list[Stored]] = {number: [] for number in state.catalogue.counts()}
        matched = False
        for start in range(0, len(order), _LOOK_UP):
            found = state.catalogue.by_id([names[row] for row in order[start : start + _LOOK_UP]])
            matched = matched or bool(found)
            for item in found.values():
                kept = chosen.setdefault(item.version, [])
                if item.key not in reserved and len(kept) < most:
                    kept.append(item)
            if all(len(kept) == most for kept in chosen.values()):
                break
        if not matched:
            raise HoldfastError(f"{self.name}: none of its {len(names)} ids is in the gallery ({shorten(names, 3)})")
        return chosen

    def rows(self, items: Sequence[Stored]) -> list[int]:
        """The row numbers of items."""
        return [self._row_of[item.id] for item in items]

    def stored(self, rows: Sequence[int], version: Version, basis: Tensor | None) -> np.ndarray:
        """These rows as ``version`` stores them, N x stored_dim.

        Refused: vectors that name the hash of another model, vectors of another size, and one of these that is
        zero or not finite.
        basis: the version's compact basis.
        """
        made_by = self._features.model
        if made_by is not None and _HASH.fullmatch(made_by):  # any other name says nothing about the weights
            check_model(self.name, made_by, version)
        width, ids = self._features.dim, self._features.names()
        if width not in (version.dim, version.stored_dim):
            sizes = " or ".join(str(size) for size in sorted({version.dim, version.stored_dim}))
            raise HoldfastError(f"{self.name}: vectors of {width} numbers, but the new model's have {sizes}")
        found = np.empty((len(rows), version.stored_dim), dtype=np.float32)
        for place, vector in enumerate(self._features.rows.take(np.asarray(rows, dtype=np.int64))):
            found[place] = stored_form(version, lambda: basis, vector, f"{self.name}: {ids[rows[place]]}")
        return found


def choose_with_images(state: GalleryState, keys: Sequence[int], most: int) -> list[Stored]:
    """At most ``most`` items whose image is at hand, at random with a fixed seed.

    keys: of items that have the path of an image.
    """
    order = np.random.default_rng(0).permutation(len(keys)).tolist()
    chosen: list[Stored] = []
    for start in range(0, len(order), _LOOK_UP):
        block = [keys[row] for row in order[start : start + _LOOK_UP]]
        found, _ = state.catalogue.by_key(block)
        for key in block:
            if key in found and os.path.isfile(str(found[key].path)):
                chosen.append(found[key])
                if len(chosen) == most:
                    return chosen
    return chosen


def read_pair_items(state: GalleryState, version: Version, items: list[Stored]) -> PairItems:
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
    items: Sequence[Stored],
    encoder: Encoder,
    embed: Callable[[Tensor], np.ndarray],
    device: torch.device,
    progress: Callable[[int, int], None],
) -> dict[int, np.ndarray]:
    """The images of items embedded by a model, by place in ``items``; images that cannot be read are left out.

    embed: stored forms of preprocessed images (N x C x H x W), N x stored_dim.
    progress: called with the number of items done and the number of all.
    """
    found: dict[int, np.ndarray] = {}
    total, size = len(items), forward_batch_size(encoder, device)
    for start in range(0, total, size):
        opened: list[tuple[int, Tensor]] = []
        for place in range(start, min(total, start + size)):
            with contextlib.suppress(HoldfastError):
                opened.append((place, preprocess_image(encoder, items[place].path)))
        if opened:
            rows = embed(torch.cat([image for _, image in opened]))
            for (place, _), row in zip(opened, rows, strict=True):
                with contextlib.suppress(HoldfastError):
                    found[place] = unit_row(row, "image", 0)
        progress(min(total, start + size), total)
    return found


def pairs_of(items: Sequence[Stored], old: Mapping[int, np.ndarray], new: Mapping[int, np.ndarray]) -> Pairs:
    """The pairs of those items that both models embedded; ``old`` and ``new`` are vectors by place in ``items``."""
    kept = [place for place in new if place in old]
    if not kept:
        return Pairs(np.empty((0, 0), np.float32), np.empty((0, 0), np.float32), [])
    old_rows, new_rows = (np.stack([rows[place] for place in kept]) for rows in (old, new))
    return Pairs(old_rows, new_rows, [items[place].label for place in kept])

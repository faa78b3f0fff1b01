"""Re-embed items on a Ray cluster: the workers read and embed images, this process stores the vectors."""

import contextlib
from collections.abc import Generator, Sequence

import torch

from holdfast.embedding.batches import EmbeddedItems
from holdfast.embedding.items import Files
from holdfast.embedding.on_ray import ray_cluster
from holdfast.embedding.processes import ShardWork
from holdfast.encoders.encode_loop import batch_size_for
from holdfast.errors import HoldfastError
from holdfast.gallery.items import Stored
from holdfast.gallery.models import unit_row
from holdfast.gallery.reembed import ReembeddedBlock, ReembedProgress
from holdfast.gallery.state import GalleryState
from holdfast.gallery.versions import MODEL, Version

SHARD_ITEMS = 1000
"""Items that a worker decodes in one task. A kill of this process loses at most those that are under way."""
_LOOK_UP = 500


def ray_blocks(
    state: GalleryState, keys: Sequence[int], target: Version, address: str, size: int, progress: ReembedProgress
) -> Generator[ReembeddedBlock, None, None]:
    """The items with these keys, embedded by ``target`` on the cluster, ``size`` at a time, about in this order.

    The shard of an item is known by its key. Keys are never used again, so a vector cannot reach a replaced item. With
    a limit, as many items are embedded at a time as it still allows; unreadable ones do not count.
    """
    preprocess = state.models.encoder(target).preprocess
    assert preprocess is not None
    with contextlib.ExitStack() as opened:
        cluster, start = None, 0
        while start < len(keys) and progress.moved != progress.limit:
            wanted = keys[start:] if progress.limit is None else keys[start : start + progress.limit - progress.moved]
            start += len(wanted)
            paths = _paths(state, wanted)
            progress.changed += len(wanted) - len(paths)
            if not paths:
                continue
            cluster = cluster or opened.enter_context(ray_cluster(address))
            order = list(paths)
            shards = [order[first : first + SHARD_ITEMS] for first in range(0, len(order), SHARD_ITEMS)]
            work = ShardWork(
                state.folder.version(target.number) / MODEL,
                [(number, Files([paths[key] for key in shard])) for number, shard in enumerate(shards)],
                batch_size_for(cluster.device, preprocess.input_shape),
            )
            for number, embedded in cluster.embed(work, preprocess, lambda count: None):
                yield from _stored(state, target, shards[number], embedded, size, progress)


def _paths(state: GalleryState, keys: Sequence[int]) -> dict[int, str]:
    """The path of each key that still exists, in the order of the keys."""
    paths: dict[int, str] = {}
    for start in range(0, len(keys), _LOOK_UP):
        block = keys[start : start + _LOOK_UP]
        found, _ = state.catalogue.by_key(block)
        paths |= {key: str(found[key].path) for key in block if key in found}
    return paths


def _stored(
    state: GalleryState,
    target: Version,
    keys: Sequence[int],
    embedded: EmbeddedItems,
    size: int,
    progress: ReembedProgress,
) -> Generator[ReembeddedBlock, None, None]:
    vectors = state.models.stored_rows(torch.from_numpy(embedded.vectors), target)
    for start in range(0, len(keys), size):
        block = keys[start : start + size]
        existing, _ = state.catalogue.by_key(block)
        items: list[Stored] = []
        rows = []
        for row, key in enumerate(block, start=start):
            item = existing.get(key)
            if item is None:
                continue
            try:
                if row in embedded.reasons:
                    raise HoldfastError(f"{item.path}: {embedded.reasons[row]}")
                vectors[row] = unit_row(vectors[row], f"item {item.id!r}", target.number)
                items.append(item)
                rows.append(row)
            except HoldfastError as error:
                progress.refuse(item.id, str(error))
        yield ReembeddedBlock(len(block), items, vectors[rows])

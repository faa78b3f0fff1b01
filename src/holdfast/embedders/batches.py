"""Decode batches of items in threads, ahead of the network that embeds them."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdfast.embedders.model_inputs import ModelInput
from holdfast.embedders.source_items import Items, decode

if TYPE_CHECKING:
    from holdfast.embedders.image_encoder import ImageEncoder

_AHEAD = 2
"""Batches that are loaded and decoded while the network works on one."""
BAD_VECTOR = "the model gives a zero vector, NaN or infinity"


@dataclass(frozen=True)
class ItemBatch:
    """Decoded items.

    inputs: N inputs as ``ModelInput.arrays`` gives them; of an unreadable item any numbers.
    reasons: by place in the batch, why an item is unreadable.
    """

    inputs: np.ndarray
    reasons: dict[int, str]


@dataclass(frozen=True)
class EmbeddedItems:
    """Features of consecutive items.

    vectors: float32 N x dim of length 1; of an item in ``reasons`` any numbers.
    reasons: by row, why an item could not be embedded.
    """

    vectors: np.ndarray
    reasons: dict[int, str]


def batch_ranges(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Start and end of each batch of ``count`` items."""
    return ((start, min(start + size, count)) for start in range(0, count, size))


def stack_batch(taken: ModelInput, decoded: Iterable[np.ndarray | str]) -> ItemBatch:
    """Decoded items, or the reasons why they are unreadable, as one batch."""
    blank = np.ones((1, *taken.array_shape), np.float32 if taken.takes_vectors else np.uint8)
    inputs, reasons = [], {}
    for row, item in enumerate(decoded):
        if isinstance(item, str):
            reasons[row] = item
        inputs.append(blank if isinstance(item, str) else item)
    return ItemBatch(np.concatenate(inputs), reasons)


def decoded_batches(taken: ModelInput, parts: Iterable[Items], size: int) -> Generator[ItemBatch, None, None]:
    """The batches of ``size`` items of each part in turn. The next ones are decoded while a batch is used."""
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as decoders, ThreadPoolExecutor(_AHEAD) as loaders:

        def read(batch: Items) -> ItemBatch:
            return stack_batch(taken, decoders.map(lambda loaded: decode(taken, loaded), batch.load()))

        waiting: deque[Future[ItemBatch]] = deque()
        try:
            for batch in (part.part(*ends) for part in parts for ends in batch_ranges(len(part), size)):
                waiting.append(loaders.submit(read, batch))
                if len(waiting) > _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for batch_ahead in waiting:
                batch_ahead.cancel()


def embed_batches(
    encoder: "ImageEncoder",
    count: int,
    batches: Iterator[ItemBatch],
    *,
    progress: Callable[[int], None] = lambda done: None,
    on_unreadable: Callable[[dict[int, str]], None] = lambda reasons: None,
) -> EmbeddedItems:
    """Unit features of the next ``count`` items of ``batches``.

    progress: called with the number of items done after each batch.
    on_unreadable: called with the reasons of a batch, by row, if it has any; it may raise.
    """
    vectors = np.empty((count, encoder.dim), np.float32)
    reasons: dict[int, str] = {}
    done = 0
    while done < count:
        batch = next(batches)
        if batch.reasons:
            unreadable = {done + row: reason for row, reason in batch.reasons.items()}
            reasons.update(unreadable)
            on_unreadable(unreadable)
        vectors[done : done + len(batch.inputs)] = encoder.embed(batch.inputs, exact=False)
        done += len(batch.inputs)
        progress(done)
    bad = ~(np.isfinite(vectors).all(axis=1) & (vectors != 0).any(axis=1))
    return EmbeddedItems(vectors, {**{int(row): BAD_VECTOR for row in np.flatnonzero(bad)}, **reasons})

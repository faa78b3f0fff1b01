"""Open the model that embeds, and decode batches of items in threads, ahead of its network."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.storage import read_json
from holdfast.embedders.items import Items, decode
from holdfast.train.encoders import Encoder, Input
from holdfast.train.encoders.encode_loop import compute_features
from holdfast.train.encoders.encoder import CONFIG_FILE
from holdfast.train.geometry import unit

_AHEAD = 2
"""Batches that are loaded and decoded while the network works on one."""
BAD_VECTOR = "the model gives a zero vector, NaN or infinity"


def open_model(model: Encoder | str | Path, device: torch.device | str) -> tuple[Encoder, str | None]:
    """The encoder on the device, and the hash of its weights (None without weights or without a folder)."""
    encoder = model.to(device) if isinstance(model, Encoder) else Encoder.from_pretrained(model, device=device)
    if encoder.preprocess is None:
        where = "the encoder" if isinstance(model, Encoder) else str(model)
        raise HoldfastError(f"{where}: has no preprocess, so it cannot embed images or vectors; save it with one")
    if isinstance(model, Encoder) or not encoder.state_dict():
        return encoder, None
    return encoder, read_json(Path(model) / CONFIG_FILE)["weights_sha256"]


@dataclass(frozen=True)
class Batch:
    """Decoded items.

    inputs: N stacked inputs (see ``Input.stack``); of an unreadable item any numbers.
    reasons: by place in the batch, why an item is unreadable.
    """

    inputs: Tensor
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


def stack_batch(preprocess: Input, decoded: Iterable[Tensor | str]) -> Batch:
    """Decoded items, or the reasons why they are unreadable, as one batch."""
    kind = torch.float32 if preprocess.takes_vectors else torch.uint8
    blank = torch.ones(1, *preprocess.input_shape, dtype=kind)
    inputs, reasons = [], {}
    for row, one in enumerate(decoded):
        if isinstance(one, str):
            reasons[row] = one
        inputs.append(blank if isinstance(one, str) else one)
    return Batch(torch.cat(inputs), reasons)


def decoded_batches(preprocess: Input, parts: Iterable[Items], size: int) -> Generator[Batch, None, None]:
    """The batches of ``size`` items of each part in turn. The next ones are decoded while a batch is used."""
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as decoders, ThreadPoolExecutor(_AHEAD) as loaders:

        def read(batch: Items) -> Batch:
            return stack_batch(preprocess, decoders.map(lambda one: decode(preprocess, one), batch.load()))

        waiting: deque[Future[Batch]] = deque()
        try:
            for batch in (part.part(*ends) for part in parts for ends in batch_ranges(len(part), size)):
                waiting.append(loaders.submit(read, batch))
                if len(waiting) > _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for one in waiting:
                one.cancel()


def embed_batches(
    encoder: Encoder,
    count: int,
    batches: Iterator[Batch],
    *,
    device: torch.device,
    size: int,
    progress: Callable[[int], None] = lambda done: None,
    on_unreadable: Callable[[dict[int, str]], None] = lambda reasons: None,
) -> EmbeddedItems:
    """Unit features of the next ``count`` items of ``batches``, which are batches of ``size`` items.

    progress: called with the number of items done after each batch.
    on_unreadable: called with the reasons of a batch, by row, if it has any; it may raise.
    """
    assert encoder.preprocess is not None
    normalise = encoder.preprocess.normalise
    reasons: dict[int, str] = {}

    def read(rows: slice) -> Tensor:
        batch = next(batches)
        if batch.reasons:
            found = {rows.start + row: reason for row, reason in batch.reasons.items()}
            reasons.update(found)
            on_unreadable(found)
        return normalise(batch.inputs.to(device))

    vectors = compute_features(
        encoder.embedding_network,
        count,
        read,
        device=device,
        batch_size=size,
        finish=unit,
        collect_on=torch.device("cpu"),
        progress=progress,
    ).numpy()
    bad = ~(np.isfinite(vectors).all(axis=1) & (vectors != 0).any(axis=1))
    return EmbeddedItems(vectors, {**{int(row): BAD_VECTOR for row in np.flatnonzero(bad)}, **reasons})

"""Embed images or vectors with a model: features with ids and labels, ready for a check, a bridge or a gallery."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.locations import Location
from holdfast.core.problems import SKIP_ADVICE, Problem, problems_error, write_problems
from holdfast.embedders.batches import ItemBatch, decoded_batches, embed_batches
from holdfast.embedders.image_encoder import ImageEncoder
from holdfast.embedders.sources import open_source
from holdfast.vectors import FeatureSet, feature_set

if TYPE_CHECKING:
    from holdfast.train.encoders import Encoder


@dataclass(frozen=True)
class Embedded:
    """What ``embed`` returns.

    features: unit vectors with their ids and, if known, labels.
    skipped: what could not be embedded.
    """

    features: FeatureSet
    skipped: list[Problem]


def embed(
    model: "Encoder | str | Path",
    source: Location | Sequence[Location],
    *,
    labels: bool = True,
    skip_unreadable: bool = False,
    problem_list: str | Path | None = None,
    device: str = "cpu",
    batch_size: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Embedded:
    """Unit features of images or vectors, float32, with ids and labels; all of them in memory.

    For more items than fit into memory, or on several GPUs, see ``embed_shards``.

    model: an encoder, or the folder of a saved one. The name of the model is the hash of its weights.
    source: for a model that takes images: a folder, image files, several of these, a CSV file with the columns
        ``path`` and perhaps ``label`` and ``id``, parquet files with a column ``path`` or ``bytes`` and perhaps
        ``label`` and ``id``. An id is the path below the folder, or the name of a file. Tables and paths may be
        addresses in an object store (s3://bucket/...). For a model that takes vectors: an npz, npy or parquet file as
        ``check`` reads it; without ids in it, ids are row numbers.
    labels: keep the labels of the table or file; of a folder that holds class folders only, their names. False
        leaves all labels out.
    skip_unreadable: leave out what cannot be read or embedded. Otherwise one error names all of it.
    problem_list: a CSV file that gets all of it, with reasons; None writes no file.
    device: where the model runs; an encoder is moved there and stays there.
    batch_size: items at a time; None chooses it by device and size of an image.
    progress: called with the number of items done and the number of all.

    >>> import numpy as np
    >>> from holdfast import Encoder, VectorInput, build_backbone, embed
    >>> np.savez("vectors.npz", features=np.eye(4), ids=["a", "b", "c", "d"])
    >>> Encoder(build_backbone("identity", in_channels=4), preprocess=VectorInput(4)).save_pretrained("model")
    >>> found = embed("model", "vectors.npz")
    >>> found.features.ids.tolist(), found.features.dim, len(found.skipped)
    (['a', 'b', 'c', 'd'], 4, 0)
    """
    encoder = ImageEncoder.load(model, device)
    if batch_size is not None and batch_size < 1:
        raise HoldfastError(f"embed: batch_size must be at least 1, got {batch_size}")
    items = open_source(encoder.input, source)
    count, size = len(items), batch_size or encoder.batch_size

    def finish(reasons: dict[int, str]) -> list[Problem]:
        """List what cannot be embedded, and refuse it unless it may be skipped and something is left."""
        problems = [*items.problems, *(items.items.problem(row, reasons[row]) for row in sorted(reasons))]
        listed = None if problem_list is None else write_problems(Path(problem_list), problems)
        some_left = len(reasons) < count
        if problems and not (skip_unreadable and some_left):
            advice = SKIP_ADVICE if some_left and not skip_unreadable else ""
            total = count + len(items.problems)
            raise problems_error(items.name, problems, total, listed=listed, advice=advice, noun=items.noun)
        return problems

    def refuse(reasons: dict[int, str]) -> None:
        if not skip_unreadable:  # the others are looked at too, so that one error names all
            finish({**reasons, **_remaining_reasons(batches, (max(reasons) // size + 1) * size)})

    with closing(decoded_batches(encoder.input, [items.items], size)) as batches:
        if items.problems and not (skip_unreadable and count):
            finish(_remaining_reasons(batches, 0))  # refused in any case: nothing is embedded in vain
        found = embed_batches(
            encoder,
            count,
            batches,
            progress=lambda done: progress(done, count),
            on_unreadable=refuse,
        )
    skipped = finish(found.reasons)
    kept = np.array([row not in found.reasons for row in range(count)])
    classes = None if items.labels is None or not labels else np.array(items.labels)[kept]
    features = feature_set(items.name, found.vectors[kept], classes, np.array(items.ids)[kept])
    return Embedded(replace(features, model=encoder.name), skipped)


def _remaining_reasons(batches: Iterator[ItemBatch], start: int) -> dict[int, str]:
    """By row, why items of the remaining batches are unreadable; ``start`` is the first row of the next batch."""
    found: dict[int, str] = {}
    for batch in batches:
        found |= {start + row: reason for row, reason in batch.reasons.items()}
        start += len(batch.inputs)
    return found

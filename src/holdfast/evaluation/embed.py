"""Embed images or vectors with a model: features with ids and labels, ready for a check, a bridge or a gallery."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from holdfast.data.image_source import ImageSource, find_images
from holdfast.encoders import Encoder, Input
from holdfast.encoders.encode_loop import batch_size_for, compute_features
from holdfast.encoders.encoder import CONFIG_FILE
from holdfast.errors import HoldfastError
from holdfast.evaluation.feature_files import FEATURE_SUFFIXES, read_features
from holdfast.evaluation.feature_set import FeatureSet, feature_set
from holdfast.geometry import unit
from holdfast.storage import read_json
from holdfast.wording import counted, first_few

NAMED_PROBLEMS = 20
"""Items named in an error about items that cannot be embedded."""

PathLike = str | Path


@dataclass(frozen=True)
class Embedded:
    """What ``embed`` returns.

    features: unit vectors with their ids and, if known, labels.
    skipped: id and reason of each item that could not be embedded.
    """

    features: FeatureSet
    skipped: list[tuple[str, str]]


def embed(
    model: Encoder | PathLike,
    source: PathLike | Sequence[PathLike],
    *,
    labels: bool = True,
    skip_unreadable: bool = False,
    device: torch.device | str = "cpu",
    batch_size: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Embedded:
    """Unit features of images or vectors, float32, with ids and labels.

    model: an encoder, or the folder of a saved one. The name of the model is the hash of its weights.
    source: for a model that takes images: a folder, image files, several of these, or a CSV file with the columns
        ``path`` and perhaps ``label`` and ``id``. An id is the path below the folder, or the name of a file.
        For a model that takes vectors: an npz, npy or parquet file as ``check`` reads it; without ids in it, ids are
        row numbers.
    labels: keep the labels of the table or file; of a folder that holds class folders only, their names. False
        leaves all labels out.
    skip_unreadable: leave out items that cannot be read or embedded. Otherwise an error names all of them.
    device: where the model runs; an encoder is moved there and stays there.
    batch_size: items at a time; None chooses it by device and size of an image.
    progress: called with the number of items done and the number of all.
    """
    encoder, name = _opened(model, device)
    assert encoder.preprocess is not None
    if batch_size is not None and batch_size < 1:
        raise HoldfastError(f"embed: batch_size must be at least 1, got {batch_size}")
    paths = [Path(source)] if isinstance(source, str | Path) else [Path(one) for one in source]
    if not paths:
        raise HoldfastError("embed: no source; give a folder, files or a table")
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        items = _opened_items(encoder.preprocess, paths, pool)
        count = len(items.ids)
        problems: dict[int, str] = {}
        size = batch_size or batch_size_for(torch.device(device), encoder.preprocess.input_shape)

        def read(rows: slice) -> Tensor:
            assert encoder.preprocess is not None
            stacked, found = items.read(rows, slice(rows.stop, min(rows.stop + size, count)))
            problems.update(found)
            if problems and not skip_unreadable:  # the others are looked at too, so that one error names all
                problems.update(items.problems_from(rows.stop))
                raise _refusal(items.ids, problems)
            return encoder.preprocess.normalise(stacked.to(device))

        vectors = compute_features(
            encoder,
            count,
            read,
            device=torch.device(device),
            batch_size=size,
            finish=unit,
            collect_on=torch.device("cpu"),
            progress=lambda done: progress(done, count),
        ).numpy()
    for row in np.flatnonzero(~(np.isfinite(vectors).all(axis=1) & (vectors != 0).any(axis=1))):
        problems.setdefault(int(row), f"{items.ids[row]}: the model gives a zero vector, NaN or infinity")
    kept = np.array([row not in problems for row in range(count)])
    if not kept.any() or (problems and not skip_unreadable):
        raise _refusal(items.ids, problems)
    known = items.labels if labels else None
    found = feature_set(
        ", ".join(map(str, paths)), vectors[kept], None if known is None else known[kept], items.ids[kept]
    )
    skipped = [(str(items.ids[row]), reason) for row, reason in sorted(problems.items())]
    return Embedded(replace(found, model=name), skipped)


def _opened(model: Encoder | PathLike, device: torch.device | str) -> tuple[Encoder, str | None]:
    """The encoder on the device, and the hash of its weights (None without weights or without a folder)."""
    encoder = model.to(device) if isinstance(model, Encoder) else Encoder.from_pretrained(model, device=device)
    if encoder.preprocess is None:
        where = "the encoder" if isinstance(model, Encoder) else str(model)
        raise HoldfastError(f"{where}: has no preprocess, so it cannot embed images or vectors; save it with one")
    if isinstance(model, Encoder) or not encoder.state_dict():
        return encoder, None
    return encoder, read_json(Path(model) / CONFIG_FILE)["weights_sha256"]


def _opened_items(preprocess: Input, paths: Sequence[Path], pool: ThreadPoolExecutor) -> "_Items":
    files = [path for path in paths if path.suffix.lower() in FEATURE_SUFFIXES and not path.is_dir()]
    if not preprocess.takes_vectors:
        if files:
            raise HoldfastError(f"{files[0]}: a file of vectors, but the model takes images")
        return _ImageItems(preprocess, find_images(paths), pool)
    if len(paths) > 1 or not files:
        width = preprocess.channels
        raise HoldfastError(f"the model takes vectors of {width} numbers; give one npz, npy or parquet file of them")
    found = read_features(files[0], "gallery")
    if found.dim != preprocess.channels:
        raise HoldfastError(f"{found.name}: vectors of {found.dim} numbers, but the model takes {preprocess.channels}")
    return _VectorItems(preprocess, found)


def _refusal(ids: np.ndarray, problems: dict[int, str]) -> HoldfastError:
    """One error that names every item that cannot be embedded, up to ``NAMED_PROBLEMS``."""
    rows = sorted(problems)
    first = problems[rows[0]]
    if len(rows) == 1 and len(ids) > 1:
        return HoldfastError(f"{first}; replace it, or skip what cannot be read (--skip-unreadable)")
    others = first_few([str(ids[row]) for row in rows[1:]], NAMED_PROBLEMS - 1)
    which = f"{len(rows):,} of {counted(len(ids), 'item')} cannot be embedded"
    advice = "replace them, or skip what cannot be read (--skip-unreadable)" if len(rows) < len(ids) else "replace them"
    return HoldfastError(f"{which}; {advice}: {first}{f'; {others}' if others else ''}")


class _Items(Protocol):
    """What is embedded: ids, labels (None without them), and a reader of consecutive batches."""

    ids: np.ndarray
    labels: np.ndarray | None

    def read(self, rows: slice, following: slice) -> tuple[Tensor, dict[int, str]]:
        """The network's input for these rows, and by row number why an item cannot be read; its input is any number.

        following: the rows of the next call.
        """

    def problems_from(self, start: int) -> Iterator[tuple[int, str]]:
        """Row number and reason of each item from ``start`` on that cannot be read."""


class _ImageItems:
    """Image files. A thread pool decodes the next batch while the network works on this one."""

    def __init__(self, preprocess: Input, found: ImageSource, pool: ThreadPoolExecutor) -> None:
        self.ids = np.array(found.ids)
        self.labels = None if found.labels is None else np.array(found.labels)
        self._preprocess, self._files, self._pool = preprocess, found.files, pool
        self._ahead: tuple[slice, Iterator[Tensor | str]] | None = None

    def read(self, rows: slice, following: slice) -> tuple[Tensor, dict[int, str]]:
        opened = self._ahead[1] if self._ahead is not None and self._ahead[0] == rows else self._open(rows)
        self._ahead = following, self._open(following)
        blank = torch.zeros(1, *self._preprocess.input_shape, dtype=torch.uint8)
        images, problems = [], {}
        for row, image in enumerate(opened, start=rows.start):
            if isinstance(image, str):
                problems[row] = image
            images.append(blank if isinstance(image, str) else image)
        return torch.cat(images), problems

    def problems_from(self, start: int) -> Iterator[tuple[int, str]]:
        for row, image in enumerate(self._open(slice(start, len(self._files))), start=start):
            if isinstance(image, str):
                yield row, image

    def _open(self, rows: slice) -> Iterator[Tensor | str]:
        return self._pool.map(self._one, self._files[rows])

    def _one(self, file: Path) -> Tensor | str:
        """The image, 1 x C x H x W, or the reason why it cannot be read."""
        try:
            return self._preprocess.stack([file])
        except HoldfastError as error:
            return str(error)


class _VectorItems:
    """Rows of a file."""

    def __init__(self, preprocess: Input, found: FeatureSet) -> None:
        self.ids, self.labels = found.names(), found.labels
        self._preprocess, self._name, self._rows = preprocess, found.name, found.rows

    def read(self, rows: slice, following: slice) -> tuple[Tensor, dict[int, str]]:
        with np.errstate(over="ignore"):
            block = self._rows.block(rows.start, rows.stop).astype(np.float32)
        usable = np.isfinite(block).all(axis=1) & (block != 0).any(axis=1)
        bad = np.flatnonzero(~usable)
        problems = {rows.start + int(row): f"{self._name}, row {rows.start + row}: not finite, or zero" for row in bad}
        return self._preprocess.stack(np.where(usable[:, None], block, np.float32(1))), problems

    def problems_from(self, start: int) -> Iterator[tuple[int, str]]:
        step = 8192
        for begin in range(start, len(self.ids), step):
            yield from self.read(slice(begin, min(begin + step, len(self.ids))), slice(0))[1].items()

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
from holdfast.data.problems import SKIP_ADVICE, Problem, problems_error, write_problems
from holdfast.encoders import Encoder, Input
from holdfast.encoders.encode_loop import batch_size_for, compute_features
from holdfast.encoders.encoder import CONFIG_FILE
from holdfast.errors import HoldfastError
from holdfast.evaluation.feature_files import FEATURE_SUFFIXES, read_features
from holdfast.evaluation.feature_set import FeatureSet, feature_set
from holdfast.geometry import unit
from holdfast.storage import read_json
from holdfast.wording import first_few, printable

PathLike = str | Path


@dataclass(frozen=True)
class Embedded:
    """What ``embed`` returns.

    features: unit vectors with their ids and, if known, labels.
    skipped: what could not be embedded.
    """

    features: FeatureSet
    skipped: list[Problem]


def embed(
    model: Encoder | PathLike,
    source: PathLike | Sequence[PathLike] | ImageSource,
    *,
    labels: bool = True,
    skip_unreadable: bool = False,
    problem_list: PathLike | None = None,
    device: torch.device | str = "cpu",
    batch_size: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Embedded:
    """Unit features of images or vectors, float32, with ids and labels.

    model: an encoder, or the folder of a saved one. The name of the model is the hash of its weights.
    source: for a model that takes images: a folder, image files, several of these, a CSV file with the columns
        ``path`` and perhaps ``label`` and ``id``, or an ``ImageSource`` (``holdfast.data.image_source``). An id is the
        path below the folder, or the name of a file.
        For a model that takes vectors: an npz, npy or parquet file as ``check`` reads it; without ids in it, ids are
        row numbers.
    labels: keep the labels of the table or file; of a folder that holds class folders only, their names. False
        leaves all labels out.
    skip_unreadable: leave out what cannot be read or embedded. Otherwise one error names all of it.
    problem_list: a CSV file that gets all of it, with reasons; None writes no file.
    device: where the model runs; an encoder is moved there and stays there.
    batch_size: items at a time; None chooses it by device and size of an image.
    progress: called with the number of items done and the number of all.
    """
    encoder, name = _opened(model, device)
    assert encoder.preprocess is not None
    if batch_size is not None and batch_size < 1:
        raise HoldfastError(f"embed: batch_size must be at least 1, got {batch_size}")
    paths = _paths(source)
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        items = _opened_items(encoder.preprocess, source if isinstance(source, ImageSource) else paths, pool)
        problems = _Problems(items, paths[0], skip_unreadable, None if problem_list is None else Path(problem_list))
        vectors = _features(encoder, items, problems, torch.device(device), batch_size, progress)
    for row in np.flatnonzero(~(np.isfinite(vectors).all(axis=1) & (vectors != 0).any(axis=1))):
        problems.add({int(row): "the model gives a zero vector, NaN or infinity"})
    problems.finish()
    kept = np.array([row not in problems.by_row for row in range(len(items.ids))])
    known = items.labels if labels else None
    found = feature_set(
        first_few([str(path) for path in paths]), vectors[kept], None if known is None else known[kept], items.ids[kept]
    )
    return Embedded(replace(found, model=name), problems.all())


def _paths(source: PathLike | Sequence[PathLike] | ImageSource) -> list[Path]:
    if isinstance(source, ImageSource):
        found = list(source.files)
    else:
        found = [Path(source)] if isinstance(source, str | Path) else [Path(one) for one in source]
    if not found:
        raise HoldfastError("embed: no source; give a folder, files or a table")
    return found


def _features(
    encoder: Encoder,
    items: "_Items",
    problems: "_Problems",
    device: torch.device,
    batch_size: int | None,
    progress: Callable[[int, int], None],
) -> np.ndarray:
    """Unit features of all items; of an item that cannot be read, any numbers."""
    preprocess = encoder.preprocess
    assert preprocess is not None
    count = len(items.ids)
    size = batch_size or batch_size_for(device, preprocess.input_shape)

    def read(rows: slice) -> Tensor:
        stacked, found = items.read(rows, slice(rows.stop, min(rows.stop + size, count)))
        problems.add(found)
        if not problems.skip and problems.all():  # the others are looked at too, so that one error names all
            problems.add(dict(items.problems_from(rows.stop)))
            problems.finish()
        return preprocess.normalise(stacked.to(device))

    if not count:
        problems.finish()
    features = compute_features(
        encoder.embedding_network,
        count,
        read,
        device=device,
        batch_size=size,
        finish=unit,
        collect_on=torch.device("cpu"),
        progress=lambda done: progress(done, count),
    )
    return features.numpy()


class _Problems:
    """What cannot be embedded, by row; an error or a list at the end."""

    def __init__(self, items: "_Items", source: Path, skip: bool, listed: Path | None) -> None:
        self._items, self._source, self._list = items, source, listed
        self.skip = skip
        self.by_row: dict[int, str] = {}

    def add(self, found: dict[int, str]) -> None:
        self.by_row = {**found, **self.by_row}  # the first reason of a row counts

    def all(self) -> list[Problem]:
        return [*self._items.unusable, *(self._items.problem(row, self.by_row[row]) for row in sorted(self.by_row))]

    def finish(self) -> None:
        """Write the list; then refuse the source, unless problems may be skipped and something is left."""
        found = self.all()
        if self._list is not None:
            write_problems(self._list, found)
        left = len(self._items.ids) - len(self.by_row)
        if found and (not self.skip or not left):
            count = len(self._items.ids) + len(self._items.unusable)
            advice = SKIP_ADVICE if left and not self.skip else ""
            raise problems_error(self._source, found, count, listed=self._list, advice=advice, noun=self._items.noun)


def _opened(model: Encoder | PathLike, device: torch.device | str) -> tuple[Encoder, str | None]:
    """The encoder on the device, and the hash of its weights (None without weights or without a folder)."""
    encoder = model.to(device) if isinstance(model, Encoder) else Encoder.from_pretrained(model, device=device)
    if encoder.preprocess is None:
        where = "the encoder" if isinstance(model, Encoder) else str(model)
        raise HoldfastError(f"{where}: has no preprocess, so it cannot embed images or vectors; save it with one")
    if isinstance(model, Encoder) or not encoder.state_dict():
        return encoder, None
    return encoder, read_json(Path(model) / CONFIG_FILE)["weights_sha256"]


def _opened_items(preprocess: Input, source: Sequence[Path] | ImageSource, pool: ThreadPoolExecutor) -> "_Items":
    paths = source.files if isinstance(source, ImageSource) else source
    files = [path for path in paths if path.suffix.lower() in FEATURE_SUFFIXES and not path.is_dir()]
    if not preprocess.takes_vectors:
        if files:
            raise HoldfastError(f"{files[0]}: a file of vectors, but the model takes images")
        return _ImageItems(preprocess, source if isinstance(source, ImageSource) else find_images(source), pool)
    if len(paths) > 1 or not files:
        width = preprocess.channels
        raise HoldfastError(f"the model takes vectors of {width} numbers; give one npz, npy or parquet file of them")
    found = read_features(files[0], "gallery")
    if found.dim != preprocess.channels:
        raise HoldfastError(f"{found.name}: vectors of {found.dim} numbers, but the model takes {preprocess.channels}")
    return _VectorItems(preprocess, found)


class _Items(Protocol):
    """What is embedded: ids, labels (None without them), and a reader of consecutive batches.

    unusable: what was refused before anything was read; it has no id.
    noun: what an item is called in messages.
    """

    noun: str
    ids: np.ndarray
    labels: np.ndarray | None
    unusable: Sequence[Problem]

    def problem(self, row: int, reason: str) -> Problem:
        """The problem of one row."""

    def read(self, rows: slice, following: slice) -> tuple[Tensor, dict[int, str]]:
        """The network's input for these rows, and by row number why an item cannot be read; its input is any number.

        following: the rows of the next call.
        """

    def problems_from(self, start: int) -> Iterator[tuple[int, str]]:
        """Row number and reason of each item from ``start`` on that cannot be read."""


class _ImageItems:
    """Image files. A thread pool decodes the next batch while the network works on this one."""

    noun = "file"

    def __init__(self, preprocess: Input, found: ImageSource, pool: ThreadPoolExecutor) -> None:
        self.ids = np.array(found.ids)
        self.labels = None if found.labels is None else np.array(found.labels)
        self.unusable: Sequence[Problem] = found.problems
        self._preprocess, self._files, self._pool = preprocess, found.files, pool
        self._ahead: tuple[slice, Iterator[Tensor | str]] | None = None

    def problem(self, row: int, reason: str) -> Problem:
        return Problem(self._files[row], reason)

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
            return str(error).removeprefix(f"{printable(file)}: ")


class _VectorItems:
    """Rows of a file."""

    noun = "vector"

    def __init__(self, preprocess: Input, found: FeatureSet) -> None:
        self.ids, self.labels = found.names(), found.labels
        self.unusable: Sequence[Problem] = ()
        self._preprocess, self._name, self._rows = preprocess, found.name, found.rows

    def problem(self, row: int, reason: str) -> Problem:
        return Problem(Path(self._name), f"row {row}, id {self.ids[row]}: {reason}")

    def read(self, rows: slice, following: slice) -> tuple[Tensor, dict[int, str]]:
        with np.errstate(over="ignore"):
            block = self._rows.block(rows.start, rows.stop).astype(np.float32)
        usable = np.isfinite(block).all(axis=1) & (block != 0).any(axis=1)
        bad = np.flatnonzero(~usable)
        problems = {rows.start + int(row): "not finite, or zero" for row in bad}
        return self._preprocess.stack(np.where(usable[:, None], block, np.float32(1))), problems

    def problems_from(self, start: int) -> Iterator[tuple[int, str]]:
        step = 8192
        for begin in range(start, len(self.ids), step):
            yield from self.read(slice(begin, min(begin + step, len(self.ids))), slice(0))[1].items()

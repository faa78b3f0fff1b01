"""Decode many image files into one array, with progress reports."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.problems import Problem, problems_error
from holdfast.core.wording import printable
from holdfast.embedders.pixels import Colour, check_image, open_image, resize_and_crop

FILES_PER_TASK = 64
"""Files per task of the thread pool: with one file per task, scheduling would cost as much as decoding small files."""


def decode(
    files: Sequence[Path],
    *,
    size: int,
    colour: Colour,
    resize: int | None = None,
    origins: Sequence[str] | None = None,
    into: np.ndarray | None = None,
    name: str = "images",
) -> np.ndarray:
    """Decode image files to uint8, N x size x size x C, in threads (Pillow's decoders release the GIL).

    size: side of the square that is cropped from the centre, in pixels.
    colour: "rgb" (C = 3) or "grey" (C = 1).
    resize: length of the shorter side before the crop; None is ``size``.
    origins: where each file was named (file and line), for errors.
    into: array to fill; None makes a new one.
    name: name of the set, for errors and progress reports.

    Every file is tried. One error says which files cannot be read, and why.
    """
    if size < 1:
        raise HoldfastError(f"size must be at least 1, got {size}")
    if resize is not None and resize < size:
        raise HoldfastError(f"resize must be at least the size of {size}, got {resize}")
    if colour not in ("rgb", "grey"):
        raise HoldfastError(f"colour must be rgb or grey, got {colour!r}")
    shape = (len(files), size, size, 3 if colour == "rgb" else 1)
    images = np.empty(shape, np.uint8) if into is None else into

    def fill(index: int) -> None:
        image = resize_and_crop(open_image(files[index], colour=colour), size, resize=resize)
        images[index] = np.asarray(image).reshape(size, size, -1)

    bad = _in_threads(fill, len(files), name)
    if bad:
        advice = f"; remove or replace {'it' if len(bad) == 1 else 'them'}"
        raise problems_error(name, _problems(bad, files, origins), len(files), advice=advice)
    return images


def unreadable(files: Sequence[Path], *, name: str) -> list[Problem]:
    """The files that cannot be decoded, each with the reason, in the given order. Every file is decoded once.

    name: what the files are, for progress reports.
    """
    return _problems(_in_threads(lambda index: check_image(files[index]), len(files), name), files)


def _in_threads(work: Callable[[int], None], count: int, name: str) -> list[tuple[int, HoldfastError]]:
    """Call ``work`` with 0 to ``count`` - 1 in threads; the errors it raised, with their numbers, sorted."""
    bad: list[tuple[int, HoldfastError]] = []

    def some(start: int) -> None:
        for index in range(start, min(start + FILES_PER_TASK, count)):
            try:
                work(index)
            except HoldfastError as error:
                bad.append((index, error))

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        try:
            starts = range(0, count, FILES_PER_TASK)
            _report(name, 0, count)
            for start, _ in zip(starts, pool.map(some, starts)):
                _report(name, min(start + FILES_PER_TASK, count), count)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return sorted(bad, key=lambda one: one[0])


def _problems(
    bad: Sequence[tuple[int, HoldfastError]], files: Sequence[Path], origins: Sequence[str] | None = None
) -> list[Problem]:
    return [
        Problem(
            files[row],
            str(error).removeprefix(f"{printable(files[row])}: "),
            "" if origins is None else origins[row],
        )
        for row, error in bad
    ]


DecodeProgress = Callable[[str, int, int], None]
"""Called with the name of a set, the number of images decoded so far (first 0), and their total number."""

# Not an argument of the readers: their arguments are the options of a dataset in a recipe.
_callback: ContextVar[DecodeProgress | None] = ContextVar("decode_progress", default=None)


@contextmanager
def report_decoding(callback: DecodeProgress | None) -> Iterator[None]:
    """Call ``callback`` with the progress of everything that this thread decodes in the block."""
    token = _callback.set(callback)
    try:
        yield
    finally:
        _callback.reset(token)


def _report(name: str, done: int, total: int) -> None:
    callback = _callback.get()
    if callback is not None:
        callback(name, done, total)

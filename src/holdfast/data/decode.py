"""Many image files decoded into one array.

Who is told how far decoding is: a set of many pictures takes minutes, in which nothing else would be seen.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.pixels import Colour, open_image, resize_and_crop

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"})


_NAMED = 20
AT_A_TIME = 64
"""Files a thread takes at once: one by one, handing out a million small files would cost as much as decoding them."""


def decode(
    files: Sequence[Path],
    *,
    size: int,
    colour: Colour,
    resize: int | None = None,
    origins: Sequence[str] | None = None,
    into: np.ndarray | None = None,
    name: str = "pictures",
) -> np.ndarray:
    """Decode to uint8, N x size x size x C: the shorter side scaled to ``size`` (or ``resize``), the centre cut out.

    Every file is tried, and all that cannot be read are named in one error. ``origins`` says where each file was
    named, for that error; ``into`` is an array to fill; ``name`` is what the set is called while it is decoded. Threads
    are enough: Pillow's decoders let go of the interpreter lock.
    """
    if size < 1:
        raise HoldfastError(f"size must be at least 1, got {size}")
    if resize is not None and resize < size:
        raise HoldfastError(f"resize must be at least the size of {size}, got {resize}")
    if colour not in ("rgb", "grey"):
        raise HoldfastError(f"colour must be rgb or grey, got {colour!r}")
    shape = (len(files), size, size, 3 if colour == "rgb" else 1)
    images = np.empty(shape, np.uint8) if into is None else into
    bad: list[tuple[int, HoldfastError]] = []

    def fill(start: int) -> None:
        for index in range(start, min(start + AT_A_TIME, len(files))):
            try:
                image = resize_and_crop(open_image(files[index], colour=colour), size, resize=resize)
            except HoldfastError as error:
                bad.append((index, error))
                continue
            images[index] = np.asarray(image).reshape(size, size, -1)

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        try:
            starts = range(0, len(files), AT_A_TIME)
            tell(name, 0, len(files))
            for start, _ in zip(starts, pool.map(fill, starts)):
                tell(name, min(start + AT_A_TIME, len(files)), len(files))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if bad:
        raise _unreadable(sorted(bad, key=lambda one: one[0]), files, origins)
    return images


def _unreadable(
    bad: list[tuple[int, HoldfastError]], files: Sequence[Path], origins: Sequence[str] | None
) -> HoldfastError:
    """All of them in one line: who has a few broken files among many should not meet them one by one."""
    index, error = bad[0]
    where = "" if origins is None else f"{origins[index]}: "
    if len(bad) == 1:
        return HoldfastError(f"{where}{error}; remove or replace it")
    others = ", ".join(str(files[index]) for index, _ in bad[1:_NAMED])
    more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
    counted = f"{len(bad)} of {len(files)} files cannot be read; remove or replace them"
    return HoldfastError(f"{counted}: {where}{error}; {others}{more}")


Told = Callable[[str, int, int], None]
"""Called with the name of a set, how many of its images are decoded, and of how many; the first time with 0."""

# Not an option of the readers: their keyword options are what a recipe may say of a set.
_TOLD: ContextVar[Told | None] = ContextVar("told", default=None)


@contextmanager
def telling(told: Told | None) -> Iterator[None]:
    """Tell ``told`` of what this thread decodes within the block."""
    before = _TOLD.set(told)
    try:
        yield
    finally:
        _TOLD.reset(before)


def tell(name: str, done: int, total: int) -> None:
    told = _TOLD.get()
    if told is not None:
        told(name, done, total)

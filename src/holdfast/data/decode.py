"""Many image files decoded into one array."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.pixels import Colour, open_image, resize_and_crop

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"})


def decode(files: Sequence[Path], *, size: int, colour: Colour, origins: Sequence[str] | None = None) -> np.ndarray:
    """Decode to uint8, N x size x size x C: the shorter side scaled to ``size``, the centre cut out.

    ``origins`` says where each file was named, for the error about it. Threads are enough: Pillow's decoders let go
    of the interpreter lock.
    """
    if size < 1:
        raise HoldfastError(f"size must be at least 1, got {size}")
    if colour not in ("rgb", "grey"):
        raise HoldfastError(f"colour must be rgb or grey, got {colour!r}")
    images = np.empty((len(files), size, size, 3 if colour == "rgb" else 1), np.uint8)

    def fill(index: int) -> None:
        try:
            image = resize_and_crop(open_image(files[index], colour=colour), size)
        except HoldfastError as error:
            if origins is None:
                raise
            raise HoldfastError(f"{origins[index]}: {error}") from error
        images[index] = np.asarray(image).reshape(size, size, -1)

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        for _ in pool.map(fill, range(len(files))):
            pass
    return images

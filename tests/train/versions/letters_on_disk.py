"""Drawn characters written to disk as a user's folders of PNG files, and the recipe of the tiny network."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from holdfast.train.data import ImageSet

SIZE = 16

RECIPE = """
seed = 3

[backbone]
name = "small"
width = 8

[method]
name = "simplex_hoc"
slots = 12
lambda = 0.3

[train]
epochs = 2
batch_size = 8
lr = 0.05
crop_padding = 1
flip = false

[preprocess]
mean = [0.4]
std = [0.3]
"""

OWN = f"""
[data]
size = {SIZE}
colour = "grey"

[buffer]
per_class = 3

[held_out]
share = 0.5
"""


def write_folder(images: ImageSet, labels: Iterable[int], folder: Path) -> Path:
    """One folder per class, called by its number; the files' names say nothing of their order."""
    for label in labels:
        where = folder / f"{label:02d}"
        where.mkdir(parents=True)
        rows = [row for row in range(len(images)) if images.labels[row] == label]
        for row in rows:
            Image.fromarray(images.images[row, ..., 0]).save(where / f"{(row * 7919) % 10007}.png")
    return folder


def rolled(images: ImageSet, classes: int, folder: Path) -> Path:
    """So many classes of two images each that no other folder has."""
    for number in range(classes):
        where = folder / f"rolled {number}"
        where.mkdir(parents=True)
        for row in (2 * number, 2 * number + 1):
            Image.fromarray(np.roll(images.images[row, ..., 0], 5)).save(where / f"{row}.png")
    return folder

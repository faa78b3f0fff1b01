"""One tiny experiment that every layer above the loop is tested with."""

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

# Before torch is imported: on images this small, threads that wait for each other cost ten times what they save as soon
# as another process wants the cores too.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before any kernel is imported: they run on the CPU then

TINY_RECIPE = """
title = "tiny"
seed = 0

[data.train]
name = "glyphs"
split = "train"
size = 16
train_classes = 6
test_classes = 3
per_class_train = 8

[data.query]
name = "glyphs"
split = "query"
size = 16
test_classes = 3
per_class_query = 4

[data.gallery]
name = "glyphs"
split = "gallery"
size = 16
test_classes = 3
per_class_gallery = 4

[scenario]
name = "cl2r"
initial = 2
tasks = 3
buffer_per_class = 2

[backbone]
name = "small"
width = 8

[method]
name = "simplex_hoc"
lambda = 0.3

[methods.simplex_fd]
base = 2.0

[train]
epochs = 2
batch_size = 8
lr = 0.05
crop_padding = 1
flip = false
"""


@pytest.fixture
def tiny_tables() -> dict[str, Any]:
    """The tiny recipe as read, a fresh copy that a test may change."""
    return tomllib.loads(TINY_RECIPE)


@pytest.fixture(scope="session")
def tiny_recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny recipe as a file: six drawn characters of 16 x 16, three tasks, two epochs, a second to run."""
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    path.write_text(TINY_RECIPE)
    return path


@pytest.fixture(scope="session")
def tiny_run(tiny_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one finished run of the tiny recipe, to be read; a test that changes it takes a copy."""
    from holdfast.recipes.execute import execute
    from holdfast.recipes.load import read_recipe
    from holdfast.recipes.schema import check_recipe
    from holdfast.run_folder import RunFolder

    folder = tmp_path_factory.mktemp("runs") / "tiny"
    execute(check_recipe(read_recipe(str(tiny_recipe))), RunFolder(folder), device="cpu")
    return folder

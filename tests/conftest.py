"""One tiny experiment that every layer above the loop is tested with."""

import logging
import os
import tomllib
from collections.abc import ValuesView
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# Before torch is imported: on images this small, threads that wait for each other cost ten times what they save as soon
# as another process wants the cores too.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before any kernel is imported: they run on the CPU then


# A busy machine makes an example slow; that is not a defect of the code under test.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


class CopiedValues(dict[str, Any]):
    """A dict that can grow while its values are read."""

    def values(self) -> ValuesView[Any]:
        return dict(self).values()


# Before each test pytest reads the table of loggers, to which a service's thread may add one by an import.
logging.root.manager.loggerDict = CopiedValues(logging.root.manager.loggerDict)


@pytest.fixture(autouse=True)
def same_numbers_every_time():
    """What a test draws does not depend on those before it, which are others in every worker and every run."""
    torch.manual_seed(0)


@pytest.fixture
def two_threads():
    """Torch has two threads, and not the one of the other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


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
    from holdfast.core.run_folder import RunFolder
    from holdfast.train.experiments.execute import execute
    from holdfast.train.experiments.load import read_recipe
    from holdfast.train.experiments.schema import check_recipe

    folder = tmp_path_factory.mktemp("runs") / "tiny"
    execute(check_recipe(read_recipe(str(tiny_recipe))), RunFolder(folder), device="cpu")
    return folder


PRETRAIN_RECIPE = """
title = "tiny pre-training"

[data]
name = "glyphs"
split = "train"
size = 16
train_classes = 4
test_classes = 3
per_class_train = 8

[backbone]
name = "small"
width = 8

[method]
name = "simplex_hoc"
slots = 20

[train]
epochs = 1
batch_size = 8
lr = 0.05
schedule = "cosine"
crop_padding = 1
flip = false
"""


@pytest.fixture(scope="session")
def pretrain_recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe that pre-trains a tiny model on four drawn characters into 20 slots, in a moment."""
    path = tmp_path_factory.mktemp("pretrain") / "tiny-pretrain.toml"
    path.write_text('namespace = "letters"\n' + PRETRAIN_RECIPE)
    return path


@pytest.fixture(scope="session")
def toy_models(pretrain_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models folder: ``four`` and ``eight`` (the same network on more classes) and ``wide`` (another one), each as
    ``-simplex`` and as ``-learnable``."""
    from holdfast.core.run_folder import RunFolder
    from holdfast.train.experiments.load import read_recipe
    from holdfast.train.experiments.pretrain import check_pretrain_recipe, pretrain

    folder = tmp_path_factory.mktemp("models")
    for head, method in (("simplex", []), ("learnable", ["method.name=er"])):
        for name, own in (("four", []), ("eight", ["data.train_classes=8"]), ("wide", ["backbone.width=10"])):
            recipe = check_pretrain_recipe(read_recipe(str(pretrain_recipe), [*method, *own]))
            pretrain(recipe, RunFolder(folder / f"{name}-{head}"), device="cpu")
    return folder


@pytest.fixture
def iam_tables(tiny_tables: dict[str, Any]) -> dict[str, Any]:
    """The tiny recipe as IAM-CL2R: three tasks from ``four``, replaced by ``eight`` at the second."""
    del tiny_tables["backbone"]
    tiny_tables["scenario"] |= {
        "name": "iam_cl2r",
        "model": "four-{head}",
        "replace_at": [2],
        "replace_with": ["eight-{head}"],
    }
    tiny_tables["method"]["slots"] = 20
    tiny_tables["methods"]["simplex_fd"]["slots"] = 20
    tiny_tables["methods"]["simplex_hoc_views"] = {"slots": 20}
    return tiny_tables

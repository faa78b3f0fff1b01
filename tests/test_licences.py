"""docs/licences.md: every package that an installation may bring, and every data set that is read, is in it."""

import re
import tomllib
from pathlib import Path

import pytest

from holdfast.train.data import DATASETS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {name: asked for name, asked in PROJECT["optional-dependencies"].items() if name != "dev"}
PACKAGES = {
    re.match(r"[\w-]+", asked).group()
    for asked in [*PROJECT["dependencies"], *(one for asked in EXTRAS.values() for one in asked)]
} - {"holdfast-index"}
SETS = {"cub180": "CUB-200-2011", "cub20": "CUB-200-2011", "casia_webface": "CASIA-WebFace", "celeba": "CelebA"}
SETS |= {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "mnist": "MNIST", "imagenet32": "ImageNet32"}


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_a_package_is_named(package):
    table = PAGE[PAGE.index("## Software") : PAGE.index("## Faces")]
    assert re.search(rf"(\| |, ){re.escape(package)}(,| \|)", table)


@pytest.mark.parametrize("name", sorted(name for name, dataset in DATASETS.items() if dataset.files))
def test_a_data_set_is_named(name):
    table = PAGE[PAGE.index("## Data sets") : PAGE.index("## Software")]
    assert SETS.get(name, "TinyImageNet") in table


def test_every_row_says_how_it_is_known():
    rows = re.findall(
        r"^\| (?!set|---)(.+) \|$", PAGE[PAGE.index("## Data sets") : PAGE.index("## Software")], re.MULTILINE
    )
    assert len(rows) == 8
    assert all(len(row.split(" | ")) == 3 for row in rows)

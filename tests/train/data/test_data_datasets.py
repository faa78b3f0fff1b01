"""The table of datasets: every set with files of its own names them, and the page about data lists them."""

from pathlib import Path

import pytest

from holdfast.train.data import DATASETS

DOCS = Path(__file__).parents[3] / "docs" / "data.md"
WITH_FILES = sorted(name for name, dataset in DATASETS.items() if dataset.files)


def test_every_dataset_with_files_of_its_own_names_them():
    assert set(WITH_FILES) == set(DATASETS) - {"glyphs", "npz", "folder", "csv", "vectors"}


@pytest.mark.parametrize("name", WITH_FILES)
def test_the_page_names_every_set_and_file(name):
    text = DOCS.read_text(encoding="utf-8")
    assert name in text
    assert all(file.removesuffix("ubyte.gz") in text for file in DATASETS[name].files)


def test_find(tmp_path):
    dataset = DATASETS["tinyimagenet32"]
    assert dataset.find(tmp_path) is None
    (tmp_path / "tiny-imagenet-200").mkdir()
    assert dataset.find(tmp_path) == tmp_path / "tiny-imagenet-200"
    (tmp_path / "tinyimagenet32.npz").touch()
    assert dataset.find(tmp_path) == tmp_path / "tinyimagenet32.npz"

"""Every set that is read from files has a place, and the page about data says so."""

from pathlib import Path

import pytest

from holdfast.data import DATASETS
from holdfast.data.dataset_files import PLACES, found

DOCS = Path(__file__).parents[2] / "docs" / "data.md"


def test_every_dataset_with_files_of_its_own_has_a_place():
    assert set(PLACES) == set(DATASETS) - {"glyphs", "npz", "folder", "csv", "vectors"}


@pytest.mark.parametrize("name", PLACES)
def test_the_page_names_every_set_and_place(name):
    text = DOCS.read_text(encoding="utf-8")
    assert name in text
    assert all(place.removesuffix("ubyte.gz") in text for place in PLACES[name])


def test_found(tmp_path):
    assert found(tmp_path, "tinyimagenet32") is None
    (tmp_path / "tiny-imagenet-200").mkdir()
    assert found(tmp_path, "tinyimagenet32") == tmp_path / "tiny-imagenet-200"
    (tmp_path / "tinyimagenet32.npz").touch()
    assert found(tmp_path, "tinyimagenet32") == tmp_path / "tinyimagenet32.npz"


@pytest.mark.parametrize("place", PLACES["mnist"])
def test_mnist_is_found_in_every_form_it_is_read_in(place, tmp_path):
    (tmp_path / place).touch()
    assert found(tmp_path, "mnist") == tmp_path / place

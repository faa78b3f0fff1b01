"""A user's folders of images, and the recipe of a tiny network."""

from pathlib import Path

import pytest
from letters_on_disk import OWN, RECIPE, SIZE, write_folder

from holdfast.data import ImageSet, load_split


@pytest.fixture(scope="session")
def letters() -> ImageSet:
    return load_split("glyphs", "train", size=SIZE, train_classes=9, test_classes=3, per_class_train=8)


@pytest.fixture(scope="session")
def photos(letters: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``all`` nine classes, and the same as four deliveries ``1`` to ``4`` of three and then two classes each."""
    top = tmp_path_factory.mktemp("photos")
    write_folder(letters, range(9), top / "all")
    for number, labels in enumerate([(0, 1, 2), (3, 4), (5, 6), (7, 8)], start=1):
        write_folder(letters, labels, top / str(number))
    for split in ("query", "gallery"):
        tested = load_split("glyphs", split, size=SIZE, test_classes=3, per_class_query=6, per_class_gallery=6)
        write_folder(tested, range(3), top / split / "train")
    return top


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "own.toml"
    path.write_text(RECIPE + OWN)
    return path

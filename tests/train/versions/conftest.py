"""A user's folders of images, and the recipe of a tiny network."""

from pathlib import Path

import pytest
from letters_on_disk import OWN, RECIPE, SIZE, write_folder

from holdfast.train.data import ImageSet, load_split
from holdfast.train.versions import start, update


@pytest.fixture(scope="session")
def letters() -> ImageSet:
    return load_split("glyphs", "train", size=SIZE, train_classes=9, test_classes=3, per_class_train=12)


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


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipes") / "own.toml"
    path.write_text(RECIPE + OWN)
    return path


@pytest.fixture(scope="session")
def first(photos: Path, recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1, to be read; a test that changes it takes a copy."""
    folder = tmp_path_factory.mktemp("models") / "1"
    start(photos / "1", folder, settings=recipe, device="cpu")
    return folder


@pytest.fixture(scope="session")
def second(first: Path, photos: Path) -> Path:
    """Version 2, to be read."""
    folder = first.parent / "2"
    update(first, photos / "2", folder, device="cpu")
    return folder

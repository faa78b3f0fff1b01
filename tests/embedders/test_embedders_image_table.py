"""Which images are embedded, under which ids and with which classes."""

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.embedders.image_table import classes_of_paths
from holdfast.embedders.model_inputs import ImagesInput
from holdfast.embedders.sources import open_source

TAKEN = ImagesInput(8, (0.5,), (0.5,), colour="grey")


@pytest.fixture
def photos(tmp_path):
    for name in ("b/2.jpg", "a/1.png", "a/deep/3.jpg", "a/notes.txt", "b/.hidden.png"):
        file = tmp_path / "photos" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
    return tmp_path / "photos"


def test_a_folder_of_class_folders(photos):
    found = open_source(TAKEN, [photos])
    assert tuple(found.ids) == ("a/1.png", "a/deep/3.jpg", "b/2.jpg")
    assert list(found.items.places) == [str(photos / name) for name in found.ids]
    assert found.labels == ("a", "a", "b")


def test_an_image_outside_the_class_folders_leaves_all_without_labels(photos):
    (photos / "loose.jpg").write_bytes(b"")
    assert open_source(TAKEN, [photos]).labels is None


def test_files_have_their_names_as_ids(photos):
    found = open_source(TAKEN, [photos / "b/2.jpg", photos / "a"])
    assert tuple(found.ids) == ("2.jpg", "1.png", "deep/3.jpg")
    assert found.labels is None


@pytest.mark.parametrize(
    ("paths", "classes"),
    [
        (["train/cat/1.jpg", "test/dog/2.jpg"], ("cat", "dog")),
        (["train/1.jpg", "car/2.jpg"], ("train", "car")),  # a class of vehicles
        (["train/1.jpg", "test/2.jpg"], None),
        (["cat/1.jpg", "2.jpg"], None),
    ],
)
def test_folders_of_splits_are_not_classes(paths, classes):
    assert classes_of_paths(paths) == classes


def test_a_table_names_paths_labels_and_ids(photos):
    table = photos.parent / "list.csv"
    table.write_text("id,path,label\nx,photos/b/2.jpg,dog\ny,photos/a/1.png,cat\n")
    found = open_source(TAKEN, [table])
    assert tuple(found.ids) == ("x", "y")
    assert list(found.items.places) == [str(photos / "b/2.jpg"), str(photos / "a/1.png")]
    assert found.labels == ("dog", "cat")
    table.write_text("path\nphotos/b/2.jpg\n")
    assert tuple(open_source(TAKEN, [table]).ids) == ("photos/b/2.jpg",)
    assert open_source(TAKEN, [table]).labels is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label\na\n", "line 1: the header must be path"),
        ("path,colour\na,b\n", "unknown column .* 'colour'; known: id, label, path, split"),
        ("path,label\na.jpg\n", "line 2: 2 columns expected, found 1"),
        ("path,label\na.jpg,\n", "line 2: an empty field"),
        ("path\n", "no rows after the header"),
        ("path,id\na.jpg,1\nb.jpg,1\n", "both have the id '1'"),
    ],
)
def test_a_bad_table_is_refused(tmp_path, text, message):
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(HoldfastError, match=message):
        open_source(TAKEN, [tmp_path / "list.csv"])


def test_what_holds_no_images_is_refused(photos, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(HoldfastError, match="no images there"):
        open_source(TAKEN, [tmp_path / "empty"])
    (problem,) = open_source(TAKEN, [photos, tmp_path / "none.jpg"]).problems
    assert (problem.path, problem.reason) == (tmp_path / "none.jpg", "no such image file")
    (photos / "b/1.png").write_bytes(b"")
    with pytest.raises(HoldfastError, match=r"both have the id '1\.png'"):
        open_source(TAKEN, [photos / "a", photos / "b"])

"""CUB-200-2011 by its text files."""

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.data import load_split, open_set
from made_up_sets import cub
from papers.readers.cub import NAMES_20


def test_engine_classes_and_open_set(tmp_path):
    cub(tmp_path, (1, 7, 180, 181, 200), per_class=5)
    train = load_split("cub180", "train", tmp_path, incomplete=True)
    assert train.images.shape == (6, 256, 256, 3)
    assert train.num_classes == 180
    assert np.unique(train.labels).tolist() == [0, 6, 179]
    query, gallery = (load_split("cub20", split, tmp_path, incomplete=True) for split in ("test", "train"))
    data = open_set(train, query, gallery, train_crop=224)
    assert data.train.class_names == ("001.Bird_1", "007.Bird_7", "180.Bird_180")
    assert data.query.class_names == data.gallery.class_names == ("181.Worm_eating_Warbler", "200.Common_Yellowthroat")
    assert np.bincount(data.query.labels).tolist() == [3, 3]
    assert np.bincount(data.gallery.labels).tolist() == [2, 2]
    with pytest.raises(HoldfastError, match=r"train 256 x 256 x 3, query 224 x 224 x 3"):
        open_set(train, query, gallery)
    with pytest.raises(HoldfastError, match=r"training images of 256 x 256 x 3 are smaller than the crop of 300"):
        open_set(train, query, gallery, train_crop=300)


@pytest.mark.parametrize(
    ("name", "split", "message"),
    [
        ("cub180", "train", "180 are expected and 2 images where 5,396"),
        ("cub180", "test", "180 are expected and 2 images where 5,206"),
        ("cub20", "train", "20 are expected and 2 images where 598"),
        ("cub20", "test", "20 are expected and 2 images where 588"),
    ],
)
def test_counts(name, split, message, tmp_path):
    cub(tmp_path, (3, 190))
    with pytest.raises(HoldfastError, match=rf"CUB_200_2011/images: 1 class with images where {message} are expected"):
        load_split(name, split, tmp_path)


def test_folders_of_both_splits_are_the_same_set(tmp_path, monkeypatch):
    """Copies of CUB with train/CLASS and test/CLASS have no text files."""
    top = cub(tmp_path / "text", tuple(range(181, 201)), per_class=2)
    monkeypatch.setattr("papers.readers.cub.IMAGES_20", {"train": 20, "test": 20})
    for file in top.glob("images/*/*.jpg"):
        split = "train" if file.stem.endswith("_0000") else "test"
        copy = tmp_path / "folders/CUB_200_2011" / split / file.parent.name / file.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    for split in ("train", "test"):
        by_text, by_folder = (
            load_split("cub20", split, tmp_path / form, size=8, resize=10) for form in ("text", "folders")
        )
        assert np.array_equal(by_text.images, by_folder.images)
        assert np.array_equal(by_text.labels, by_folder.labels)
        assert by_text.class_names == by_folder.class_names
    with pytest.raises(HoldfastError, match=r"CUB_200_2011/train: the folder of class 1 is missing"):
        load_split("cub180", "train", tmp_path / "folders")
    wrong = tmp_path / "folders/CUB_200_2011/train/196.House_Wren"
    wrong.rename(wrong.with_name("196.Marsh_Wren"))
    with pytest.raises(HoldfastError, match=r"train: class 196 is 196\.Marsh_Wren where"):
        load_split("cub20", "train", tmp_path / "folders")


def test_the_open_set_is_the_papers_by_name(tmp_path):
    top = cub(tmp_path, (1, 181, 196))
    lines = (top / "classes.txt").read_text().splitlines()
    assert lines[180:183] == ["181 181.Worm_eating_Warbler", "182 182.Yellow_Warbler", "183 183.Northern_Waterthrush"]
    assert (len(NAMES_20), len(set(NAMES_20))) == (20, 20)
    kinds = ("Warbler", "Waterthrush", "Waxwing", "Woodpecker", "Wren", "Yellowthroat")
    assert [sum(name.endswith(kind) for name in NAMES_20) for kind in kinds] == [2, 2, 2, 6, 7, 1]
    (top / "classes.txt").write_text("\n".join(lines).replace("196.House_Wren", "196.Marsh_Wren"))
    for name in ("cub20", "cub180"):  # what is trained on is what is not tested
        with pytest.raises(
            HoldfastError,
            match=r"classes\.txt: class 196 is 196\.Marsh_Wren where .* 196\.House_Wren; use CUB-200-2011",
        ):
            load_split(name, "train", tmp_path, incomplete=True)

"""What images are called: paths where there are files, a hash of the pixels elsewhere; through every reordering."""

import numpy as np
from PIL import Image

from holdfast.train.data import canonical, first_per_class, load_split, open_set
from holdfast.train.data.images import image_names, only_classes


def test_files_are_called_by_their_paths(tmp_path):
    draw = np.random.default_rng(0)
    pixels = {}
    for split in ("train", "query", "gallery"):
        for name in "cab":
            for number in range(3):
                file = tmp_path / "data" / split / name / f"{number}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                picture = draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)
                Image.fromarray(picture).save(file)
                pixels[split, f"{name}/{number}.png"] = picture
    rows = [f"data/{split}/{name},{name[0]},{split}" for split, name in pixels]
    (tmp_path / "list.csv").write_text("path,label,split\n" + "\n".join(rows) + "\n")
    read = {split: load_split("folder", split, tmp_path, None, path="data", size=8) for split in ("train", "query")}
    gallery = load_split("folder", "gallery", tmp_path, None, path="data", size=8)
    train = open_set(read["train"], read["query"], gallery).train
    for images in (train, only_classes(train, ["b", "a"]), first_per_class(train, 2)):
        assert len(image_names(images)) == len(images)
        for image, name in zip(images.images, image_names(images), strict=True):
            assert np.array_equal(image, pixels["train", name])
    listed = load_split("csv", "train", tmp_path, None, path="list.csv", size=8)
    for image, name in zip(listed.images, image_names(listed), strict=True):
        assert np.array_equal(image, pixels["train", name.removeprefix("data/train/")])
    assert listed.fingerprint == read["train"].fingerprint  # names are no part of it


def test_others_by_a_hash_that_does_not_depend_on_their_order():
    draw = np.random.default_rng(0)
    pixels, labels = draw.integers(0, 256, (10, 4, 4, 1), dtype=np.uint8), np.arange(10) % 2
    images = canonical(pixels, labels, ["a", "b"], source="random")
    again = canonical(pixels[::-1], labels[::-1], ["a", "b"], source="random")
    assert image_names(images).tolist() == image_names(again).tolist()
    assert len(set(image_names(images))) == 10

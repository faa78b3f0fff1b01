import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageFilter

from holdfast.core.errors import HoldfastError
from holdfast.train.data import load_split, open_set
from holdfast.train.data.readers.glyphs import CHARACTERS, _fonts, _render

SMALL = {"train_classes": 5, "test_classes": 4, "per_class_train": 3, "per_class_query": 2, "per_class_gallery": 3}


def load(split, **options):
    return load_split("glyphs", split, "no/such/root", **{**SMALL, **options})


def images_by_class(images):
    return {
        name: {image.tobytes() for image in images.images[images.labels == label]}
        for label, name in enumerate(images.class_names)
    }


def looks(font):
    """Each character's shape as a unit vector: ink cut out, centred on a square, 24 x 24, blurred."""
    rows = []
    for character in CHARACTERS:
        ink = _render(font, character, 0)
        ink = ink.crop(ink.getbbox())
        side = max(ink.size)
        assert 3 * min(ink.size) >= side, f"{character} is a mere line"
        square = Image.new("L", (side, side))
        square.paste(ink, ((side - ink.width) // 2, (side - ink.height) // 2))
        small = square.resize((24, 24), Image.Resampling.BOX).filter(ImageFilter.GaussianBlur(1))
        rows.append(np.asarray(small, np.float64).ravel())
    return np.array([row / np.linalg.norm(row) for row in rows])


@pytest.mark.parametrize("font", range(12))
def test_no_two_characters_look_alike(font):
    shapes = looks(_fonts(pixels=64)[font])
    alike = np.triu(shapes @ shapes.T, 1)
    i, j = np.unravel_index(alike.argmax(), alike.shape)
    assert alike.max() < 0.925, f"{CHARACTERS[i]} and {CHARACTERS[j]}"  # 0.92, and room for another FreeType


def test_every_font_has_every_character():
    assert len(set(CHARACTERS)) == len(CHARACTERS) == 299
    for font in _fonts(pixels=32):
        missing = _render(font, "\U0010fffe", 0).tobytes()
        assert [character for character in CHARACTERS if _render(font, character, 0).tobytes() == missing] == []


def test_classes_tested_are_never_trained():
    train, query, gallery = (load(split, train_classes=200, test_classes=99) for split in ("train", "query", "gallery"))
    assert not set(train.class_names) & set(query.class_names)
    assert query.class_names == gallery.class_names
    whole = open_set(train, query, gallery)
    assert whole.overlap == ()
    assert not {x.tobytes() for x in query.images} & {x.tobytes() for x in gallery.images}


def test_shapes_counts_and_names():
    train = load("train", size=20)
    assert train.images.shape == (15, 20, 20, 1)
    assert np.bincount(train.labels).tolist() == [3] * 5
    for name in train.class_names:
        code, character = name.split(" ")
        assert chr(int(code[2:], 16)) == character
        assert character in CHARACTERS


def test_the_same_options_give_the_same_images():
    assert load("train").fingerprint == load("train").fingerprint
    different = [load("train", seed=1), load("train", difficulty=0.5), load("query"), load("gallery")]
    assert len({images.fingerprint for images in [load("train"), *different]}) == 5


@pytest.mark.parametrize("split", ["train", "query", "gallery"])
def test_more_images_or_classes_change_no_other(split):
    few = images_by_class(load(split))
    more = images_by_class(load(split, train_classes=8, test_classes=7, **{f"per_class_{split}": 6}))
    assert set(few) < set(more)
    assert all(few[name] < more[name] for name in few)


@pytest.mark.parametrize("difficulty", [0.0, 1.0, 2.0])
def test_ink_stays_in_the_picture(difficulty):
    images = load("train", train_classes=20, difficulty=difficulty).images
    assert (images.reshape(len(images), -1).max(1) >= 100).all()
    assert (images.reshape(len(images), -1).std(1) > 10).all()


def test_neither_matplotlib_nor_torch_is_imported():
    code = (
        "import sys; from holdfast.train.data import load_split;"
        "load_split('glyphs', 'query', test_classes=1, per_class_query=1);"
        "sys.exit(' '.join({'matplotlib', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stderr.strip(), done.stdout) == ("", "")


def test_difficulty_makes_retrieval_harder():
    def recall(difficulty):
        query, gallery = (
            load(split, test_classes=30, per_class_query=5, per_class_gallery=10, difficulty=difficulty)
            for split in ("query", "gallery")
        )
        q, g = (images.images.reshape(len(images), -1).astype(np.float32) for images in (query, gallery))
        q, g = (x - x.mean(1, keepdims=True) for x in (q, g))
        scores = q @ (g / np.linalg.norm(g, axis=1, keepdims=True)).T
        return (gallery.labels[scores.argmax(1)] == query.labels).mean()

    easy, usual, hard = recall(0.2), recall(1.0), recall(2.0)
    assert easy > 0.9
    assert 0.3 < usual < 0.8, "raw pixels must neither solve it nor be at a loss (chance is 1/30)"
    assert hard < usual


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_classes": 290, "test_classes": 10}, "more than the 299 characters"),
        ({"per_class_query": 0}, "per_class_query must be at least 1"),
        ({"size": 4}, r"size must be in 8\.\.256"),
        ({"difficulty": -1.0}, "difficulty in"),
        ({"difficulty": float("nan")}, "difficulty in"),
        ({"seed": -1}, "seed in"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(HoldfastError, match=message):
        load("train", **options)


def test_unknown_split_lists_the_known():
    with pytest.raises(HoldfastError, match="'test'; known: gallery, query, train"):
        load("test")

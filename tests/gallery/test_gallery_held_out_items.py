"""``register`` checks on items that the model was not trained on, says which, and nearly the same gallery agrees."""

import hashlib

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.core.errors import HoldfastError
from holdfast.core.storage import write_json
from holdfast.gallery import Gallery, Item
from holdfast.gallery.catalogue import ItemsWithPath
from holdfast.gallery.label_check import HELD, NamedSamples, split
from holdfast.train.encoders import Encoder

CLASSES = 10


@pytest.fixture(scope="module")
def files(pictures, tmp_path_factory):
    """240 noisy pictures of ten classes."""
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(6)
    made = []
    for number in range(240):
        mixed = 0.75 * pictures[number % CLASSES] + 0.25 * rng.integers(0, 256, pictures[0].shape)
        made.append(folder / f"{number:03d}.png")
        Image.fromarray(mixed[..., 0].astype(np.uint8)).save(made[-1])
    return made


def item(file):
    return Item(file.stem, path=file, label=f"class {int(file.stem) % CLASSES}")


def samples(files):
    return {
        "embedded": False,
        "images": [
            {"class": "x", "path": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()} for file in files
        ],
    }


@pytest.fixture
def trained(model_folders, tmp_path):
    """A model nearly like the first one, in a folder that names held-out and trained images."""

    def make(held_out, buffer=(), name="next"):
        encoder = Encoder.from_pretrained(model_folders[0])
        encoder.projection.weight.data += 0.01 * encoder.projection.weight.data.std()
        encoder.save_pretrained(tmp_path / name)
        write_json(tmp_path / name / "held_out.json", samples(held_out))
        write_json(tmp_path / name / "buffer.json", samples(buffer))
        return tmp_path / name

    return make


@pytest.fixture
def make_gallery(model_folders, files, tmp_path):
    opened = []

    def make(name, used):
        gallery = Gallery.create(tmp_path / name, model_folders[0], device="cpu")
        gallery.add([item(file) for file in used])
        opened.append(gallery)
        return gallery

    yield make
    for gallery in opened:
        gallery.close()


def test_held_out_items_are_the_queries_and_said_to_be(make_gallery, trained, files, tmp_path):
    model = trained(files[::4], files[1::4])
    gallery = make_gallery("g", files)
    gallery.register(model, bridge="none")
    gallery.close()
    with Gallery.open(tmp_path / "g") as again:
        (check,) = again.versions()[1].checks
    used = check["items_used"]
    assert (used["held_out"], used["unknown"], used["trained"]) == (60, 0, 0) == (check["queries"], 0, 0)
    assert used["text"] == "60 held-out items of model next, not used in training"
    assert (check["loss"]["question"], check["loss"]["units"]) == ("At most 1 point lost", 60)
    text = " ".join(
        CliRunner(env={"COLUMNS": "80"}).invoke(app, ["gallery", "versions", str(tmp_path / "g")]).stdout.split()
    )
    assert "Queries of version 2 on version 1. Better than keeping the old model: " in text
    assert "At most 1 point lost: " in text
    assert "Measured with 60 held-out items of model next, not used in training; among 180 stored items." in text


def test_too_few_held_out_items_are_filled_up_and_it_is_said(make_gallery, trained, files):
    used = make_gallery("g", files).register(trained(files[:20], files[20:80]), bridge="none").checks[0]["items_used"]
    assert used["held_out"] == 20
    assert used["trained"] == 0
    assert used["unknown"] > 50
    assert used["text"].endswith(f"; {used['unknown']} items, not known whether used in training")


def test_a_folder_without_lists_is_said_to_have_none(make_gallery, files, model_folders, tmp_path):
    encoder = Encoder.from_pretrained(model_folders[0])
    encoder.projection.weight.data += 0.01 * encoder.projection.weight.data.std()
    encoder.save_pretrained(tmp_path / "plain")
    used = make_gallery("g", files).register(tmp_path / "plain", bridge="none").checks[0]["items_used"]
    assert used["text"] == "120 items, the model folder names no held-out images"


def test_nearly_the_same_gallery_gets_nearly_the_same_answer(make_gallery, trained, files):
    """Three items more of 237 move the gain by at most three queries, and mostly by none."""
    for name, held in (("some", files[::4]), ("none", [])):
        model = trained(held, name=name)
        found = [
            make_gallery(f"{name}{count}", files[:count]).register(model, bridge="none").checks[0]
            for count in (237, 240)
        ]
        few, more = ({key: one[key]["value"] for key in ("self_test", "cross_test", "gain")} for one in found)
        for key, value in few.items():
            assert more[key] == pytest.approx(value, abs=3 / 59)
        assert found[0]["loss"]["answer"] == found[1]["loss"]["answer"]


def listed(ids, labels=5):
    return ItemsWithPath(list(range(len(ids))), list(ids), [f"c{i % labels}" for i in range(len(ids))])


def test_the_queries_depend_on_ids_and_not_on_their_number():
    ids = [f"item {i}" for i in range(3000)]
    before, after = (split(listed(ids[:count])) for count in (2900, 3000))
    names = [{ids[key] for key in one.queries} for one in (before, after)]
    assert len(names[0] & names[1]) > 0.95 * len(names[0])
    shuffled = split(listed(ids), kinds=dict.fromkeys(range(0, 3000, 3), HELD))
    assert set(shuffled.queries) == set(range(0, 3000, 3))  # all held-out items, and no others


def test_a_damaged_list_is_named(trained, files):
    model = trained(files[:3])
    write_json(model / "held_out.json", {"images": [{"class": "x"}]})
    with pytest.raises(HoldfastError, match=r"held_out.json: not a list of saved samples"):
        NamedSamples.read(model)

"""Vectors instead of images: embeddings of text, sound or products, version after version."""

import json
import shutil
import tomllib

import numpy as np
import pytest

from holdfast.cli.start import print_version
from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder
from holdfast.train.versions import start, update

WIDTH, PER_CLASS = 12, 14
FEW = ["train.epochs=2", "backbone.name=mlp", "backbone.hidden=16", "backbone.width=8", "method.slots=10",
       "buffer.per_class=3"]  # fmt: skip


def write_vectors(path, classes, width=WIDTH, **more):
    """Clouds around a random centre of each class; the same numbers for the same class."""
    rows, names = [], []
    for label in classes:
        draw = np.random.default_rng([7, label])
        rows.append(draw.standard_normal((1, width)) + 0.5 * draw.standard_normal((PER_CLASS, width)))
        names += [f"topic {label}"] * PER_CLASS
    np.savez(path, features=np.concatenate(rows).astype(np.float32), labels=np.array(names), **more)
    return path


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Two deliveries, ``1.npz`` and ``2.npz``, and the versions ``1`` and ``2`` trained on them."""
    top = tmp_path_factory.mktemp("vectors")
    start(write_vectors(top / "1.npz", range(3)), top / "1", changes=FEW, device="cpu")
    update(top / "1", write_vectors(top / "2.npz", range(3, 6)), top / "2", device="cpu")
    return top


def test_two_versions(here, capsys):
    first, second = (Encoder.from_pretrained(here / name) for name in ("1", "2"))
    vectors = np.load(here / "2.npz")["features"]
    assert first.encode(vectors).shape == second.encode(vectors).shape == (3 * PER_CLASS, 9)
    assert second.info["slots"]["owners"] == {f"topic {label}": label for label in range(6)}
    assert second.info["data"]["replayed"] == 9
    assert len(second.info["evidence"]) == 3
    print_version(here / "2", second.info, json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert f"trained on {second.info['data']['images']} vectors of 3 new classes" in said
    assert "Checked against model 1, on held-out vectors." in said
    assert "images" not in said


def test_the_default_head(here, tmp_path):
    """It has the size of the vectors and no slots, begins as the identity, and the next version keeps its recipe."""
    info = start(here / "1.npz", tmp_path / "1", changes=["train.epochs=2"], device="cpu")
    assert (info["method"], info["slots"]["num_slots"]) == ("cosine_hoc", 3)
    first, vectors = Encoder.from_pretrained(tmp_path / "1"), np.load(here / "1.npz")["features"]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    moved = 1 - (first.encode(vectors).numpy() * unit).sum(1)
    assert moved.max() < 0.01
    assert first.backbone.layers.weight.any()
    update(tmp_path / "1", here / "2.npz", tmp_path / "2", device="cpu")
    second = Encoder.from_pretrained(tmp_path / "2")
    assert second.dim == WIDTH
    recipe = tomllib.loads((tmp_path / "2" / "recipe.toml").read_text())
    assert (recipe["method"]["name"], recipe["train"]["epochs"], recipe["preprocess"]["unit"]) == (
        "cosine_hoc",
        2,
        True,
    )
    assert not np.allclose(second.encode(vectors), first.encode(vectors), atol=1e-6)


def test_suffixes_in_upper_case(here, tmp_path):
    shutil.copy(here / "1.npz", tmp_path / "V.NPZ")
    info = start(tmp_path / "V.NPZ", tmp_path / "1", changes=["train.epochs=2"], device="cpu")
    assert info["task"] == 1


def test_a_gallery_of_models_without_slots(here, tmp_path):
    """Their folders list classes as slots; a gallery compares their features by size alone."""
    pytest.importorskip("qdrant_edge")
    from holdfast import Gallery
    from holdfast.gallery import Item

    start(here / "1.npz", tmp_path / "1", changes=["train.epochs=2"], device="cpu")
    update(tmp_path / "1", here / "2.npz", tmp_path / "2", device="cpu")
    old, new = (Encoder.from_pretrained(tmp_path / name) for name in ("1", "2"))
    rows = np.load(here / "1.npz")["features"]
    with Gallery.create(tmp_path / "g", tmp_path / "1") as gallery:
        gallery.add(Item(str(i), vector=row) for i, row in enumerate(old.encode(rows).numpy()))
        gallery.register(tmp_path / "2")
        assert [one.slots for one in gallery.versions()] == [None, None]
        assert gallery.search(vector=new.encode(rows[:1]).numpy()[0], k=1)[0].id == "0"


def test_the_buffer_is_known_by_content(here, tmp_path):
    """Rows in another order are the same vectors; embedded, they need no file, and the weights are the same."""
    whole = dict(np.load(here / "1.npz"))
    turned = tmp_path / "1.npz"
    np.savez(turned, **{name: values[::-1] for name, values in whole.items()})
    start(turned, tmp_path / "1", changes=[*FEW, "buffer.embed=true"], device="cpu")
    weights = (tmp_path / "1" / "model.safetensors").read_bytes()
    assert weights == (here / "1" / "model.safetensors").read_bytes()
    turned.unlink()
    update(tmp_path / "1", here / "2.npz", tmp_path / "2", device="cpu")
    assert (tmp_path / "2" / "model.safetensors").read_bytes() == (here / "2" / "model.safetensors").read_bytes()
    assert np.load(tmp_path / "2" / "buffer.npy").shape == (18, 1, 1, WIDTH)


def test_a_split_called_train(here, tmp_path):
    split = np.array(["train", "test"] * (3 * PER_CLASS // 2))
    info = start(write_vectors(tmp_path / "s.npz", range(3), split=split), tmp_path / "s", changes=FEW, device="cpu")
    held = json.loads((tmp_path / "s" / "held_out.json").read_text())["images"]
    assert info["data"]["images"] + len(held) == 3 * PER_CLASS // 2


def test_refusals(here, photos, first, tmp_path):
    def refused(words, model, data, **options):
        with pytest.raises(HoldfastError, match=words) as caught:
            update(model, data, tmp_path / "out", device="cpu", **options)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out").exists()

    wide = write_vectors(tmp_path / "wide.npz", range(6, 8), width=WIDTH + 1)
    refused(f"wide.npz: vectors of {WIDTH + 1} numbers, but the model takes {WIDTH}", here / "1", wide)
    refused("this model takes vectors; give an npz or parquet file", here / "1", photos / "2")
    refused("holds vectors, and this model takes images; give a folder", first, here / "2.npz")
    refused("no such file", here / "1", tmp_path / "none.npz")
    refused("train.flip is for images", here / "1", here / "2.npz", changes=["train.flip=true"])
    refused("preprocess.unit: true, but .* has false", here / "1", here / "2.npz", changes=["preprocess.unit=true"])
    refused("data.size is for images, and these are vectors", here / "1", here / "2.npz",
            changes=["data.size=32"])  # fmt: skip
    with pytest.raises(HoldfastError, match="the backbone takes no vectors of 12"):
        start(here / "1.npz", tmp_path / "out", changes=["backbone.name=small"], device="cpu")
    assert not (tmp_path / "out").exists()


def test_a_file_that_changed(here, tmp_path):
    mine = write_vectors(tmp_path / "mine.npz", range(3))
    start(mine, tmp_path / "1", changes=FEW, device="cpu")
    whole = dict(np.load(mine))
    np.savez(mine, features=whole["features"] + 1, labels=whole["labels"])
    with pytest.raises(HoldfastError, match=r"buffered vectors: 9 of 9 are changed .*--buffer-from"):
        update(tmp_path / "1", here / "2.npz", tmp_path / "2", device="cpu")
    assert not (tmp_path / "2").exists()

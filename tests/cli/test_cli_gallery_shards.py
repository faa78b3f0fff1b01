"""A gallery filled and backfilled from shards: the vectors' model must be the version's."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast import Encoder, Gallery, HoldfastError, Preprocess, build_backbone, embed, embed_shards
from holdfast.gallery import Item
from holdfast.vectors import write_features

pytest.importorskip("pyarrow")
pytest.importorskip("qdrant_edge")


@pytest.fixture(scope="module")
def top(tmp_path_factory):
    """Images of two classes, two models, and the shards of each."""
    top = tmp_path_factory.mktemp("shards")
    rng = np.random.default_rng(0)
    for row in range(20):
        file = top / "photos" / f"class {row % 2}" / f"{row:02d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (16, 16), dtype=np.uint8)).save(file)
    for seed, name in enumerate(("old", "new")):
        torch.manual_seed(seed)
        preprocess = Preprocess(size=16, mean=(0.5,), std=(0.25,), colour="grey")
        Encoder(build_backbone("small", width=4), preprocess=preprocess).save_pretrained(top / name)
        embed_shards(top / name, top / "photos", top / f"shards {name}", shard_size=6)
    return top


@pytest.fixture
def gallery(top, tmp_path, holdfast):
    """All items in the first version, from shards, and a second version."""
    if not (top / "g").exists():
        Gallery.create(top / "g", top / "old", device="cpu").close()
        assert "20 added, 0 refused" in holdfast("gallery", "add", top / "g", top / "shards old")
        with Gallery.open(top / "g", device="cpu") as opened:
            opened.register(top / "new", bridge="none")
    shutil.copytree(top / "g", tmp_path / "g")
    return tmp_path / "g"


def counts(gallery):
    return {row["version"]: row["items"] for row in gallery.stats()["versions"]}


def nearest_is_itself(gallery, top, model, version):
    found = embed(top / model, top / "photos").features
    for name, vector in zip(found.ids.tolist(), found.rows.block(0, len(found)), strict=True):
        (hit,) = gallery.search(vector=vector, version=version, indexed_by=version, k=1)
        assert (hit.id, hit.version, hit.label) == (name, version, name.split("/")[0])
        assert hit.cosine == pytest.approx(1, abs=1e-5)


def test_items_from_shards_have_vectors_labels_and_paths(gallery, top):
    with Gallery.open(gallery, device="cpu") as opened:
        nearest_is_itself(opened, top, "old", 1)
        item = opened.get(["class 0/00.png"])["class 0/00.png"]
        assert item["path"] == str(top / "photos/class 0/00.png")


def test_backfill_by_shards_in_parts(gallery, top, holdfast, holdfast_json):
    words = ("gallery", "backfill", gallery, "--new-vectors", top / "shards new")
    first = holdfast_json(*words, "--limit", "7")
    assert (first["moved"], first["left"], first["without_vector"]) == (7, 13, 0)
    with Gallery.open(gallery, device="cpu") as opened:
        assert counts(opened) == {1: 13, 2: 7}
        opened.delete(["class 1/19.png"])
        opened.add([Item("without image", vector=np.arange(1.0, 17.0))], version=1)
    text = holdfast(*words)
    assert "12 items moved to version 2" in text
    assert "0 still to move, 1 without a vector, 0 unreadable" in text
    with Gallery.open(gallery, device="cpu") as opened:
        assert counts(opened) == {1: 1, 2: 19}
        opened.delete(["without image"])
        opened.add([Item("class 1/19.png", path=top / "photos/class 1/19.png", label="class 1")])
        nearest_is_itself(opened, top, "new", 2)


def test_backfill_by_arrays_needs_no_images(gallery, top):
    features = embed(top / "new", top / "photos").features
    with Gallery.open(gallery, device="cpu") as opened:
        opened.add([Item("class 0/00.png", vector=np.arange(1.0, 17.0), label="class 0")], version=1)  # without a path
        done = opened.backfill(vectors=features)
        assert (done.progress.moved, done.without_vector) == (20, 0)
        nearest_is_itself(opened, top, "new", 2)


def test_what_is_refused(gallery, top, holdfast, tmp_path):
    write_features(tmp_path / "new.npz", embed(top / "new", top / "photos").features)
    write_features(tmp_path / "new.parquet", embed(top / "new", top / "photos").features)
    for words, message in (
        (("add", gallery, tmp_path / "new.npz", "--version", "1"), "were made by the model .* but version 1 is"),
        (("add", gallery, tmp_path / "new.parquet", "--version", "1"), "were made by the model .* but version 1 is"),
        (("add", gallery, top / "shards new", "--version", "1"), "were made by the model .* but version 1 is"),
        (("add", gallery, top / "shards new", "--version", "5"), "unknown version '5'"),
        (("add", gallery, top / "shards old", top / "photos"), "added by a command of their own"),
        (("backfill", gallery, "--new-vectors", top / "shards old"), "were made by the model .* but version 2 is"),
        (("backfill", gallery, "--new-vectors", tmp_path / "none.npz"), "no such file"),
    ):
        with pytest.raises(HoldfastError, match=message):
            holdfast("gallery", *words)
    (top / "shards old" / "shard-000001.parquet").rename(tmp_path / "kept")
    try:
        with pytest.raises(HoldfastError, match="1 of 4 shards missing"):
            holdfast("gallery", "add", gallery, top / "shards old")
    finally:
        (tmp_path / "kept").rename(top / "shards old" / "shard-000001.parquet")
    with Gallery.open(gallery, device="cpu") as opened:
        assert counts(opened) == {1: 20, 2: 0}
    assert "20 added" in holdfast("gallery", "add", gallery, tmp_path / "new.npz", "--version", "2")

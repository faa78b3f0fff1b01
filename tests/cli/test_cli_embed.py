"""``holdfast embed`` as a user calls it: the files that ``bridge``, ``check`` and ``gallery add`` read."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast import Encoder, Gallery, HoldfastError, Preprocess, build_backbone

CLASSES, QUERIES, STORED = 10, 9, 27  # images of each class


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images of ten classes, apart as stored ones and queries, and two models of 16 and 24 numbers."""
    top = tmp_path_factory.mktemp("embed")
    rng = np.random.default_rng(0)
    patterns = rng.integers(40, 216, (CLASSES, 16, 16))
    for row in range(CLASSES * (QUERIES + STORED)):
        label = row % CLASSES
        pixels = np.clip(patterns[label] + rng.normal(0, 30, (16, 16)), 0, 255).astype(np.uint8)
        file = top / ("queries" if row // CLASSES < QUERIES else "stored") / f"class {label}" / f"{row}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    for name, width in (("old", 4), ("new", 6)):
        torch.manual_seed(width)
        preprocess = Preprocess(size=16, mean=(0.5,), std=(0.25,), colour="grey")
        Encoder(build_backbone("small", width=width), preprocess=preprocess).save_pretrained(top / name)
    return top


def test_two_models_from_images_to_a_verdict(folder, holdfast, holdfast_json, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    for model in ("old", "new"):
        for part in ("queries", "stored"):
            text = holdfast("embed", model, part, "--out", tmp_path / f"{part}_{model}.npz")
            count = CLASSES * (QUERIES if part == "queries" else STORED)
            assert f"{count} vectors of {16 if model == 'old' else 24} numbers (float32)" in " ".join(text.split())
            assert "labels of 10 classes" in " ".join(text.split())
    files = {name: tmp_path / f"{name}.npz" for name in ("queries_old", "queries_new", "stored_old", "stored_new")}
    refused = ["check", "--gallery", files["stored_old"], "--queries-old", files["queries_old"]]
    text = holdfast(*refused, "--queries-new", files["queries_new"], status=2)
    assert text == ""
    words = ["bridge", "--old", files["stored_old"], "--new", files["stored_new"], "--out", tmp_path / "b", "--json"]
    fitted = json.loads(holdfast(*words, status=3))
    assert fitted["verdict"] == "provisional"
    assert fitted["models"]["old"] == json.loads((folder / "old/config.json").read_text())["weights_sha256"]
    options = ("--queries-new", files["queries_new"], "--bridge", tmp_path / "b", "--max-loss", "0.5", "--json")
    found = json.loads(holdfast(*refused, *options))
    assert found["loss"]["answer"] == "yes"
    assert found["queries"] == CLASSES * QUERIES


def test_ids_are_those_of_gallery_add(folder, holdfast, tmp_path):
    pytest.importorskip("qdrant_edge")
    holdfast("embed", folder / "old", folder / "queries", "--out", tmp_path / "q.npz")
    holdfast("gallery", "create", tmp_path / "g", "--model", folder / "old")
    holdfast("gallery", "add", tmp_path / "g", folder / "queries")
    stored = np.load(tmp_path / "q.npz")
    with Gallery.open(tmp_path / "g") as gallery:
        assert gallery.stats()["items"] == len(stored["ids"])
        for name, vector in list(zip(stored["ids"].tolist(), stored["features"], strict=True))[::13]:
            (hit,) = gallery.search(vector=vector, k=1)
            assert hit.id == name
            assert hit.score == pytest.approx(1, abs=1e-5)
    text = holdfast("gallery", "add", tmp_path / "g", tmp_path / "q.npz", "--version", "1")
    assert "ignored" not in text  # the model's hash is not metadata


def test_the_target_is_checked_first(folder, holdfast, tmp_path):
    with pytest.raises(HoldfastError, match=r"unknown kind of feature file to write .*\.csv"):
        holdfast("embed", tmp_path / "no model", tmp_path / "no images", "--out", tmp_path / "out.csv")
    with pytest.raises(HoldfastError, match="unknown type of features 'float64'"):
        holdfast("embed", folder / "old", folder / "queries", "--out", tmp_path / "out.npz", "--dtype", "float64")


def test_a_folder_gets_shards_and_the_same_command_resumes(folder, holdfast, holdfast_json, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    words = ("embed", folder / "old", folder / "queries", "--out", tmp_path / "out")
    monkeypatch.setattr("holdfast.embedders.embed_shards.SHARD_SIZE", 40)
    text = " ".join(holdfast(*words, "--device", "cpu").split())
    assert "90 vectors of 16 numbers (float32), with labels; 3 shards, 3 of them written now" in text
    (tmp_path / "out" / "shard-000001.parquet").unlink()
    found = holdfast_json(*words, "--device", "cpu")
    assert (found["shards"], found["written"], found["vectors"], found["skipped"]) == (3, 1, 90, [])
    with pytest.raises(HoldfastError, match="holds shards of another model"):
        holdfast("embed", folder / "new", *words[2:])


def test_a_slash_at_the_end_names_a_folder(folder, holdfast_json, tmp_path):
    pytest.importorskip("pyarrow")
    found = holdfast_json("embed", folder / "old", folder / "queries", "--out", f"{tmp_path}/model.v2/")
    assert found["shards"] == 1
    assert (tmp_path / "model.v2" / "manifest.json").is_file()


def test_options_of_shards_need_a_folder(folder, holdfast, tmp_path):
    words = ("embed", folder / "old", folder / "queries", "--out")
    for option, value in (("--processes", 2), ("--ray", "auto")):
        with pytest.raises(HoldfastError, match=f"{option} goes with shards; give a folder as --out"):
            holdfast(*words, tmp_path / "out.npz", option, value)
    with pytest.raises(HoldfastError, match="--ray uses the cluster's devices"):
        holdfast(*words, tmp_path / "out", "--ray", "auto", "--device", "cpu")
    with pytest.raises(HoldfastError, match="in an object store, a folder of shards is written"):
        holdfast(*words, "memory://bucket/out.npz")

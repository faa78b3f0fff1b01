"""``holdfast embed`` as a user calls it: the files that ``bridge``, ``check`` and ``gallery add`` read."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast import Encoder, Gallery, HoldfastError, Preprocess, VectorInput, build_backbone
from holdfast.cli import progress as progress_module
from holdfast.cli.progress import CountProgress

CLASSES, PER_CLASS = 6, 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images of six classes, apart as stored ones and queries, and two models of 16 and 24 numbers."""
    top = tmp_path_factory.mktemp("embed")
    rng = np.random.default_rng(0)
    patterns = rng.integers(40, 216, (CLASSES, 16, 16))
    for row in range(CLASSES * PER_CLASS):
        label = row % CLASSES
        pixels = np.clip(patterns[label] + rng.normal(0, 30, (16, 16)), 0, 255).astype(np.uint8)
        file = top / ("queries" if row // CLASSES < 15 else "stored") / f"class {label}" / f"{row}.png"
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
            count = CLASSES * (15 if part == "queries" else 45)
            assert f"{count} vectors of {16 if model == 'old' else 24} numbers (float32)" in " ".join(text.split())
            assert "labels of 6 classes" in " ".join(text.split())
    files = {name: tmp_path / f"{name}.npz" for name in ("queries_old", "queries_new", "stored_old", "stored_new")}
    refused = ["check", "--gallery", files["stored_old"], "--queries-old", files["queries_old"]]
    text = holdfast(*refused, "--queries-new", files["queries_new"], status=2)
    assert text == ""
    fitted = holdfast_json(
        "bridge", "--old", files["stored_old"], "--new", files["stored_new"], "--out", tmp_path / "b"
    )
    assert fitted["verdict"] == "helps"
    assert fitted["models"]["old"] == json.loads((folder / "old/config.json").read_text())["weights_sha256"]
    options = ("--queries-new", files["queries_new"], "--bridge", tmp_path / "b", "--max-loss", "0.5", "--json")
    found = json.loads(holdfast(*refused, *options))
    assert found["loss"]["answer"] == "yes"
    assert found["queries"] == CLASSES * 15


def test_ids_are_those_of_gallery_add(folder, holdfast, tmp_path):
    pytest.importorskip("qdrant_edge")
    holdfast("embed", folder / "old", folder / "queries", "--out", tmp_path / "q.npz", "--quiet")
    holdfast("gallery", "create", tmp_path / "g", "--model", folder / "old", "--mode", "exact")
    holdfast("gallery", "add", tmp_path / "g", folder / "queries", "--quiet")
    stored = np.load(tmp_path / "q.npz")
    with Gallery.open(tmp_path / "g") as gallery:
        assert gallery.stats()["items"] == len(stored["ids"])
        for name, vector in list(zip(stored["ids"].tolist(), stored["features"], strict=True))[::13]:
            (hit,) = gallery.search(vector=vector, k=1)
            assert hit.id == name
            assert hit.score == pytest.approx(1, abs=1e-5)
    text = holdfast("gallery", "add", tmp_path / "g", tmp_path / "q.npz", "--version", "1", "--quiet")
    assert "ignored" not in text  # the model's hash is not metadata


def test_json_float16_and_no_labels(folder, holdfast_json, tmp_path):
    out = tmp_path / "q.npz"
    found = holdfast_json(
        "embed", folder / "old", folder / "queries", "--out", out, "--dtype", "float16", "--no-labels"
    )
    assert (found["vectors"], found["dim"], found["dtype"], found["classes"]) == (90, 16, "float16", None)
    stored = np.load(out)
    assert sorted(stored.files) == ["features", "ids", "model"]
    assert stored["features"].dtype == np.float16
    assert str(stored["model"]) == found["model"]
    assert (found["skipped"], found["list"]) == ([], None)


def test_unreadable_files_are_skipped_and_listed(folder, holdfast, tmp_path):
    for name in ("a.png", "b.png", "c.png"):
        (tmp_path / name).write_bytes((folder / "queries/class 0/0.png").read_bytes() if name == "b.png" else b"?")
    out = tmp_path / "out.npz"
    words = ("embed", folder / "old", tmp_path / "a.png", tmp_path / "b.png", tmp_path / "c.png", "--out", out)
    with pytest.raises(
        HoldfastError, match=r"2 problems among 3 files \(list: .*a\.png: .*c\.png: .*--skip-unreadable"
    ):
        holdfast(*words)
    assert not out.exists()
    text = " ".join(holdfast(*words, "--skip-unreadable").split())
    assert "1 vector of 16 numbers" in text
    assert f"2 items skipped (list: {out}.unreadable.csv)" in text
    listed = [line.split(",")[0] for line in (tmp_path / "out.npz.unreadable.csv").read_text().splitlines()]
    assert listed == ["path", str(tmp_path / "a.png"), str(tmp_path / "c.png")]
    assert np.load(out)["ids"].tolist() == ["b.png"]


def test_vectors_through_a_model_that_takes_them(holdfast, tmp_path):
    rows = np.random.default_rng(0).standard_normal((20, 6)).astype(np.float32)
    np.savez(tmp_path / "in.npz", features=rows, ids=[f"item {row}" for row in range(20)])
    torch.manual_seed(0)
    network = build_backbone("mlp", in_channels=6, hidden=8, width=5)
    Encoder(network, preprocess=VectorInput(6)).save_pretrained(tmp_path / "model")
    holdfast("embed", tmp_path / "model", tmp_path / "in.npz", "--out", tmp_path / "out.npz", "--quiet")
    stored = np.load(tmp_path / "out.npz")
    assert stored["ids"].tolist() == [f"item {row}" for row in range(20)]
    assert np.allclose(np.linalg.norm(stored["features"], axis=1), 1, atol=1e-5)


def test_the_target_is_checked_first(folder, holdfast, tmp_path):
    with pytest.raises(HoldfastError, match=r"unknown kind of feature file to write .*\.csv"):
        holdfast("embed", tmp_path / "no model", tmp_path / "no images", "--out", tmp_path / "out.csv")
    with pytest.raises(HoldfastError, match="unknown type of features 'float64'"):
        holdfast("embed", folder / "old", folder / "queries", "--out", tmp_path / "out.npz", "--dtype", "float64")


def test_progress_says_how_fast_and_how_long(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    with CountProgress("embed", quiet=False) as progress:
        for done in range(0, 101, 10):
            progress(done, 1000)
            now[0] += 1.0
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "embed: 20 of 1,000, 10 a second, 1:38 left",
        "embed: 60 of 1,000, 10 a second, 1:34 left",
        "embed: 100 of 1,000, 10 a second, 1:30 left",
    ]
    with CountProgress("embed", quiet=True) as progress:
        now[0] += 100
        progress(10, 20)
    assert capsys.readouterr().err == ""


def test_a_folder_gets_shards_and_the_same_command_resumes(folder, holdfast, holdfast_json, tmp_path):
    pytest.importorskip("pyarrow")
    words = ("embed", folder / "old", folder / "queries", "--out", tmp_path / "out", "--shard-size", "40")
    text = " ".join(holdfast(*words, "--device", "cpu").split())
    assert "90 vectors of 16 numbers (float32), with labels; 3 shards, 3 of them written now" in text
    (tmp_path / "out" / "shard-000001.parquet").unlink()
    found = holdfast_json(*words, "--device", "cpu")
    assert (found["shards"], found["written"], found["vectors"], found["skipped"]) == (3, 1, 90, [])
    with pytest.raises(HoldfastError, match="holds shards of another model"):
        holdfast("embed", folder / "new", *words[2:])


def test_the_list_of_unreadable_files_goes_when_they_are_repaired(folder, holdfast, tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "pictures").mkdir()
    good = (folder / "queries/class 0/0.png").read_bytes()
    (tmp_path / "pictures" / "a.png").write_bytes(good)
    (tmp_path / "pictures" / "b.png").write_bytes(b"?")
    words = ("embed", folder / "old", tmp_path / "pictures", "--out", tmp_path / "out", "--device", "cpu", "--quiet")
    with pytest.raises(HoldfastError, match=r"b\.png: not readable as an image"):
        holdfast(*words)
    assert (tmp_path / "out" / "unreadable.csv").is_file()
    (tmp_path / "pictures" / "b.png").write_bytes(good)
    holdfast(*words)
    assert not (tmp_path / "out" / "unreadable.csv").exists()


def test_a_slash_at_the_end_names_a_folder(folder, holdfast_json, tmp_path):
    pytest.importorskip("pyarrow")
    found = holdfast_json("embed", folder / "old", folder / "queries", "--out", f"{tmp_path}/model.v2/")
    assert found["shards"] == 1
    assert (tmp_path / "model.v2" / "manifest.json").is_file()


def test_options_of_shards_need_a_folder(folder, holdfast, tmp_path):
    words = ("embed", folder / "old", folder / "queries", "--out")
    for option, value in (("--shard-size", 5), ("--processes", 2), ("--ray", "auto")):
        with pytest.raises(HoldfastError, match=f"{option} goes with shards; give a folder as --out"):
            holdfast(*words, tmp_path / "out.npz", option, value)
    with pytest.raises(HoldfastError, match="--ray uses the cluster's devices"):
        holdfast(*words, tmp_path / "out", "--ray", "auto", "--device", "cpu")
    with pytest.raises(HoldfastError, match="in an object store, a folder of shards is written"):
        holdfast(*words, "memory://bucket/out.npz")

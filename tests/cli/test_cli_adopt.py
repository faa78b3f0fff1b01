"""``holdfast adopt`` and what goes with it: a check through the adopted model, a store attached and checked."""

import numpy as np
import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.versions import read_adopted

CLASSES, EACH, DIM = 40, 6, 8
QUICK = ("--steps", "10")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Stored vectors of 40 classes with ids, queries of the same by the old model and by a sharper one, turned."""
    root = tmp_path_factory.mktemp("vectors")
    centres = np.random.default_rng(0).normal(size=(CLASSES, DIM))
    turn, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(DIM, DIM)))
    labels = np.repeat(np.arange(CLASSES), EACH)
    for seed, (name, noise, how) in enumerate(
        (("stored", 0.9, np.eye(DIM)), ("new", 0.2, turn), ("old", 0.9, np.eye(DIM)), ("sharp", 0.2, np.eye(DIM)))
    ):
        draw = np.random.default_rng(seed)
        features = (centres[labels] + noise * draw.normal(size=(len(labels), DIM))) @ how.T
        np.savez(root / f"{name}.npz", features=features, labels=labels, ids=np.arange(len(labels)))
    (root / "labels.txt").write_text("\n".join(f"class {label}" for label in labels) + "\n")
    return {file.stem: file for file in root.iterdir()}


def test_the_report(files, holdfast, holdfast_json, tmp_path):
    text = holdfast(
        "adopt", "--features", files["stored"], "--new", files["new"], "--out", tmp_path / "adopted", *QUICK
    )
    assert "240 vectors of 8 numbers, 40 classes" in text
    for way in ("projection", "means", "bridge"):
        assert way in text
    same, other = (text.index(name) for name in ("1. unseen items of the same", "2. classes that nothing was fitted"))
    assert 0 < same < other
    assert "Good enough: the new model's queries beat the old ones on unseen" in text
    assert all(len(line) <= 80 for line in text.splitlines() if not line.startswith(str(tmp_path)))
    found = holdfast_json(
        "adopt", "--features", files["stored"], "--labels", files["labels"], "--out", tmp_path / "by", *QUICK
    )
    assert found["good_enough"] is None
    again = holdfast("adopt", "--features", files["stored"], "--way", "means", "--out", tmp_path / "v0", *QUICK)
    assert "Next: train a model against it: holdfast update --from" in again
    assert "\nclasses that nothing was fitted on: " in again  # a single answer has no number
    assert read_adopted(tmp_path / "by").class_names[:2] == ("class 0", "class 1")


def test_without_classes(files, holdfast, holdfast_json, tmp_path):
    for name in ("stored", "new"):
        with np.load(files[name]) as held:
            np.savez(tmp_path / f"{name}.npz", features=held["features"], ids=held["ids"])
    text = holdfast("adopt", tmp_path / "stored.npz", "--out", tmp_path / "v0")
    assert "240 vectors of 8 numbers, no classes known." in text
    assert "Judged: nothing: no classes are known" in text
    assert "Next: holdfast gallery create" in text
    text = holdfast("adopt", tmp_path / "stored.npz", "--new", tmp_path / "new.npz", "--out", tmp_path / "bridged")
    assert "from 240 pairs. Judged on 72 of them held out: overlap@10" in text.replace("\n", " ")
    assert "that needs classes (--labels)" in text.replace("\n", " ")
    assert all(len(line) <= 80 for line in text.splitlines() if not line.startswith(str(tmp_path)))
    assert read_adopted(tmp_path / "bridged").bridge is not None
    words = ["adopt", tmp_path / "stored.npz", "--new", tmp_path / "new.npz", "--way", "bridge"]
    found = holdfast_json(*words, "--bridge-pairs", "100", "--out", tmp_path / "few")
    assert (found["chosen"], found["pairs"], found["bridge"]["evidence"]["pairs"]) == ("bridge", 240, 100)
    for way in ("projection", "means"):
        with pytest.raises(HoldfastError, match=f"has no labels, which the way '{way}' needs"):
            holdfast("adopt", tmp_path / "stored.npz", "--way", way, "--out", tmp_path / "other")
    with pytest.raises(HoldfastError, match="give one file of stored vectors"):
        holdfast("adopt", "--out", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_check_through_an_adopted_projection(files, holdfast_json, holdfast, tmp_path):
    holdfast("adopt", "--features", files["stored"], "--way", "projection", "--out", tmp_path / "adopted", *QUICK)
    adopted = read_adopted(tmp_path / "adopted")
    with np.load(files["sharp"]) as held:
        features = adopted.carried(torch.from_numpy(held["features"])).numpy()
        np.savez(tmp_path / "new.npz", features=features, labels=held["labels"], ids=held["ids"])
    words = [
        "check",
        "--gallery",
        files["stored"],
        "--queries-old",
        files["old"],
        "--queries-new",
        tmp_path / "new.npz",
    ]
    found = holdfast_json(*words, "--through", tmp_path / "adopted", "--resamples", "200")
    assert found["verdict"] == "compatible"
    refused = holdfast(*words, "--json", "--sample", "3", status=2)
    assert "--sample needs a --gallery that is the URL of a store" in refused


def test_bad_input_is_one_line_and_nothing_changes(files, holdfast, tmp_path):
    out = tmp_path / "adopted"
    short = tmp_path / "short.npy"
    np.save(short, np.arange(7))
    gaps, empty = tmp_path / "gaps.npy", tmp_path / "empty.txt"
    np.save(gaps, np.where(np.arange(240) < 7, np.nan, 1.0))
    empty.write_text("\n" * 3 + "a\n" * 237)
    for words, message in (
        (["--features", tmp_path / "none.npz"], "no such file"),
        (["--features", files["stored"], "--labels", short], "240 vectors but labels of shape (7,)"),
        (["--features", files["stored"], "--labels", gaps], "labels are float64; give whole numbers or text"),
        (["--features", files["stored"], "--labels", empty], "3 labels without text (rows 0, 1, 2); leave them out"),
        (["--features", files["stored"], "--seed", "-1"], "seed must not be negative, got -1"),
        (["--features", files["stored"], "--way", "bridge"], "needs a new model's vectors"),
    ):
        with pytest.raises(HoldfastError) as refused:
            holdfast("adopt", *words, "--out", out)
        assert message in str(refused.value)
        assert "\n" not in str(refused.value)
        assert not out.exists()


def test_a_collection_is_attached_searched_and_checked(files, holdfast, holdfast_json, tmp_path):
    qdrant = pytest.importorskip("qdrant_client")
    models = qdrant.models
    client = qdrant.QdrantClient(path=str(tmp_path / "store"))
    client.create_collection("items", models.VectorParams(size=DIM, distance=models.Distance.COSINE))
    with np.load(files["stored"]) as held:
        rows = list(zip(held["features"].tolist(), held["labels"].tolist(), strict=True))
    points = [models.PointStruct(id=i, vector=v, payload={"kind": label}) for i, (v, label) in enumerate(rows)]
    client.upsert("items", points)
    client.close()
    url, place = f"qdrant:{tmp_path / 'store'}", ["--table", "items", "--label", "kind"]
    holdfast("adopt", "--features", files["stored"], "--way", "means", "--out", tmp_path / "adopted", *QUICK)
    gallery = tmp_path / "gallery"
    text = holdfast("gallery", "attach", url, *place, "--model", tmp_path / "adopted", "--out", gallery)
    assert "240 vectors of 8 numbers" in text
    assert "read-only" in text
    hits = holdfast_json("gallery", "search", gallery, "--id", "3", "--k", "4")
    assert len(hits) == 4
    assert hits[0]["score"] >= hits[-1]["score"]
    assert holdfast_json("gallery", "stats", gallery)["items"] == 240
    with pytest.raises(HoldfastError, match="attached, and so read-only"):
        holdfast("gallery", "delete", gallery, "3")
    with np.load(files["old"]) as old, np.load(files["sharp"]) as sharp:  # a store's labels are text
        for name, kept in (("q_old", old), ("q_new", sharp)):
            np.savez(tmp_path / f"{name}.npz", features=kept["features"], labels=kept["labels"].astype(str))
    words = ["--queries-old", tmp_path / "q_old.npz", "--queries-new", tmp_path / "q_new.npz", "--resamples", "200"]
    found = holdfast_json("check", "--gallery", url, *place, "--sample", "200", *words)
    assert (found["verdict"], found["gallery"]) == ("compatible", 200)


def test_ctrl_c(files, holdfast, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "holdfast.train.versions.adopt", lambda *words, **named: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    holdfast("adopt", files["stored"], "--out", tmp_path / "v0", status=130)

"""``holdfast gallery add`` of vectors that somebody has already."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from holdfast.core.errors import HoldfastError
from holdfast.gallery import Gallery, item_files
from holdfast.train.encoders import Encoder, Preprocess, VectorInput, build_backbone

pytest.importorskip("qdrant_edge")

DIM = 15


def images_model(folder, seed):
    torch.manual_seed(seed)
    preprocess = Preprocess(size=16, mean=(0.2,), std=(0.3,), colour="grey")
    Encoder(build_backbone("small", width=8), DIM, preprocess=preprocess).save_pretrained(folder)
    return folder


def stretching_model(folder):
    """Of vectors of 6 numbers, into 11 by a P that is no isometry: what it takes is not what it stores."""
    encoder = Encoder(build_backbone("identity", in_channels=6), 11, preprocess=VectorInput(6, unit=True))
    weight = np.random.default_rng(0).standard_normal((11, 6)) * np.arange(1, 7)
    encoder.projection.weight = nn.Parameter(torch.tensor(weight, dtype=torch.float32))
    encoder.save_pretrained(folder)
    return encoder


@pytest.fixture
def gallery(tmp_path):
    """Two versions with features of 15 numbers, stored as they are."""
    with Gallery.create(tmp_path / "g", images_model(tmp_path / "1", 1)) as made:
        made.register(images_model(tmp_path / "2", 2))
    return tmp_path / "g"


@pytest.fixture
def rows():
    return np.random.default_rng(1).standard_normal((9, DIM)).astype(np.float32)


def cosines(rows, query):
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return unit @ (query / np.linalg.norm(query))


def test_an_npz_with_labels_paths_and_metadata(gallery, rows, holdfast, holdfast_json, tmp_path):
    rows[3, 0], rows[5] = np.nan, 0
    extra = {"price": np.arange(9) / 2, "shop": np.array(["n", "s", "e"] * 3), "paths": np.array([*["a.png"] * 8, ""])}
    other = {"hash": np.full(9, 2**60), "boxes": np.zeros((9, 4)), "shop name": np.arange(9)}
    extra["price"][8] = np.nan
    ids, labels = np.arange(100, 109), np.arange(9) % 2
    np.savez(tmp_path / "old.npz", features=rows, ids=ids, labels=labels, **extra, **other)
    found = json.loads(holdfast("gallery", "add", gallery, tmp_path / "old.npz", "--version", 1, "--json", status=1))
    assert (found["added"], found["replaced"], found["ignored"]) == (7, 0, 3)
    assert [one["id"] for one in found["refused"]] == ["103", "105"]
    assert "NaN or infinity" in found["refused"][0]["reason"]
    assert set(found["ignored_columns"]) == set(other)
    with Gallery.open(gallery) as opened:
        kept = opened.get(["101", "108"])
        hits = {hit.id: hit.score for hit in opened.search(vector=rows[0], version=1, k=20)}
    image = str(tmp_path / "a.png")
    assert kept["101"] == {"version": 1, "label": "1", "metadata": {"price": 0.5, "shop": "s"}, "path": image}
    assert (kept["108"]["metadata"], kept["108"]["path"]) == ({"shop": "e"}, None)
    assert hits == pytest.approx({str(ids[n]): cosines(rows, rows[0])[n] for n in (0, 1, 2, 4, 6, 7, 8)}, abs=1e-5)
    said = holdfast("gallery", "add", gallery, tmp_path / "old.npz", "--version", 1, status=1)
    assert "7 added, 2 refused" in said
    assert "7 of them replaced" in said
    assert "ignored: boxes (float64 of shape (9, 4)" in said
    assert holdfast_json("gallery", "stats", gallery)["items"] == 7
    near = holdfast_json("gallery", "search", gallery, "--id", "100", "--where", 'price={"lt": 1.2}')
    assert {hit["id"] for hit in near} == {"101", "102"}


def test_what_a_model_takes_is_embedded_first(holdfast, holdfast_json, tmp_path):
    """The vectors that it takes could be stored as features by mistake, where both have one size."""
    encoder = stretching_model(tmp_path / "v0")
    said = holdfast("gallery", "create", tmp_path / "g", "--model", tmp_path / "v0")
    assert f"add {tmp_path / 'g'} FILE.npz --version 1" in said
    taken = np.random.default_rng(2).standard_normal((5, 6)).astype(np.float32)
    np.savez(tmp_path / "old.npz", features=taken, ids=np.arange(5))
    with pytest.raises(HoldfastError, match=r"of 6 numbers, .* may be what its model takes: run holdfast embed"):
        holdfast("gallery", "add", tmp_path / "g", tmp_path / "old.npz", "--version", 1)
    holdfast("embed", tmp_path / "v0", tmp_path / "old.npz", "--out", tmp_path / "new.npz")
    assert holdfast_json("gallery", "add", tmp_path / "g", tmp_path / "new.npz", "--version", 1)["added"] == 5
    carried = taken @ encoder.projection.weight.detach().numpy().T
    with Gallery.open(tmp_path / "g") as opened:
        hits = {int(hit.id): hit.score for hit in opened.search(vector=carried[0], k=5)}
    assert [hits[n] for n in range(5)] == pytest.approx(cosines(carried, carried[0]).tolist(), abs=1e-5)


def test_a_parquet_in_blocks(gallery, rows, holdfast_json, monkeypatch, tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(item_files, "_BLOCK_ROWS", 4)
    columns = {"features": rows.tolist(), "ids": [f"id{n}" for n in range(9)], "stock": [*range(8), None]}
    days = arrow.array([0] * 9, arrow.date32())
    parquet.write_table(arrow.table({**columns, "day": days}), tmp_path / "a.parquet", row_group_size=3)
    found = holdfast_json("gallery", "add", gallery, tmp_path / "a.parquet", "--version", 2, "--label", "cup")
    assert found["ignored_columns"] == {"day": "date32[day], not text or numbers"}
    with Gallery.open(gallery) as opened:
        assert [hit.id for hit in opened.search(vector=rows[7], k=1)] == ["id7"]
        kept = opened.get(columns["ids"])
    assert [one["metadata"].get("stock") for one in kept.values()] == columns["stock"]
    assert {(one["version"], one["label"]) for one in kept.values()} == {(2, "cup")}


def test_an_npy_with_ids_beside_it_and_a_table(gallery, rows, holdfast_json, tmp_path):
    np.save(tmp_path / "a.npy", rows)
    np.save(tmp_path / "a.ids.npy", np.arange(9))
    (tmp_path / "a.csv").write_text("id,label,price\n1,cup,3\n77,mug,4\n", encoding="utf-8")
    found = holdfast_json(
        "gallery", "add", gallery, tmp_path / "a.npy", "--version", 1, "--metadata", tmp_path / "a.csv"
    )
    assert (found["added"], found["rows_without_vector"], found["vectors_without_row"]) == (9, 1, 8)
    with Gallery.open(gallery) as opened:
        one = opened.get(["1"])["1"]
    assert (one["label"], one["metadata"]) == ("cup", {"price": 3})


def test_refusals(gallery, rows, holdfast, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", features=rows, ids=np.arange(9), labels=np.arange(9))
    np.savez("nameless.npz", features=rows)
    np.savez("small.npz", features=rows[:, :7], ids=np.arange(9))
    for words, reason in {
        ("a.npz",): r"--version must say which version made these vectors; there are 1, 2",
        ("a.npz", "--version", 3): r"unknown version '3'",
        ("a.npz", "--version", 1, "--label", "cup"): r"more than one of its labels, --label",
        ("a.npz", "--version", 1, "--labels-from-folders"): r"goes with images",
        ("a.npz", "small.npz", "--version", 1): r"vectors are added by a command of their own",
        ("small.npz", "--version", 1): r"vectors of 7 numbers, but version 1 has features of 15; is --version",
        ("nameless.npz", "--version", 1): r"has no ids; write ids in it",
        ("none.npz", "--version", 1): r"none.npz: no such file",
        ("pictures", "--version", 1): r"--version goes with a file of vectors",
    }.items():
        with pytest.raises(HoldfastError, match=reason):
            holdfast("gallery", "add", gallery, *words)

"""Somebody else's table or collection, searched in place: exact, read-only, refused in one line where it is no store.

PostgreSQL is the server that HOLDFAST_TEST_POSTGRES names, or the one that the fixture ``postgres_server`` starts.
"""

import json
import os
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.encoders import Encoder, VectorInput, build_backbone
from holdfast.errors import HoldfastError
from holdfast.gallery import Address, AttachedGallery, open_gallery, writable
from holdfast.gallery.attached import open_source, stored_sample
from holdfast.gallery.attached.source import is_url, without_password
from holdfast.lifecycle import adopt, read_adopted
from holdfast.lifecycle.adopted_model import write_adopted
from holdfast.service.local_commands import COMMANDS

CLASSES, EACH, DIM = 12, 10, 6
TABLE = 'Odd "names"; DROP TABLE items'


@pytest.fixture(scope="module")
def stored() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(CLASSES, DIM))
    vectors = np.repeat(centres, EACH, axis=0) + 0.5 * draw.normal(size=(CLASSES * EACH, DIM))
    ids = np.array([f"item-{i:03d}" for i in range(len(vectors))])
    return {
        "features": vectors.astype(np.float32),
        "labels": np.repeat(np.arange(CLASSES), EACH).astype(str),
        "ids": ids,
    }


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> str:
    pytest.importorskip("psycopg")
    if "HOLDFAST_TEST_POSTGRES" in os.environ:
        return os.environ["HOLDFAST_TEST_POSTGRES"]
    try:
        return str(request.getfixturevalue("postgres_server").url)
    except pytest.FixtureLookupError:
        pytest.skip("no PostgreSQL to test with; set HOLDFAST_TEST_POSTGRES")


@pytest.fixture(scope="module")
def in_postgres(server: str, stored: dict[str, np.ndarray]) -> Iterator[Address]:
    """A table in a schema of its own, with names that would hurt where they are not quoted."""
    import psycopg
    from psycopg import sql

    schema = f"attached_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        table = sql.Identifier(schema, TABLE)
        columns = '"the id" text PRIMARY KEY, "the ""vector""" vector(6), half halfvec(6), label text, n int'
        connection.execute(sql.SQL(f"CREATE TABLE {{}} ({columns})").format(table))
        with connection.cursor() as cursor:
            cursor.executemany(
                sql.SQL("INSERT INTO {} VALUES (%s, %s, %s, %s, 1)").format(table),
                [
                    (name, str(vector.tolist()), str(vector.tolist()), label)
                    for name, vector, label in zip(stored["ids"], stored["features"], stored["labels"], strict=True)
                ],
            )
            cursor.execute(sql.SQL("INSERT INTO {} VALUES ('without', NULL, NULL, 'none', 1)").format(table))
        yield Address(server, f"{schema}.{TABLE}", "the id", 'the "vector"', "label")
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


@pytest.fixture
def in_qdrant(stored: dict[str, np.ndarray], tmp_path: Path) -> Address:
    qdrant = pytest.importorskip("qdrant_client")
    models = qdrant.models
    client = qdrant.QdrantClient(path=str(tmp_path / "qdrant"))
    size = models.VectorParams(size=DIM, distance=models.Distance.COSINE)
    euclid = models.VectorParams(size=DIM, distance=models.Distance.EUCLID)
    dot = models.VectorParams(size=DIM, distance=models.Distance.DOT)
    sparse = {"words": models.SparseVectorParams()}
    client.create_collection("items", {"image": size, "far": euclid, "dot": dot}, sparse_vectors_config=sparse)
    rows = zip(stored["ids"], stored["features"].tolist(), stored["labels"].tolist(), strict=True)
    points = [
        models.PointStruct(id=i, vector={"image": v, "far": v, "dot": v}, payload={"name": str(name), "label": label})
        for i, (name, v, label) in enumerate(rows)
    ]
    client.upsert("items", points)
    client.close()
    return Address(f"qdrant:{tmp_path / 'qdrant'}", "items", "name", "image", "label")


@pytest.fixture(params=["postgres", "qdrant"])
def address(request: pytest.FixtureRequest) -> Address:
    return request.getfixturevalue(f"in_{request.param}")


@pytest.fixture(scope="module")
def adopted(stored: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same vectors adopted by two ways, and a bent projection: the store's own order is then not the true one."""
    root = tmp_path_factory.mktemp("adopted")
    np.savez(root / "stored.npz", **stored)
    report = adopt(root / "stored.npz", out=root / "means", way="means", resamples=100, steps=5)
    adopt(root / "stored.npz", out=root / "projection", way="projection", resamples=100, steps=5)
    model = read_adopted(root / "projection")
    bent = model.encoder.projection.weight.detach() * torch.linspace(0.2, 2, DIM)
    settings = {"way": "projection", "registry": model.registry, "features": model.record["features"]}
    write_adopted(root / "bent", model.stored(), replace(report, chosen="projection"), matrix=bent, **settings)
    return {name: root / name for name in ("means", "projection", "bent")}


def cosines(query: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return (rows @ query) / np.linalg.norm(rows, axis=1) / np.linalg.norm(query)


@pytest.mark.parametrize("way", ["means", "projection", "bent"])
def test_hits_are_those_of_brute_force(address, adopted, stored, way, tmp_path):
    model = Encoder.from_pretrained(adopted[way])
    features = model.encode(torch.from_numpy(stored["features"])).numpy()
    with AttachedGallery.attach(tmp_path / "gallery", address, adopted[way]) as gallery:
        for row in (3, 50):
            expected = cosines(features[row], features)
            best = np.argsort(-expected, kind="stable")[:7]
            for hits in (
                gallery.search(vector=features[row], k=7),
                gallery.search(vector=stored["features"][row], k=7),  # as the store holds them
                gallery.search(stored["features"][row], k=7, exact=True),  # as what version 0 embeds
            ):
                assert [hit.id for hit in hits] == stored["ids"][best].tolist()
                np.testing.assert_allclose([hit.score for hit in hits], expected[best], atol=1e-5)
                assert [hit.label for hit in hits] == stored["labels"][best].tolist()
            like = gallery.search(id=stored["ids"][row], k=6)
            assert [hit.id for hit in like] == stored["ids"][best[1:]].tolist()
        assert gallery.stats()["items"] == CLASSES * EACH


def test_nothing_can_be_written(address, adopted, stored, tmp_path):
    with AttachedGallery.attach(tmp_path / "gallery", address, adopted["means"]) as gallery:
        with pytest.raises(HoldfastError, match="attached, and so read-only"):
            writable(gallery)
        commands = {"add": {"items": []}, "delete": {"ids": ["item-000"]}, "vectors_taken": {"version": 0}}
        commands |= {"backfill": {}, "rollback": {}, "move": {"to": "embedded"}}
        for name, options in commands.items():
            with pytest.raises(HoldfastError, match="attached, and so read-only; write to "):
                COMMANDS[name](gallery, threading.Event(), lambda progress: None, **options)
        assert gallery.stats()["items"] == len(stored["ids"])
    with open_gallery(tmp_path / "gallery") as again:
        assert [version.number for version in again.versions()] == [0]


def test_the_session_itself_only_reads(in_postgres):
    source = open_source(in_postgres)
    with pytest.raises(HoldfastError, match="read-only transaction"):
        source._fetch_all("CREATE TABLE anything (n int)")
    source.close()


def test_models_embed_on_the_device(in_qdrant, adopted, stored, tmp_path, monkeypatch):
    """``cpu:0`` is a device of another name than the default, which every machine has."""
    devices, encode = [], Encoder.encode

    def recorded(self, images, **options):
        devices.append(options.get("device"))
        return encode(self, images, **options)

    monkeypatch.setattr(Encoder, "encode", recorded)
    with AttachedGallery.attach(tmp_path / "gallery", in_qdrant, adopted["means"], device="cpu:0") as gallery:
        assert gallery.device == torch.device("cpu:0")
        gallery.search(stored["features"][3])
    with open_gallery(tmp_path / "gallery", device="cpu:0") as gallery:
        gallery.search(stored["features"][3])
    assert devices == [torch.device("cpu:0")] * 2
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(HoldfastError, match="torch sees no GPU"):
        AttachedGallery.attach(tmp_path / "other", in_qdrant, adopted["means"], device="cuda")
    assert not (tmp_path / "other").exists()
    with pytest.raises(HoldfastError, match="torch sees no GPU"):
        open_gallery(tmp_path / "gallery", device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("way", ["means", "projection", "bent"])
def test_hits_on_a_gpu_are_those_on_the_cpu(in_qdrant, adopted, stored, way, tmp_path):
    AttachedGallery.attach(tmp_path / "gallery", in_qdrant, adopted[way], device="cuda").close()
    scores = []
    for device in ("cpu", "cuda"):
        with AttachedGallery.open(tmp_path / "gallery", device=device) as gallery:
            assert gallery.device.type == device
            scores.append({hit.id: hit.score for hit in gallery.search(stored["features"][3], k=20)})
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_a_newer_model_answers(address, adopted, stored, tmp_path):
    encoder = Encoder.from_pretrained(adopted["means"])
    torch.manual_seed(0)
    newer = Encoder(build_backbone("linear", in_channels=DIM, width=DIM), preprocess=VectorInput(DIM))
    newer.save_pretrained(tmp_path / "newer")
    other = Encoder(build_backbone("linear", in_channels=DIM, width=DIM + 1), preprocess=VectorInput(DIM))
    other.save_pretrained(tmp_path / "other")
    with AttachedGallery.attach(tmp_path / "gallery", address, adopted["means"]) as gallery:
        assert gallery.register(tmp_path / "newer").number == 1
        with pytest.raises(HoldfastError, match="features of 7 numbers, the gallery's have 6"):
            gallery.register(tmp_path / "other")
    with open_gallery(tmp_path / "gallery") as gallery:
        asked = stored["features"][5]
        features = encoder.encode(torch.from_numpy(stored["features"])).numpy()
        for version, model in ((0, encoder), (None, newer)):
            (z,) = model.encode(torch.from_numpy(asked[None])).numpy()
            best = np.argsort(-cosines(z, features), kind="stable")[:5]
            assert [hit.id for hit in gallery.search(asked, k=5, version=version)] == stored["ids"][best].tolist()
        everything = gallery.search(asked, k=5)
        assert gallery.search(asked, k=5, indexed_by=0) == gallery.search(asked, k=5, indexed_by=[0, 1]) == everything
        assert gallery.search(asked, k=5, indexed_by=1) == []  # all that is stored is version 0's
        with pytest.raises(HoldfastError, match="unknown version '2'; known: 0, 1"):
            gallery.search(asked, indexed_by=2)


def test_samples_are_the_same_for_a_seed(address, stored):
    first, again, other = (stored_sample(address, 40, seed) for seed in (0, 0, 1))
    assert first.ids.tolist() == again.ids.tolist() != other.ids.tolist()
    assert len(set(first.ids.tolist())) == 40
    rows = [int(name.removeprefix("item-")) for name in first.ids]
    expected = stored["features"][rows]
    found = first.rows.block(0, 40)
    np.testing.assert_allclose(cosines_of_rows(found, expected), 1, atol=1e-6)
    assert first.labels.tolist() == stored["labels"][rows].tolist()
    assert len(stored_sample(address)) == len(stored["ids"])


def cosines_of_rows(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vector": "n"}, "n: is integer, not a vector"),
        ({"vector": "label"}, "label: is text, not a vector"),
        ({"vector": "nowhere"}, "unknown column of"),
        ({"id": 'x"; DROP TABLE items; --'}, "unknown column of"),
        ({"table": "nowhere"}, "no table nowhere"),
        ({"url": "postgresql://nobody:secret@127.0.0.1:1/none"}, "cannot be opened"),
        ({"url": "mysql://x"}, "unknown kind of store 'mysql'"),
    ],
)
def test_what_is_no_store_of_vectors_is_refused(in_postgres, adopted, change, message, tmp_path):
    with pytest.raises(HoldfastError) as refused:
        AttachedGallery.attach(tmp_path / "gallery", replace(in_postgres, **change), adopted["means"])
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)
    assert not (tmp_path / "gallery").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vector": ""}, "unknown vector of items"),
        ({"vector": "words"}, "is a sparse vector"),
        ({"vector": "far"}, "compares by Euclid; cosine or dot is needed"),
        ({"table": "nowhere"}, "unknown collection of"),
        ({"url": "qdrant:/nowhere/at/all"}, "no such folder"),
        ({"url": "http://127.0.0.1:1"}, "cannot be opened"),
    ],
)
def test_what_is_no_collection_of_vectors_is_refused(in_qdrant, adopted, change, message, tmp_path):
    with pytest.raises(HoldfastError) as refused:
        AttachedGallery.attach(tmp_path / "gallery", replace(in_qdrant, **change), adopted["means"])
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_other_kinds_of_column(in_postgres, in_qdrant, stored):
    for changed in (replace(in_postgres, vector="half"), replace(in_qdrant, vector="dot")):
        source = open_source(changed)
        found = source.search(stored["features"][0], 5)
        source.close()
        expected = cosines(stored["features"][0], stored["features"])
        assert abs(found[0].cosine - 1) < 1e-3 or changed.vector == "dot"  # by inner product a longer one may be first
        assert {near.id for near in found} <= set(stored["ids"].tolist())
        assert all(abs(near.cosine - expected[int(near.id[-3:])]) < 1e-2 for near in found)


def test_another_model_is_not_version_0(address, adopted, tmp_path, model_folders):
    with pytest.raises(HoldfastError, match="its features have 59 numbers, compact ones 32, but the stored ones 6"):
        AttachedGallery.attach(tmp_path / "gallery", address, model_folders[0])


def test_no_password_is_kept(in_postgres, adopted, tmp_path):
    url = in_postgres.url.replace("holdfast@", "holdfast:secret@")
    AttachedGallery.attach(tmp_path / "gallery", replace(in_postgres, url=url), adopted["means"]).close()
    record = (tmp_path / "gallery" / "attached.json").read_text()
    assert "secret" not in record
    assert json.loads(record)["address"]["table"] == in_postgres.table
    assert without_password("postgresql://me:word@host/db?x=1") == "postgresql://me@host/db?x=1"
    assert all(map(is_url, ("postgresql://x", "qdrant:x", "https://x")))
    assert not any(map(is_url, ("C:\\x", "gallery.npz", "")))

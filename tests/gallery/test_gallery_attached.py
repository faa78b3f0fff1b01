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

from holdfast.bridges import Bridge
from holdfast.core.errors import HoldfastError
from holdfast.gallery import Address, AttachedGallery, open_gallery
from holdfast.gallery.attached import open_source, stored_sample
from holdfast.gallery.attached.source import without_password
from holdfast.gallery.gallery_versions import read_candidate
from holdfast.service.owner_tasks import TASKS
from holdfast.train.encoders import Encoder, VectorInput, build_backbone
from holdfast.vectors import feature_set

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


def cosines(query: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return (rows @ query) / np.linalg.norm(rows, axis=1) / np.linalg.norm(query)


def test_hits_are_those_of_brute_force(address, stored, tmp_path):
    with AttachedGallery.attach(tmp_path / "gallery", address) as gallery:
        for row in (3, 50):
            expected = cosines(stored["features"][row], stored["features"])
            best = np.argsort(-expected, kind="stable")[:7]
            for exact in (False, True):
                hits = gallery.search(vector=stored["features"][row], k=7, exact=exact)
                assert [hit.id for hit in hits] == stored["ids"][best].tolist()
                np.testing.assert_allclose([hit.score for hit in hits], expected[best], atol=1e-5)
                assert [hit.label for hit in hits] == stored["labels"][best].tolist()
            like = gallery.search(id=stored["ids"][row], k=6)
            assert [hit.id for hit in like] == stored["ids"][best[1:]].tolist()
        assert gallery.stats()["items"] == CLASSES * EACH
        with pytest.raises(HoldfastError, match="version 0 is of vectors alone, without a model that embeds"):
            gallery.search(np.zeros((16, 16), np.uint8))


def test_a_store_of_compact_features(model_folders, pictures, tmp_path):
    """The model that filled the store embeds queries, and the length of a compact query is part of the score."""
    qdrant = pytest.importorskip("qdrant_client")
    basis = read_candidate(model_folders[0], None).basis
    first, second = (Encoder.from_pretrained(folder).encode(pictures[:40]).numpy() for folder in model_folders[:2])
    client = qdrant.QdrantClient(path=str(tmp_path / "store"))
    size = qdrant.models.VectorParams(size=32, distance=qdrant.models.Distance.COSINE)
    client.create_collection("items", size)
    rows = enumerate((first @ basis).tolist())
    client.upsert("items", [qdrant.models.PointStruct(id=n, vector=row) for n, row in rows])
    client.close()
    where = Address(f"qdrant:{tmp_path / 'store'}", "items", "id", "")
    with AttachedGallery.attach(tmp_path / "g", where, model_folders[0]) as gallery:
        gallery.register(model_folders[1])
        for features, version, picture in ((first, 0, 5), (second, 1, 7)):
            for hits in (
                gallery.search(pictures[picture], k=40, version=version),
                gallery.search(vector=features[picture], k=40, version=version),
            ):
                expected = first @ features[picture]
                scores = {int(hit.id): hit.score for hit in hits}
                np.testing.assert_allclose([scores[n] for n in range(40)], expected, atol=1e-5)


def test_nothing_can_be_written(address, stored, tmp_path):
    with AttachedGallery.attach(tmp_path / "gallery", address) as gallery:
        commands = {"add": {"items": []}, "delete": {"ids": ["item-000"]}}
        commands |= {"backfill": {}, "rollback": {}}
        for name, options in commands.items():
            with pytest.raises(HoldfastError, match="attached, and so read-only; write to "):
                TASKS[name](gallery, threading.Event(), lambda progress: None, **options)
        assert gallery.stats()["items"] == len(stored["ids"])
    with open_gallery(tmp_path / "gallery") as again:
        assert [version.number for version in again.versions()] == [0]


def test_the_session_itself_only_reads(in_postgres):
    source = open_source(in_postgres)
    with pytest.raises(HoldfastError, match="read-only transaction"):
        source._fetch_all("CREATE TABLE anything (n int)")
    source.close()


def test_a_device_that_is_not_there(in_qdrant, tmp_path, monkeypatch):
    AttachedGallery.attach(tmp_path / "gallery", in_qdrant).close()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(HoldfastError, match="torch sees no GPU"):
        AttachedGallery.attach(tmp_path / "other", in_qdrant, device="cuda")
    assert not (tmp_path / "other").exists()
    with pytest.raises(HoldfastError, match="torch sees no GPU"):
        open_gallery(tmp_path / "gallery", device="cuda")


def test_a_newer_model_answers(address, stored, tmp_path):
    torch.manual_seed(0)
    newer = Encoder(build_backbone("linear", in_channels=DIM, width=DIM), preprocess=VectorInput(DIM))
    newer.save_pretrained(tmp_path / "newer")
    other = Encoder(build_backbone("linear", in_channels=DIM, width=DIM + 1), preprocess=VectorInput(DIM))
    other.save_pretrained(tmp_path / "other")
    with AttachedGallery.attach(tmp_path / "gallery", address) as gallery:
        assert gallery.register(tmp_path / "newer").number == 1
        with pytest.raises(HoldfastError, match=r"7 numbers, .* 6\); give its vectors of some items"):
            gallery.register(tmp_path / "other")
    with open_gallery(tmp_path / "gallery") as gallery:
        asked = stored["features"][5]
        (z,) = newer.encode(torch.from_numpy(asked[None])).numpy()
        best = np.argsort(-cosines(z, stored["features"]), kind="stable")[:5]
        assert [hit.id for hit in gallery.search(asked, k=5)] == stored["ids"][best].tolist()
        everything = gallery.search(asked, k=5)
        assert gallery.search(asked, k=5, indexed_by=0) == gallery.search(asked, k=5, indexed_by=[0, 1]) == everything
        assert gallery.search(asked, k=5, indexed_by=1) == []  # all that is stored is version 0's
        with pytest.raises(HoldfastError, match="unknown version '2'; known: 0, 1"):
            gallery.search(asked, indexed_by=2)


@pytest.fixture(scope="module")
def newer(stored: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Vectors of foreign models of the stored items, without labels."""
    root = tmp_path_factory.mktemp("newer")
    draw = np.random.default_rng(4)
    turn, _ = np.linalg.qr(draw.normal(size=(9, DIM)))
    lengths = np.linalg.norm(stored["features"], axis=1, keepdims=True)
    sharp = stored["features"] / lengths + 0.02 * draw.normal(size=stored["features"].shape)
    vectors = {
        "wider": sharp @ turn.T,
        "turned": sharp @ np.linalg.qr(draw.normal(size=(DIM, DIM)))[0].T,
        "noise": draw.normal(size=sharp.shape),
        "same": sharp,
    }
    for name, rows in vectors.items():
        # Items that the store does not hold are no pairs.
        ids = np.append(stored["ids"], "nowhere")
        np.savez(root / f"{name}.npz", features=np.append(rows, rows[:1], axis=0), ids=ids)
    return {name: root / f"{name}.npz" for name in vectors}


def brute_force(bridge: Bridge, vector: np.ndarray, rows: np.ndarray) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Row numbers of the best seven stored vectors, their merged scores and their cosines."""
    found = cosines(bridge.transform(vector[None])[0], rows)
    best = np.argsort(-found, kind="stable")[:7]
    return best.tolist(), bridge.scale(found[best]), found[best]


def test_a_model_of_another_size_answers_over_a_bridge(address, newer, stored, tmp_path):
    seen = []
    with AttachedGallery.attach(tmp_path / "gallery", address) as gallery:
        version = gallery.register(
            new_vectors=newer["wider"],
            bridge_pairs=100,
            progress=lambda stage, done, total: seen.append((stage, done, total)),
        )
        (record,) = version.bridges
        assert (version.number, record["version"], record["pairs"], record["agrees_beyond_chance"]) == (1, 0, 100, True)
        assert record["without"] is None  # 9 numbers cannot be compared with 6
        assert seen[-1] == ("fitting the bridge", 1, 1)
        assert gallery.stats()["versions"][1]["bridges"] == version.bridges
    bridge = Bridge.load(tmp_path / "gallery" / "versions" / "0001" / "bridges" / "to-0000")
    with np.load(newer["wider"]) as held:
        asked = held["features"]
    own = 0
    with open_gallery(tmp_path / "gallery") as gallery:
        assert gallery.newest().bridges == version.bridges
        for row in range(0, len(stored["ids"]), 12):
            best, scores, plain = brute_force(bridge, asked[row], stored["features"])
            hits = gallery.search(vector=asked[row], k=7, exact=True)
            assert [hit.id for hit in hits] == stored["ids"][best].tolist()
            np.testing.assert_allclose([hit.score for hit in hits], scores, atol=1e-5)
            np.testing.assert_allclose([hit.cosine for hit in hits], plain, atol=1e-5)
            said = gallery.search(vector=asked[row], version=1, k=7, exact=True)
            assert [hit.id for hit in said] == [hit.id for hit in hits]
            own += hits[0].id == stored["ids"][row]
        assert own >= 9  # of 10: nearly every item is found by its vector of the other model
        first = gallery.search(vector=stored["features"][3], version=0, k=5)
        assert first[0].id == stored["ids"][3]
        assert first[0].score == first[0].cosine  # no bridge, no other scale
        assert first[0].cosine == pytest.approx(1, abs=1e-5)
        like = gallery.search(id=str(stored["ids"][3]), k=4)
        assert [hit.id for hit in like] == [hit.id for hit in first[1:]]
        assert gallery.search(vector=asked[3], indexed_by=1) == []
        with pytest.raises(HoldfastError, match=r"query: 5 numbers; vectors of version 1 have 9$"):
            gallery.search(vector=np.ones(5))
        with pytest.raises(HoldfastError, match=r"6 numbers; .* have 9; give stored vectors as those of version 0"):
            gallery.search(vector=np.ones(6))


def test_a_changed_bridge_serves_nothing(in_qdrant, newer, tmp_path):
    with AttachedGallery.attach(tmp_path / "gallery", in_qdrant) as gallery:
        gallery.register(new_vectors=newer["wider"])
    place = tmp_path / "gallery" / "versions" / "0001" / "bridges" / "to-0000"
    bridge = Bridge.load(place)
    replace(bridge, error_weights=bridge.error_weights + 1).save(place)
    with open_gallery(tmp_path / "gallery") as gallery:
        with pytest.raises(HoldfastError, match=r"to-0000: changed since it was fitted \(sha256 differs\)"):
            gallery.search(vector=np.ones(9))
        assert len(gallery.search(vector=np.ones(6), version=0)) == 10  # no bridge is needed


def test_no_bridge_is_used_where_none_is_better(in_qdrant, newer, stored, tmp_path):
    with np.load(newer["same"]) as held:
        asked = held["features"][5]
    with AttachedGallery.attach(tmp_path / "gallery", in_qdrant) as gallery:
        (record,) = gallery.register(new_vectors=newer["same"]).bridges
        assert record["kind"] == "none"
        expected = cosines(asked, stored["features"])
        hits = gallery.search(vector=asked, k=5, exact=True)
        np.testing.assert_allclose([hit.cosine for hit in hits], np.sort(expected)[::-1][:5], atol=1e-5)
        named = replace_kind(gallery, newer, "rotation")
        assert named["kind"] == "rotation"


def replace_kind(gallery: AttachedGallery, newer: dict[str, Path], kind: str) -> dict[str, object]:
    """The record of a version registered with a named kind of bridge."""
    (record,) = gallery.register(bridge=kind, new_vectors=newer["turned"]).bridges
    return record


def test_bad_vectors_are_refused_and_nothing_changes(in_qdrant, newer, stored, tmp_path):
    with np.load(newer["wider"]) as held:
        features, ids = held["features"], held["ids"]
    broken = features.copy()
    broken[7] = np.nan
    model = tmp_path / "model"
    Encoder(build_backbone("linear", in_channels=4, width=9), preprocess=VectorInput(4)).save_pretrained(model)
    cases = [
        ({"new_vectors": newer["noise"]}, "no bridge connects the models: on 36 held-out items"),
        ({"model": model, "new_vectors": newer["noise"]}, "vectors of 6 numbers, but the new model's have 9"),
        ({"new_vectors": feature_set("few", features[:9], None, ids[:9])}, "has ids of 9 stored vectors"),
        ({"new_vectors": feature_set("no ids", features)}, "no ids: has no ids"),
        ({"new_vectors": feature_set("other", features, None, np.arange(121))}, "has ids of 0 stored vectors"),
        ({"new_vectors": feature_set("nan", broken, None, ids)}, "NaN or infinity"),
        (
            {"model": model, "bridge": "rotation"},
            "an attached gallery has no images to embed; give the new model's vectors",
        ),
        ({"new_vectors": newer["turned"], "bridge": "magic"}, "unknown kind of bridge 'magic'"),
        ({"bridge": "none", "new_vectors": newer["turned"]}, "not both"),
        ({"model": model}, "give its vectors of some items to fit a bridge"),
    ]
    with AttachedGallery.attach(tmp_path / "gallery", in_qdrant) as gallery:
        for options, message in cases:
            with pytest.raises(HoldfastError) as refused:
                gallery.register(**options)
            assert message in str(refused.value)
            assert "\n" not in str(refused.value)
            assert [one.number for one in gallery.versions()] == [0]
            assert [folder.name for folder in (tmp_path / "gallery" / "versions").iterdir()] == ["0000"]
        forced = gallery.register(new_vectors=newer["noise"], force=True)
        assert forced.bridges[0]["agrees_beyond_chance"] is False
        assert gallery.register(new_vectors=newer["wider"]).number == 2  # also an identity
        with pytest.raises(HoldfastError, match="this model is a version already"):
            gallery.register(new_vectors=newer["wider"])


def test_an_interrupted_registration_changes_nothing_and_can_be_repeated(
    in_qdrant, newer, stored, tmp_path, monkeypatch
):
    """The record is written last."""

    def full(*arguments: object) -> None:
        raise OSError("no space left on device")

    with AttachedGallery.attach(tmp_path / "gallery", in_qdrant) as gallery:
        before = (tmp_path / "gallery" / "attached.json").read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr("holdfast.gallery.attached.attached_gallery.write_json", full)
            with pytest.raises(OSError, match="no space"):
                gallery.register(new_vectors=newer["turned"])
        assert (tmp_path / "gallery" / "attached.json").read_bytes() == before
        assert [one.number for one in gallery.versions()] == [0]
        assert gallery.search(vector=stored["features"][5], k=1)[0].id == stored["ids"][5]
    with open_gallery(tmp_path / "gallery") as gallery:
        assert gallery.register(new_vectors=newer["wider"]).number == 1
        with np.load(newer["wider"]) as held:
            assert gallery.search(vector=held["features"][5], k=1)[0].id == stored["ids"][5]


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
def test_what_is_no_store_of_vectors_is_refused(in_postgres, change, message, tmp_path):
    with pytest.raises(HoldfastError) as refused:
        AttachedGallery.attach(tmp_path / "gallery", replace(in_postgres, **change))
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
def test_what_is_no_collection_of_vectors_is_refused(in_qdrant, change, message, tmp_path):
    with pytest.raises(HoldfastError) as refused:
        AttachedGallery.attach(tmp_path / "gallery", replace(in_qdrant, **change))
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


def test_pages_of_equal_vectors_fit_together(in_postgres, in_qdrant, stored, server, tmp_path):
    """Stores return any of the vectors with an equal cosine; pgvector's cosine with a zero vector is NaN."""
    import psycopg
    from psycopg import sql
    from qdrant_client import QdrantClient, models

    draw = np.random.default_rng(5)
    rows = {f"{'aZ-é_'[i % 5]}{i}": stored["features"][i % 3] for i in draw.permutation(90).tolist()}
    table = sql.Identifier(in_postgres.table.split(".")[0], "twice")
    with psycopg.connect(server, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(sql.SQL("CREATE TABLE {} (id text PRIMARY KEY, v vector(6))").format(table))
        insert = sql.SQL("INSERT INTO {} VALUES (%s, %s)").format(table)
        cursor.executemany(insert, [(name, str(row.tolist())) for name, row in rows.items()])
        cursor.execute(insert, ("zero", str([0.0] * DIM)))
    client = QdrantClient(path=str(tmp_path / "twice"))
    client.create_collection("items", models.VectorParams(size=DIM, distance=models.Distance.COSINE))
    points = [
        models.PointStruct(id=i, vector=row.tolist(), payload={"name": name})
        for i, (name, row) in enumerate(rows.items())
    ]
    client.upsert("items", points)
    client.close()
    addresses = (
        Address(server, in_postgres.table.split(".")[0] + ".twice", "id", "v"),
        Address(f"qdrant:{tmp_path / 'twice'}", "items", "name", ""),
    )
    for number, where in enumerate(addresses):
        with AttachedGallery.attach(tmp_path / str(number), where) as gallery:
            whole = gallery.search(vector=stored["features"][0], k=100)
            assert sorted(hit.id for hit in whole) == sorted(rows)
            best = cosines(stored["features"][0], stored["features"][:3])
            same = {name: round(float(best[int(name[1:]) % 3]), 4) for name in rows}
            assert [hit.id for hit in whole] == sorted(rows, key=lambda name: (-same[name], name))
            pages = [gallery.search(vector=stored["features"][0], k=7, offset=start) for start in range(0, 90, 7)]
            assert [hit.id for page in pages for hit in page] == [hit.id for hit in whole]


def test_points_are_fetched_by_their_own_ids_and_by_fields(in_qdrant, stored):
    """Numbers, as numbers or text, beside names that no point can have."""
    for address, ids in ((replace(in_qdrant, id="id"), ["3", "50"]), (in_qdrant, ["item-003", "item-050"])):
        source = open_source(address)
        found = source.fetch([*ids, "no/such.png", "999", "²"])
        assert source.fetch(["none"]) == {}
        source.close()
        assert sorted(found) == ids
        np.testing.assert_allclose(
            cosines_of_rows(np.stack([found[name] for name in ids]), stored["features"][[3, 50]]), 1, atol=1e-6
        )


def test_a_folder_of_a_store_is_found_from_everywhere(in_qdrant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relative = replace(in_qdrant, url="qdrant:qdrant")
    AttachedGallery.attach(tmp_path / "gallery", relative).close()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with AttachedGallery.open(tmp_path / "gallery") as gallery:
        assert gallery.search(id="item-003", k=1)


def test_another_model_is_not_version_0(address, tmp_path, model_folders):
    with pytest.raises(HoldfastError, match="its features have 59 numbers, compact ones 32, but the stored ones 6"):
        AttachedGallery.attach(tmp_path / "gallery", address, model_folders[0])


def test_no_password_is_kept(in_postgres, tmp_path):
    url = in_postgres.url.replace("holdfast@", "holdfast:secret@")
    AttachedGallery.attach(tmp_path / "gallery", replace(in_postgres, url=url)).close()
    record = (tmp_path / "gallery" / "attached.json").read_text()
    assert "secret" not in record
    assert json.loads(record)["address"]["table"] == in_postgres.table
    assert without_password("postgresql://me:word@host/db?x=1") == "postgresql://me@host/db?x=1"


def test_queries_whose_length_float32_cannot_hold(in_qdrant, stored, tmp_path):
    query = stored["features"][3]
    with AttachedGallery.attach(tmp_path / "gallery", in_qdrant) as gallery:
        usual, long = (gallery.search(vector=query * np.float32(scale), k=5) for scale in (1, 1e37))
    assert [hit.id for hit in long] == [hit.id for hit in usual]
    assert [hit.cosine for hit in long] == pytest.approx([hit.cosine for hit in usual])


@pytest.mark.parametrize("change", [{"versions": [{"a": 1}]}, {"versions": 3}, {"address": {"url": 1}}])
def test_a_damaged_record_is_one_line(in_qdrant, tmp_path, change):
    AttachedGallery.attach(tmp_path / "gallery", in_qdrant).close()
    file = tmp_path / "gallery" / "attached.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(HoldfastError, match=r"attached\.json: damaged \([^\n]*\); restore it from a backup$"):
        AttachedGallery.open(tmp_path / "gallery")


def test_two_processes_do_not_register_the_same_number(in_postgres, tmp_path):
    for name, seed in (("first", 0), ("second", 1)):
        torch.manual_seed(seed)
        network = build_backbone("linear", in_channels=DIM, width=DIM)
        Encoder(network, preprocess=VectorInput(DIM)).save_pretrained(tmp_path / name)
    AttachedGallery.attach(tmp_path / "g", in_postgres).close()
    with open_gallery(tmp_path / "g") as late:
        with open_gallery(tmp_path / "g") as early:
            early.register(tmp_path / "first")
        with pytest.raises(HoldfastError, match="another process has registered a version since it was opened"):
            late.register(tmp_path / "second")
    with open_gallery(tmp_path / "g") as again:
        assert again.register(tmp_path / "second").number == 2
        elsewhere = pytest.raises(HoldfastError, match="the gallery is open elsewhere")
        with again.alone(), open_gallery(tmp_path / "g") as other, elsewhere:  # as the service holds it
            other.register(tmp_path / "first")

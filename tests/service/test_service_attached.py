"""Somebody else's store served over HTTP: searched by newer models, never written."""

import json

import numpy as np
import pytest
from service_inputs import png, serving
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.core.errors import HoldfastError
from holdfast.gallery import Address, AttachedGallery
from holdfast.gallery.attached.source import without_password
from holdfast.service.access_control import AccessControl
from holdfast.service.served_gallery import run_on_server
from holdfast.service.server import serve
from holdfast.train.encoders import Encoder, VectorInput, build_backbone

PNG = {"Content-Type": "image/png"}


@pytest.fixture
def attached(models, pictures, tmp_path):
    """A Qdrant folder with the first model's features of the pictures, attached."""
    qdrant = pytest.importorskip("qdrant_client")
    made = qdrant.models
    features = Encoder.from_pretrained(models[0]).encode(pictures[..., None]).numpy()
    store = qdrant.QdrantClient(path=str(tmp_path / "qdrant"))
    store.create_collection("things", made.VectorParams(size=features.shape[1], distance=made.Distance.COSINE))
    rows = enumerate(features.tolist())
    store.upsert("things", [made.PointStruct(id=n, vector=row, payload={"kind": "ab"[n % 2]}) for n, row in rows])
    store.close()
    address = Address(f"qdrant:{tmp_path / 'qdrant'}", "things", "id", "", "kind")
    with AttachedGallery.attach(tmp_path / "a", address, models[0]) as gallery:
        yield gallery


@pytest.fixture
def client(attached, tmp_path):
    with attached.alone(), serving(attached, AccessControl({})) as made:
        yield made


def test_searches_and_state(client, attached, models, pictures, tmp_path):
    found = client.post("/v1/search/image?k=3", content=png(pictures[7]), headers=PNG).json()
    assert (found["version"], found["hits"][0]["id"], found["hits"][0]["label"]) == (0, "7", "b")
    assert found["hits"][0]["score"] == pytest.approx(1, abs=1e-5)
    assert [hit["id"] for hit in found["hits"]] == [hit.id for hit in attached.search(pictures[7], k=3)]
    vector = Encoder.from_pretrained(models[0]).encode(pictures[9][None, ..., None])[0].tolist()
    for version in ({}, {"version": 0}):
        hits = client.post("/v1/search/vector", json={"vector": vector, "k": 2, **version}).json()["hits"]
        assert hits[0]["id"] == "9"
    assert "9" not in [hit["id"] for hit in client.post("/v1/search/id", json={"id": "9"}).json()["hits"]]
    assert client.post("/v1/search/id", json={"id": "400"}).status_code == 404
    assert client.post("/v1/search/vector", json={"vector": vector, "version": 1}).status_code == 422
    query = {"vector": vector, "k": 4, "filter": {"kind": "a"}}
    hits = [client.post("/v1/search/vector", json={**query, "offset": n}).json()["hits"] for n in (0, 2)]
    assert {hit["label"] for page in hits for hit in page} == {"a"}
    assert [hit["id"] for hit in hits[0][2:]] == [hit["id"] for hit in hits[1][:2]]
    assert client.post("/v1/search/vector", json={**query, "filter": {"nothing": "a"}}).status_code == 422
    about = client.get("/v1/gallery").json()
    assert (about["items"], about["newest"], about["scope"]) == (40, 0, "read")
    assert client.get("/v1/ready").json() == {"status": "ready", "version": 0}
    assert "holdfast_gallery_newest_version 0" in client.get("/metrics").text

    version = run_on_server(tmp_path / "a", "register", model=str(models[1]))
    assert version["number"] == 1
    rows = client.get("/v1/versions").json()["versions"]
    assert [(row["number"], row["items"], row["newest"]) for row in rows] == [(0, 40, False), (1, 0, True)]
    asked = client.post("/v1/search/image", content=png(pictures[7]), headers=PNG).json()
    assert asked["version"] == 1
    assert [hit["id"] for hit in asked["hits"]] == [hit.id for hit in attached.search(pictures[7], version=1)]


def test_a_foreign_model_of_another_size_is_registered_and_its_queries_are_bridged(
    client, attached, models, pictures, tmp_path
):
    """Its vectors come from a file that the serving process reads; the page is told of the bridge."""
    stored = Encoder.from_pretrained(models[0]).encode(pictures[..., None]).numpy()
    foreign = stored @ np.linalg.qr(np.random.default_rng(0).normal(size=(70, stored.shape[1])))[0].T
    backbone = build_backbone("linear", in_channels=3, width=70)
    Encoder(backbone, preprocess=VectorInput(3)).save_pretrained(tmp_path / "foreign")
    np.savez(tmp_path / "new.npz", features=foreign, ids=np.arange(len(stored)))
    given = {"model": str(tmp_path / "foreign"), "new_vectors": str(tmp_path / "new.npz")}
    version = run_on_server(tmp_path / "a", "register", **given)
    assert (version["number"], version["bridges"][0]["agrees_beyond_chance"]) == (1, True)
    rows = client.get("/v1/versions").json()["versions"]
    assert [len(row["bridges"]) for row in rows] == [0, 1]
    for version in ({}, {"version": 1}):
        found = client.post("/v1/search/vector", json={"vector": foreign[9].tolist(), "k": 2, **version}).json()
        assert (found["version"], found["hits"][0]["id"]) == (1, "9")
        assert found["hits"][0]["cosine"] == pytest.approx(1, abs=0.05)
    as_stored = client.post("/v1/search/vector", json={"vector": stored[9].tolist(), "version": 0}).json()
    assert (as_stored["version"], as_stored["hits"][0]["id"]) == (0, "9")
    assert client.post("/v1/search/vector", json={"vector": stored[9].tolist(), "version": 1}).status_code == 422


def test_writes_are_refused(client, attached, pictures, tmp_path):
    for answer in (
        client.put("/v1/item?id=x", content=png(pictures[0]), headers=PNG),
        client.post("/v1/items", json={"items": [{"id": "x", "vector": [1.0] * 59}]}),
        client.delete("/v1/item?id=7"),
        client.post("/v1/items/delete", json={"ids": ["7"]}),
    ):
        assert answer.status_code == 403, answer.text
        assert "attached to a store and only reads it" in answer.json()["error"]["reason"]
    for verb, options in (("backfill", {}), ("rollback", {}), ("delete", {"ids": ["7"]})):
        with pytest.raises(HoldfastError, match="attached, and so read-only"):
            run_on_server(tmp_path / "a", verb, **options)
    assert attached.stats()["items"] == 40


def test_one_process_serves_it_and_no_verb_takes_it_for_another_kind(attached, tmp_path):
    with attached.alone(), pytest.raises(HoldfastError, match="open elsewhere"), attached.alone():
        pass
    attached.close()  # a folder of Qdrant's is open once
    for words in (("backfill",), ("rollback",), ("move", "--to", "embedded"), ("delete", "7")):
        verb, *options = words
        done = CliRunner().invoke(app, ["gallery", verb, str(tmp_path / "a"), *options])
        assert isinstance(done.exception, HoldfastError), done.output
        assert "attached, and so read-only" in str(done.exception)
    rows = json.loads(CliRunner().invoke(app, ["gallery", "versions", str(tmp_path / "a"), "--json"]).stdout)
    assert [(row["number"], row["items"]) for row in rows] == [(0, 40)]
    with pytest.raises(HoldfastError, match="without tokens the service is for this machine only"):
        serve(tmp_path / "a", host="0.0.0.0", port=0, access=AccessControl({}, ()))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:pw@h/db", "postgresql://u@h/db"),
        ("postgresql://u@h/db?password=pw", "postgresql://u@h/db"),
        ("postgresql://u@h/db?sslmode=require&PassWord=pw&host=x", "postgresql://u@h/db?sslmode=require&host=x"),
        ("postgresql://u@h/db?pass%77ord=pw", "postgresql://u@h/db"),
        ("https://h:6333/?api_key=pw", "https://h:6333/"),
        ("postgresql:///db?host=/run", "postgresql:///db?host=/run"),
        ("qdrant:/some/folder", "qdrant:/some/folder"),
    ],
)
def test_no_password_is_kept_or_shown(url, shown):
    assert without_password(url) == shown
    assert Address(url, "t", "id", "v").shown == shown

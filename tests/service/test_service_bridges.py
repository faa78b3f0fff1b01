"""A gallery with bridges over HTTP, and models registered with bridge options while the gallery is served."""

import json

import numpy as np
import pytest
from service_inputs import png
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.core.errors import HoldfastError
from holdfast.gallery import Item
from holdfast.service.served_gallery import ServedGallery, run_on_server
from holdfast.train.encoders import Encoder
from holdfast.vectors import feature_set

PNG = {"Content-Type": "image/png"}


@pytest.fixture
def bridged(gallery, models, pictures):
    """40 items of version 1 and 10 of version 2, which has a bridge to version 1."""
    gallery.register(models[1], force=True, bridge="rotation")
    gallery.add([Item(f"new/{n}", image=255 - pictures[n]) for n in range(10)])
    return gallery


def test_hits_carry_score_and_cosine(bridged, client, pictures):
    answer = client.post("/v1/search/image?k=50", content=png(pictures[7]), headers=PNG).json()
    expected = bridged.search(pictures[7], k=50)
    assert [hit["id"] for hit in answer["hits"]] == [hit.id for hit in expected]
    assert [hit["score"] for hit in answer["hits"]] == pytest.approx([hit.score for hit in expected], abs=1e-5)
    assert [hit["cosine"] for hit in answer["hits"]] == pytest.approx([hit.cosine for hit in expected], abs=1e-5)
    (record,) = bridged.newest().bridges
    scale = record["scale"]
    assert (scale["slope"], scale["offset"]) != (1, 0)
    for hit in answer["hits"]:
        merged = scale["offset"] + scale["slope"] * hit["cosine"] if hit["version"] == 1 else hit["cosine"]
        assert hit["score"] == pytest.approx(merged, abs=1e-5)
    vector = np.ones(32).tolist()
    for kind, query in (("vector", {"vector": vector}), ("id", {"id": "a/4"})):
        hits = client.post(f"/v1/search/{kind}", json={**query, "k": 50}).json()["hits"]
        assert {"score", "cosine"} <= set(hits[0])
        assert {hit["version"] for hit in hits} == {1, 2}


def test_one_versions_items_keep_their_scores(bridged, client, pictures):
    """The scale is the same whether one version is searched or all."""
    body = png(pictures[7])
    both = client.post("/v1/search/image?k=50", content=body, headers=PNG).json()["hits"]
    old = client.post("/v1/search/image?k=50&indexed_by=1", content=body, headers=PNG).json()["hits"]
    assert old == [hit for hit in both if hit["version"] == 1]


def test_versions_have_their_bridges(bridged, client):
    first, second = client.get("/v1/versions").json()["versions"]
    assert first["bridges"] == []
    (bridge,) = second["bridges"]
    assert bridge == bridged.newest().bridges[0]
    assert (bridge["version"], bridge["kind"]) == (1, "rotation")
    assert {"pairs", "held_out", "value", "without", "exposure", "exposure_without", "agrees_beyond_chance"} <= set(
        bridge
    )


def test_openapi_describes_both_figures(client):
    hit = client.get("/v1/openapi.json").json()["components"]["schemas"]["SearchHit"]
    assert {"score", "cosine"} <= set(hit["required"])
    assert hit["properties"]["cosine"]["description"]


def test_no_request_registers_a_model(client):
    for method, path in (("POST", "/v1/versions"), ("POST", "/v1/register"), ("PUT", "/v1/versions")):
        answer = client.request(method, path, json={"model": "/tmp", "bridge": "auto", "new_vectors": "/etc/passwd"})
        assert answer.status_code in (404, 405), answer.text


@pytest.fixture
def served(gallery, make_client, tmp_path):
    """A client of the process that serves the gallery, and the gallery's folder."""
    make_client(served=True)
    return ServedGallery(tmp_path / "g"), tmp_path / "g"


def new_vectors(file, model, pictures):
    """A file of the model's vectors of the first 30 items."""
    rows = Encoder.from_pretrained(model).encode(pictures[:30, ..., None]).numpy()
    np.savez(file, features=rows, ids=np.array([f"{'ab'[n % 2]}/{n}" for n in range(30)]))
    return rows


def test_register_passes_the_options_of_bridges(served, gallery, models, pictures, tmp_path, monkeypatch):
    opened, _ = served
    stages = []
    monkeypatch.chdir(tmp_path)  # the serving process has a working directory of its own
    new_vectors("new.npz", models[1], pictures)
    version = opened.register(
        models[1],
        force=True,
        bridge="affine",
        bridge_pairs=12,
        new_vectors="new.npz",
        progress=lambda *told: stages.append(told),
    )
    assert version == gallery.newest()
    (record,) = version.bridges
    assert (record["kind"], record["pairs"]) == ("affine", 12)
    assert stages
    assert all(isinstance(stage, str) and 0 <= done <= total for stage, done, total in stages)


def test_register_by_the_command_line(served, gallery, models, pictures, tmp_path):
    _, folder = served
    new_vectors(tmp_path / "new.npz", models[1], pictures)
    words = ["--bridge", "rotation", "--new-vectors", str(tmp_path / "new.npz"), "--force", "--json"]
    done = CliRunner().invoke(app, ["gallery", "register", str(folder), str(models[1]), *words])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["bridges"] == gallery.newest().bridges
    assert gallery.newest().bridges[0]["kind"] == "rotation"


def test_register_refuses_and_nothing_changes(served, gallery, models, pictures, tmp_path):
    opened, folder = served
    rows = new_vectors(tmp_path / "new.npz", models[1], pictures)
    with pytest.raises(HoldfastError, match="is being served; give the vectors as a file"):
        opened.register(models[1], new_vectors=feature_set("new", rows, ids=np.arange(len(rows))))
    with pytest.raises(HoldfastError, match="unknown kind of bridge 'shear'"):
        opened.register(models[1], bridge="shear")
    with pytest.raises(HoldfastError, match="at least 10 pairs"):
        opened.register(models[1], bridge_pairs=3)
    with pytest.raises(HoldfastError, match=r"nowhere\.npz: no such file"):
        opened.register(models[1], new_vectors=tmp_path / "nowhere.npz")
    with pytest.raises(HoldfastError, match="unexpected keyword argument 'shape'"):
        run_on_server(folder, "register", model=str(models[1]), shape=3)
    assert [one.number for one in gallery.versions()] == [1]

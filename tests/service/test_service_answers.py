"""What the endpoints answer is what the gallery says."""

import asyncio
import base64
import io
import json
import logging
import threading
import time

import httpx2
import numpy as np
import pytest
from PIL import Image
from service_inputs import ADDRESS, metric_values, png
from starlette.testclient import TestClient

from holdfast.gallery import Gallery, Item
from holdfast.service.access_control import AccessControl
from holdfast.service.app import build_app
from holdfast.service.gallery_jobs import ImageEmbedder
from holdfast.service.worker_pool import _Worker
from holdfast.train.encoders import Encoder, VectorInput, build_backbone

PNG = {"Content-Type": "image/png"}


def listed(answer):
    assert answer.status_code == 200, answer.text
    return [(hit["id"], pytest.approx(hit["score"], abs=1e-5)) for hit in answer.json()["hits"]]


def search_ids(gallery, **query):
    return [(hit.id, hit.score) for hit in gallery.search(**query)]


def test_search_by_image(client, gallery, pictures):
    answer = client.post("/v1/search/image?k=5", content=png(pictures[7]), headers=PNG)
    assert listed(answer) == search_ids(gallery, image=pictures[7], k=5)
    first = answer.json()["hits"][0]
    assert (first["id"], first["label"], first["metadata"], first["image"]) == ("b/7", "b", {"price": 7}, True)
    assert answer.json()["version"] == 1
    where = {"label": "a", "price": {"lt": 9}}
    found = client.post(f"/v1/search/image?filter={json.dumps(where)}", content=png(pictures[7]), headers=PNG)
    assert listed(found) == search_ids(gallery, image=pictures[7], filter=where)
    assert {hit["label"] for hit in found.json()["hits"]} == {"a"}


def test_search_by_vector_as_numbers_and_as_bytes(client, gallery):
    vector = np.random.default_rng(1).standard_normal(32).astype("<f4")
    expected = search_ids(gallery, vector=vector, k=3)
    for form in (vector.tolist(), base64.b64encode(vector.tobytes()).decode()):
        assert listed(client.post("/v1/search/vector", json={"vector": form, "k": 3})) == expected
        query = {"vector": form, "k": 3, "version": 1, "exact": True}
        assert listed(client.post("/v1/search/vector", json=query)) == expected


def test_search_by_id(client, gallery):
    answer = client.post("/v1/search/id", json={"id": "a/4", "k": 4, "filter": {"price": [1, 2, 3]}})
    assert listed(answer) == search_ids(gallery, id="a/4", k=4, filter={"price": [1, 2, 3]})
    assert len(answer.json()["hits"]) == 3


def test_pages_of_hits(client, gallery, pictures):
    everything = search_ids(gallery, id="a/4", k=30)
    for offset in (0, 10, 20):
        page = client.post("/v1/search/id", json={"id": "a/4", "k": 10, "offset": offset})
        assert listed(page) == everything[offset : offset + 10]
    image = client.post("/v1/search/image?k=3&offset=2", content=png(pictures[7]), headers=PNG)
    assert listed(image) == search_ids(gallery, image=pictures[7], k=5)[2:]
    refused = client.post("/v1/search/image?k=500&offset=501", content=png(pictures[7]), headers=PNG)
    assert refused.status_code == 422
    assert "k and offset together are at most 1000" in refused.json()["error"]["reason"]


def test_search_among_some_versions_items(client, gallery, models, pictures):
    gallery.register(models[1], force=True)
    gallery.add([Item("new", image=pictures[7])])
    body = png(pictures[7])
    for versions in ([1], [2], [1, 2]):
        expected = search_ids(gallery, image=pictures[7], k=50, indexed_by=versions)
        named = "&".join(f"indexed_by={number}" for number in versions)
        answer = client.post(f"/v1/search/image?k=50&{named}", content=body, headers=PNG)
        assert listed(answer) == expected
        assert {hit["version"] for hit in answer.json()["hits"]} == set(versions)
        vector = gallery.models.query_vector(pictures[7], None, gallery.newest())
        query = {"vector": vector.tolist(), "k": 50, "indexed_by": versions}
        assert listed(client.post("/v1/search/vector", json=query)) == expected
        by_id = client.post("/v1/search/id", json={"id": "new", "k": 50, "indexed_by": versions})
        assert listed(by_id) == search_ids(gallery, id="new", k=50, indexed_by=versions)


@pytest.mark.parametrize("indexed_by", [[], [3], [-1], "1", [1.5], [True]])
def test_invalid_indexed_by(client, indexed_by):
    answer = client.post("/v1/search/id", json={"id": "a/4", "indexed_by": indexed_by})
    assert answer.status_code == 422, answer.text
    for given in ("x", "3", "-1", "99999999999999999999"):
        answer = client.post(f"/v1/search/image?indexed_by={given}", content=b"", headers=PNG)
        assert answer.status_code == 422, answer.text


def test_an_empty_label_is_none(client, pictures):
    client.put("/v1/item", params={"id": "new", "label": ""}, content=png(pictures[3]), headers=PNG)
    assert client.get("/v1/item", params={"id": "new"}).json().get("label") is None


def test_add_get_replace_delete(client, gallery, pictures):
    query = {"id": "new/ü 1", "label": "c", "metadata": '{"shop": "north", "sold": true}'}
    answer = client.put("/v1/item", params=query, content=png(pictures[3]), headers=PNG)
    assert answer.json() == {"stored": 1, "version": 1}
    shown = client.get("/v1/item", params={"id": "new/ü 1"}).json()
    metadata = {"shop": "north", "sold": True}
    assert shown == {"id": "new/ü 1", "version": 1, "label": "c", "metadata": metadata, "image": False}
    assert gallery.search(pictures[3], k=2)[1].score == pytest.approx(1, abs=1e-5)

    vector = np.eye(32)[0].tolist()
    items = [{"id": "new/ü 1", "vector": vector}, {"id": "x", "image": base64.b64encode(png(pictures[4])).decode()}]
    assert client.post("/v1/items", json={"items": items}).json() == {"stored": 2, "version": 1}
    assert client.get("/v1/item", params={"id": "new/ü 1"}).json()["metadata"] == {}
    assert client.get("/v1/gallery").json()["items"] == 42

    assert client.delete("/v1/item", params={"id": "x"}).json() == {"deleted": ["x"], "unknown": []}
    assert client.delete("/v1/item", params={"id": "x"}).status_code == 404
    gone = client.post("/v1/items/delete", json={"ids": ["new/ü 1", "x"]}).json()
    assert gone == {"deleted": ["new/ü 1"], "unknown": ["x"]}
    assert client.get("/v1/gallery").json()["items"] == 40


def test_thumbnails(client, gallery, tmp_path):
    large = tmp_path / "large.png"
    Image.linear_gradient("L").resize((800, 400)).save(large)
    gallery.add([Item("large", path=large), Item("lost", vector=[1.0] * 32, path=tmp_path / "nowhere.png")])
    gallery.add([Item("none", vector=[1.0] * 32)])
    answer = client.get("/v1/item/thumbnail", params={"id": "large", "size": 100})
    assert answer.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(answer.content)).size == (100, 50)
    for name in ("lost", "none", "unknown"):
        answer = client.get("/v1/item/thumbnail", params={"id": name})
        assert answer.status_code == 404
        assert str(tmp_path) not in answer.text


def test_a_worker_outlives_the_folder_it_was_started_in(tmp_path, monkeypatch):
    image, folder = tmp_path / "a.png", tmp_path / "folder"
    Image.new("RGB", (64, 64)).save(image)
    folder.mkdir()
    with monkeypatch.context() as inside:
        inside.chdir(folder)
        worker = _Worker()
    folder.rmdir()
    task = {"task": "thumbnail", "path": str(image), "side": 16, "max_pixels": 10**6, "memory": 2**28, "seconds": 5}
    header, made = worker.answer(task, b"")
    worker.close()
    assert "reason" not in header
    assert Image.open(io.BytesIO(made)).size == (16, 16)


def test_versions_and_matrix(make_client, gallery, models):
    assert make_client().get("/v1/versions").json()["matrix"] == []
    gallery.register(models[1], force=True)
    gallery.add([Item("late", vector=[1.0] * 32)])
    found = make_client().get("/v1/versions").json()
    assert [(row["number"], row["items"], row["newest"]) for row in found["versions"]] == [(1, 40, False), (2, 1, True)]
    assert [row["share"] for row in found["versions"]] == [pytest.approx(40 / 41), pytest.approx(1 / 41)]
    assert [(row["name"], row["backbone"]) for row in found["versions"]] == [("first", "small"), ("second", "small")]
    (cell,) = found["matrix"]
    (check,) = gallery.versions()[1].checks
    assert (cell["query"], cell["items"]) == (2, 1)
    assert (cell["verdict"], cell["gain"]) == (check["verdict"], check["gain"])


def test_matrix_without_checks(models, make_client, gallery):
    gallery.delete([f"{'ab'[n % 2]}/{n}" for n in range(40)])
    gallery.register(models[1])
    found = make_client().get("/v1/versions").json()
    assert [row["share"] for row in found["versions"]] == [None, None]
    assert found["matrix"][0]["verdict"] is None
    assert "not checked" in found["matrix"][0]["reason"]


def test_no_answer_contains_a_path(client, gallery, models, pictures):
    gallery.register(models[1], force=True)
    answers = [
        client.post("/v1/search/image", content=png(pictures[7]), headers=PNG),
        client.post("/v1/search/id", json={"id": "a/4"}),
        *(client.get(path) for path in ("/v1/item?id=a/4", "/v1/versions", "/v1/gallery", "/metrics", "/v1/ready")),
    ]
    for answer in answers:
        assert answer.status_code == 200
        assert "/tmp" not in answer.text
        assert str(models[0].parent) not in answer.text


def test_metrics_count(client, pictures):
    for _ in range(3):
        client.post("/v1/search/image", content=png(pictures[0]), headers=PNG)
    client.get("/nowhere")
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = metric_values(answer.text)
    assert found["holdfast_requests_total", ("GET", "unmatched", "404")] == 1
    assert found["holdfast_requests_total", ("POST", "/v1/search/image", "200")] == 3
    assert found["holdfast_request_seconds_bucket", ("+Inf", "/v1/search/image")] == 3
    assert found["holdfast_request_seconds_bucket", ("1.0", "unmatched")] == 1
    assert found["holdfast_request_seconds_count", ("/v1/search/image",)] == 3
    assert found["holdfast_request_seconds_sum", ("/v1/search/image",)] > 0
    assert found["holdfast_requests_in_flight", ()] == 1
    assert found["holdfast_queue_jobs_total", ("encoder",)] == 3
    assert found["holdfast_queue_waiting", ("writer",)] == 0
    assert found["holdfast_gallery_items", ("1",)] == 40
    assert found["holdfast_gallery_newest_version", ()] == 1
    assert not [name for name, _ in found if name.endswith("_created")]
    lines = answer.text.splitlines()
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(set(families)) == len(families)


def test_metrics_tell_shares_of_items_and_of_first_places(client, gallery, models, pictures):
    """30 items stay with version 1, 10 are added by version 2; places are counted only where all items compete."""
    gallery.delete([f"{'ab'[n % 2]}/{n}" for n in range(30, 40)])
    gallery.register(models[1], force=True)
    gallery.add(Item(f"new/{n}", image=pictures[n]) for n in range(30, 40))
    expected = {"1": 0, "2": 0}
    for n in (3, 31, 35):
        hits = client.post("/v1/search/image?k=20", content=png(pictures[n]), headers=PNG).json()["hits"]
        for hit in hits[:10]:
            expected[str(hit["version"])] += 1
    assert sum(expected.values()) == 30
    for body in ({"filter": {"label": "a"}}, {"indexed_by": [1]}, {"offset": 5}):
        client.post("/v1/search/id", json={"id": "a/4", **body})
    found = metric_values(client.get("/metrics").text)
    assert {number: found["holdfast_first_places_total", (number,)] for number in "12"} == expected
    assert found["holdfast_gallery_share", ("1",)] == 0.75
    assert found["holdfast_gallery_share", ("2",)] == 0.25
    (bridge,) = gallery.newest().bridges
    assert found["holdfast_bridge_in_use", (bridge["kind"], "1")] == 1
    assert len([name for name, _ in found if name == "holdfast_bridge_in_use"]) == 1
    exposure = bridge["exposure"].get("10")
    assert found.get(("holdfast_bridge_expected_exposure", ("1",))) == (exposure and pytest.approx(exposure))


def test_applications_in_one_process_count_for_themselves(make_client):
    first, second = make_client(), make_client()
    first.get("/v1/health")
    assert metric_values(first.get("/metrics").text)["holdfast_requests_total", ("GET", "/v1/health", "200")] == 1
    assert ("holdfast_requests_total", ("GET", "/v1/health", "200")) not in metric_values(second.get("/metrics").text)


def test_page(client):
    answer = client.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'self'; ")
    assert answer.headers["x-content-type-options"] == "nosniff"
    for name in ("../app.py", "%2e%2e/app.py", "..%2fapp.py", "/etc/passwd", "app.py", ""):
        assert client.get(f"/static/{name}").status_code == 404
    assert client.get("/static/index.html").content == answer.content


def test_a_gallery_of_vectors_only(tmp_path):
    encoder = Encoder(build_backbone("mlp", in_channels=6, width=4), 3, preprocess=VectorInput(6))
    encoder.save_pretrained(tmp_path / "model")
    with Gallery.create(tmp_path / "g", tmp_path / "model") as gallery:
        gallery.add([Item("x", vector=[1.0, 0.0, 0.0])])
        assert not ImageEmbedder(gallery).takes_images()
        with TestClient(build_app(gallery, access=AccessControl({})), base_url=ADDRESS) as client:
            found = client.post("/v1/search/vector", json={"vector": [1.0, 0.0, 0.0]})
            assert listed(found) == [("x", 1.0)]
            refused = client.post("/v1/search/image", content=b"x", headers=PNG)
    assert (refused.status_code, "takes no images" in refused.text) == (422, True)


def test_a_damaged_file_of_the_gallery_is_not_named(client, gallery, tmp_path, caplog):
    gallery._state.folder.version(1).joinpath("basis.npy").write_bytes(b"x")
    gallery._state.models.basis_of.cache_clear()
    answer = client.post("/v1/search/vector", json={"vector": [1.0] * 59, "version": 1, "k": 1})
    assert answer.status_code == 500
    assert answer.json()["error"]["reason"] == "internal error of the service; see its log"
    assert str(tmp_path) in caplog.text  # the log does


def test_stats_that_are_asked_for_at_once_are_read_once(gallery, monkeypatch):
    app, read, stats = build_app(gallery, access=AccessControl({})), [], gallery.stats

    def slow():
        read.append(1)
        time.sleep(0.2)
        return stats()

    monkeypatch.setattr(gallery, "stats", slow)

    async def run():
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url=ADDRESS) as client:
            return await asyncio.gather(*(client.get("/v1/ready") for _ in range(10)))

    assert [answer.status_code for answer in asyncio.run(run())] == [200] * 10
    assert len(read) == 1


def test_stats_are_those_after_the_last_write(client, gallery, monkeypatch):
    """Also if a reading that began before the write is still running."""
    stats, began, go = gallery.stats, threading.Event(), threading.Event()

    def slow():
        found = stats()
        began.set()
        assert go.wait(30)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(gallery, "stats", slow)
        reading = threading.Thread(target=client.get, args=("/v1/ready",))
        reading.start()
        assert began.wait(30)
    assert client.delete("/v1/item?id=a/0").status_code == 200
    assert sum(one["items"] for one in client.get("/v1/versions").json()["versions"]) == 39
    go.set()
    reading.join()
    assert sum(one["items"] for one in client.get("/v1/versions").json()["versions"]) == 39


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/search/vector", {"vector": [1.0] * 32}), ("/v1/search/id", {"id": "a/4"})]
)
def test_searches_without_the_router_are_counted_checked_and_logged(client, gallery, monkeypatch, caplog, path, body):
    """They have the headers, the counts and the errors of all other answers."""
    answer = client.post(path, json=body)
    assert answer.status_code == 200
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.get(path).status_code == 405
    assert client.post(path, json=body, headers={"Origin": "http://elsewhere.example"}).status_code == 403

    def fail(**query: object) -> None:
        raise KeyError("a mistake in the program")

    monkeypatch.setattr(gallery, "search", fail)
    with caplog.at_level(logging.ERROR):
        failed = client.post(path, json=body)
    assert failed.status_code == 500
    assert "mistake" not in failed.text
    assert "a mistake in the program" in caplog.text
    counts = metric_values(client.get("/metrics").text)
    assert counts["holdfast_requests_total", ("POST", path, "200")] == 1
    assert counts["holdfast_requests_total", ("POST", path, "500")] == 1

"""Bad input: a 4xx with a reason, nothing stored, the service alive."""

import base64
import io
import json
import math
import re
import shutil

import numpy as np
import pytest
from PIL import Image
from service_inputs import ADDRESS, bomb, png
from starlette.testclient import TestClient

from holdfast.gallery import Gallery
from holdfast.service.access_control import AccessControl
from holdfast.service.app import build_app
from holdfast.service.body_limits import Limits

PNG, JSON = {"Content-Type": "image/png"}, {"Content-Type": "application/json"}
GOOD = [1.0] * 32


def cut_jpeg():
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)).save(file, "JPEG")
    return file.getvalue()[: len(file.getvalue()) // 2]


IMAGES = {
    "not an image": (b"certainly not an image", "not readable as an image"),
    "empty": (b"", "not readable as an image"),
    "100 megapixels": (bomb(10_000, 10_000), "100000000 pixels, over the limit"),
    "a billion pixels": (bomb(100, 100).replace((100).to_bytes(4, "big"), (40_000).to_bytes(4, "big")), ""),
    "truncated": (cut_jpeg(), "not readable as an image"),
    "postscript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not readable"),
    "a path": (b"/etc/passwd", "not readable"),
}
VECTORS = {
    "wrong dimension": ({"vector": [1.0, 2.0]}, "32 or 59 numbers"),
    "NaN": ('{"vector": [NaN]}', "finite number"),
    "infinity": ({"vector": [1e39] * 32}, "NaN or infinity"),
    "infinity, whole": (f'{{"vector": [{"9" * 400}]}}', "vector"),
    "beyond doubles": ('{"vector": [1e999]}', "finite number"),
    "NaN in bytes": ({"vector": base64.b64encode(np.full(32, math.nan, "<f4").tobytes()).decode()}, "NaN"),
    "not base64": ({"vector": "!!"}, "not base64"),
    "half a number": ({"vector": "AAA="}, "not float32 numbers"),
    "text for numbers": ({"vector": ["1"] * 32}, "vector.0: must be a number"),
    "zero": ({"vector": [0.0] * 32}, "zero vector"),
    "none": ({"k": 3}, "vector: is missing"),
    "unknown version": ({"vector": GOOD, "version": 9}, "unknown version '9'; known: 1"),
    "version 0": ({"vector": GOOD, "version": 0}, "version"),
    "huge version": (f'{{"vector": [1], "version": {10**30}}}', "version"),
    "k = 0": ({"vector": GOOD, "k": 0}, "k: must be greater than or equal to 1"),
    "offset below zero": ({"vector": GOOD, "offset": -1}, "offset: must be greater than or equal to 0"),
    "offset too far": ({"vector": GOOD, "k": 5, "offset": 996}, "offset: 5 hits after 996; k and offset together"),
    "k huge": ({"vector": GOOD, "k": 10**9}, "k: 1000000000 hits; at most 1000"),
    "k no number": ({"vector": GOOD, "k": "3"}, "k: "),
    "k true": ({"vector": GOOD, "k": True}, "k: "),
    "unknown field": ({"vector": GOOD, "filter": {"colour": "red"}}, "unknown filter field 'colour'; known: label, "),
    "unknown bound": ({"vector": GOOD, "filter": {"price": {"about": 3}}}, "unknown bound"),
    "nested filter": ({"vector": GOOD, "filter": {"price": [[1]]}}, "filter.price"),
    "unknown key": ({"vector": GOOD, "path": "/etc/passwd"}, "path: is not a known field"),
    "no object": ("[]", "object"),
    "half JSON": ('{"vector": [1, ', "not valid JSON"),
    "deep JSON": ("[" * 60_000, "not valid JSON"),
    "deeper JSON": ("[" * 100_000, "the body has 100000 values; at most"),
    "broken Unicode": ('{"id": "\\ud800", "vector": [1]}', "not valid JSON"),
}
IDS = [
    "../../etc/passwd",
    "/etc/passwd",
    "a/../b",
    "..",
    ".",
    "a\\b",
    "~root",
    "%2e%2e%2fx",
    "x\0y",
    "x\ny",
    "\u3000",
    "x\u2028y",
    "x" * 513,
    "",
]


@pytest.fixture(scope="module")
def served(filled, tmp_path_factory):
    folder = shutil.copytree(filled, tmp_path_factory.mktemp("bad") / "g")
    limits = Limits(body=200_000, batch=3)
    with (
        Gallery.open(folder) as gallery,
        TestClient(build_app(gallery, access=AccessControl({}), limits=limits), base_url=ADDRESS) as client,
    ):
        yield gallery, client


@pytest.fixture
def refused(served):
    """Send a request; its status and reason, once it is sure that it was refused and nothing came of it."""
    gallery, client = served
    before = gallery.stats()

    def send(method, path, **options):
        answer = client.request(method, path, **options)
        assert 400 <= answer.status_code < 500, answer.text
        error = answer.json()["error"]
        assert error["status"] == answer.status_code
        assert error["reason"]
        assert "\n" not in error["reason"]
        assert client.get("/v1/health").json() == {"status": "ok"}
        after = gallery.stats()
        assert [after[name] for name in ("items", "fields")] == [before[name] for name in ("items", "fields")]
        assert [row["vectors"] for row in after["versions"]] == [row["vectors"] for row in before["versions"]]
        return answer.status_code, error["reason"]

    return send


@pytest.mark.parametrize("name", IMAGES)
def test_images(refused, name):
    content, reason = IMAGES[name]
    for method, path in (("POST", "/v1/search/image"), ("PUT", "/v1/item?id=new")):
        assert reason in refused(method, path, content=content, headers=PNG)[1]
    item = {"id": "new", "image": base64.b64encode(content).decode()}
    good = {"id": "good", "vector": GOOD}
    assert reason in refused("POST", "/v1/items", json={"items": [good, item]})[1]


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(refused, name):
    body, reason = VECTORS[name]
    text = body if isinstance(body, str) else json.dumps(body)
    assert reason in refused("POST", "/v1/search/vector", content=text, headers=JSON)[1]


@pytest.mark.parametrize("vector", [[1.0, 2.0], [0.0] * 32, [1e39] * 32, "AAAA"])
def test_vectors_of_items(refused, vector):
    items = [{"id": "good", "vector": GOOD}, {"id": "bad", "vector": vector}]
    refused("POST", "/v1/items", json={"items": items})


@pytest.mark.parametrize("name", IDS)
def test_ids(refused, name, pictures):
    """They are no new ids over HTTP. An item with such an id, which a file may have had, can be read and deleted."""
    assert refused("PUT", "/v1/item", params={"id": name}, content=png(pictures[0]), headers=PNG)[0] == 422
    assert refused("POST", "/v1/items", json={"items": [{"id": name, "vector": GOOD}]})[0] == 422
    for method, path in (("GET", "/v1/item"), ("GET", "/v1/item/thumbnail"), ("DELETE", "/v1/item")):
        assert refused(method, path, params={"id": name})[0] in (404, 422)
    assert refused("POST", "/v1/search/id", json={"id": name})[0] in (404, 422)


def test_items(refused, pictures):
    def post(reason, *items, **rest):
        assert reason in refused("POST", "/v1/items", json={"items": list(items), **rest})[1]

    good = {"id": "good", "vector": GOOD}
    post("items")
    post("4 in one request; at most 3", *({"id": str(n), "vector": GOOD} for n in range(4)))
    post("an id is given twice", good, good)
    post("give an image or a vector", {"id": "x"})
    post("give an image or a vector", {**good, "image": ""})
    post("unknown version '7'", good, version=7)
    post("metadata field 'a b'", {**good, "metadata": {"a b": 1}})
    post("metadata field 'label'", {**good, "metadata": {"label": "x"}})
    post("items.0.metadata", {**good, "metadata": {"x": {"y": 1}}})
    post("field 'x': 1152921504606846976 is not", {**good, "metadata": {"x": 2**60}})
    post("field 'x': 1000000", {**good, "metadata": {"x": 10**300}})
    post("items.0.metadata", {**good, "metadata": {f"f{n}": n for n in range(65)}})
    post("control characters", {**good, "metadata": {"x": "a\0b"}})
    post("items.0.label", {**good, "label": "x" * 9000})
    post("is not a known field", {**good, "path": "/etc/passwd"})
    post("is not a known field", {**good, "url": "http://localhost"})
    for metadata in ("{", "[]", '{"x": NaN}', '{"x": null}', '{"a b": 1}'):
        query = {"id": "x", "metadata": metadata}
        refused("PUT", "/v1/item", params=query, content=png(pictures[0]), headers=PNG)


def test_requests(refused, pictures):
    image = png(pictures[0])
    assert refused("POST", "/v1/search/image", content=bytes(200_001), headers=PNG)[0] == 413
    assert refused("POST", "/v1/search/image", content=iter([bytes(150_000)] * 2), headers=PNG)[0] == 413
    for kind in ("text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "text/html"):
        assert refused("POST", "/v1/search/image", content=image, headers={"Content-Type": kind})[0] == 415
        assert refused("POST", "/v1/search/vector", content=b"{}", headers={"Content-Type": kind})[0] == 415
    assert refused("POST", "/v1/search/image", content=image)[0] == 415
    for query in ("k=0", "k=1001", "k=x", "k=1.5", "exact=perhaps", "filter={", 'filter={"colour":"red"}', "filter=[]"):
        assert refused("POST", f"/v1/search/image?{query}", content=image, headers=PNG)[0] in (400, 422)
    assert refused("GET", "/v1/item", params={"id": "unknown"})[0] == 404
    assert refused("POST", "/v1/search/id", json={"id": "unknown"})[0] == 404
    assert refused("GET", "/v1/item/thumbnail", params={"id": "a/0", "size": 100_000})[0] == 422
    assert refused("GET", "/v1/search/vector")[0] == 405
    assert refused("TRACE", "/v1/gallery")[0] == 405
    assert refused("GET", "/v1/item")[0] == 422
    assert refused("GET", "/v1/item", params={"id": "x" * 40_000})[0] == 414
    assert refused("POST", "/v1/versions", json={"model": "/tmp"})[0] == 405


def test_an_image_that_cannot_be_decoded_is_one_sentence_without_python_names(client, monkeypatch):
    from holdfast.core.errors import HoldfastError
    from holdfast.embedders import pixels
    from holdfast.service import worker_pool
    from holdfast.service.refusals import RequestError

    reasons = {}
    for name, body in {"cut": cut_jpeg(), "text": b"certainly not an image"}.items():
        answer = client.post("/v1/search/image", content=body, headers={"Content-Type": "image/heic"})
        reasons[name] = answer.json()["error"]["reason"]

    def without_heif(task, body):  # as a worker process answers that does not have the extra
        try:
            return pixels.open_image(body)
        except HoldfastError as error:
            raise RequestError(422, str(error)) from error

    monkeypatch.setattr(pixels, "_can_read", lambda kind: False)
    monkeypatch.setattr(worker_pool, "_run_task", without_heif)
    heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
    answer = client.post("/v1/search/image", content=heic, headers={"Content-Type": "image/heic"})
    reasons["heic"] = answer.json()["error"]["reason"]
    assert reasons["heic"].startswith("this image cannot be used: HEIC needs the extra heif where the service runs")
    assert "pip install" in reasons["heic"]
    for reason in reasons.values():
        assert reason.startswith("this image cannot be used: ")
        assert not any(word in reason for word in ("Error", "object at", "0x", "BytesIO", "in memory"))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"filter": {"price": None}}, r"filter\.price: must be true or false, .*whole number.* or .*"),
        ({"filter": {"price": {"lt": "a"}}}, r"filter\.price: must be true or false, .*"),
        ({"k": "x"}, "k: must be a whole number"),
        ({"exact": "maybe"}, "exact: must be true or false"),
        ({"colour": "red"}, "colour: is not a known field"),
        ({"indexed_by": []}, "indexed_by: list should have at least 1 item, not 0"),
    ],
)
def test_reasons_are_plain_sentences(client, given, reason):
    found = client.post("/v1/search/id", json={"id": "a/0", **given}).json()["error"]["reason"]
    assert re.fullmatch(reason, found)
    assert "Input" not in found

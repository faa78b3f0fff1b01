"""200: done. 503: not done. 504: an operation that can be asked for. Idempotency keys."""

import asyncio
import base64
import threading
import time

import httpx2
import pytest
from service_inputs import ADDRESS, png

from holdfast.core.errors import HoldfastError, UnavailableError
from holdfast.gallery import Gallery, Item
from holdfast.gallery.catalogue import Catalogue, Receipt
from holdfast.service.access_control import AccessControl
from holdfast.service.app import build_app
from holdfast.service.body_limits import Limits
from holdfast.service.gallery_jobs import DeleteRequest

VECTOR = [1.0] * 32
PNG = {"Content-Type": "image/png"}


def new_items(*names):
    return {"items": [{"id": name, "vector": VECTOR} for name in names]}


def requests(pictures):
    """Every kind of write, as arguments of ``client.request``."""
    return {
        "post": {"method": "POST", "url": "/v1/items", "json": new_items("new")},
        "put": {"method": "PUT", "url": "/v1/item?id=new", "content": png(pictures[0]), "headers": PNG},
        "delete": {"method": "DELETE", "url": "/v1/item?id=a/0"},
        "delete many": {"method": "POST", "url": "/v1/items/delete", "json": {"ids": ["a/0", "b/1"]}},
    }


@pytest.mark.parametrize("kind", ["post", "put", "delete", "delete many"])
def test_a_write_that_is_answered_by_503_is_never_done(gallery, make_client, pictures, kind):
    """Another writer holds the lock for longer than a request may take."""
    client = make_client(limits=Limits(seconds=0.2))
    before = gallery.stats()["items"]
    client.post("/v1/search/image", content=png(pictures[0]), headers=PNG)  # the worker process has started
    with gallery.writing():
        answer = client.request(**requests(pictures)[kind])
    assert answer.status_code == 503
    assert "not done within 0.2 s" in answer.json()["error"]["reason"]
    # The writer is free again: a later write is done, and the one that was refused is not.
    while client.post("/v1/items", json=new_items("later")).status_code != 200:
        pass  # a busy machine needs longer than the limit
    assert gallery.stats()["items"] == before + 1
    assert set(gallery.get(["new", "a/0", "b/1"])) == {"a/0", "b/1"}


async def answers_behind_a_writer(gallery, seconds, gone_id):
    """Statuses of a write that waits too long for another writer, and of two that arrive at two thirds of its time."""
    app = build_app(gallery, access=AccessControl({}), limits=Limits(seconds=seconds))
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        held, begun = threading.Event(), threading.Event()

        def hold():
            with gallery.writing():
                begun.set()
                held.wait(300)

        thread = threading.Thread(target=hold)
        thread.start()
        begun.wait()
        early = asyncio.create_task(client.post("/v1/items", json=new_items(f"early-{seconds}")))
        await asyncio.sleep(seconds * 2 / 3)
        late = asyncio.create_task(client.post("/v1/items", json=new_items(f"late-{seconds}")))
        gone = asyncio.create_task(client.delete(f"/v1/item?id={gone_id}"))
        first = await early
        held.set()
        return first.status_code, (await late).status_code, (await gone).status_code


def test_a_write_that_waits_behind_another_one(gallery):
    """One request of a batch is given up; those that arrive with it are done. Never one that is answered by 503."""
    for seconds in (1.5, 6, 24):  # a busy machine needs longer
        gallery.add([Item("gone", vector=VECTOR)])
        statuses = early, late, gone = asyncio.run(answers_behind_a_writer(gallery, seconds, "gone"))
        expected = {"gone"} if gone == 503 else set()
        if late == 200:
            expected.add(f"late-{seconds}")
        assert set(gallery.get([f"early-{seconds}", f"late-{seconds}", "gone"])) == expected
        if statuses == (503, 200, 200):
            return
        assert early == 503
        assert {late, gone} <= {200, 503}
    pytest.fail(f"answered {statuses} with {seconds} s for each request")


def test_a_write_that_has_begun_and_takes_long_is_an_operation(gallery, make_client, monkeypatch):
    client, go = make_client(limits=Limits(seconds=0.2)), threading.Event()
    delete = gallery.delete

    def slow(ids, **options):
        assert go.wait(30)
        return delete(ids, **options)

    monkeypatch.setattr(gallery, "delete", slow)
    answer = client.delete("/v1/item?id=a/0")
    assert answer.status_code == 504
    name = answer.headers["Operation-Id"]
    assert f"GET /v1/operation?id={name}" in answer.json()["error"]["reason"]
    assert client.get("/v1/operation", params={"id": name}).json() == {"id": name, "state": "running"}
    again = client.delete("/v1/item?id=b/1", headers={"Idempotency-Key": "mine"})
    assert again.status_code == 503  # it waits behind the first
    go.set()
    expected = {"id": name, "state": "done", "answer": {"deleted": ["a/0"], "unknown": []}}
    while (state := client.get("/v1/operation", params={"id": name}).json())["state"] == "running":
        pass
    assert state == expected
    assert client.get("/v1/operation", params={"id": "mine"}).status_code == 404  # not done
    assert set(gallery.get(["a/0", "b/1"])) == {"b/1"}
    while client.delete("/v1/item?id=b/1", headers={"Idempotency-Key": "mine"}).status_code != 200:
        pass  # a busy machine needs longer than the limit
    assert client.get("/v1/operation", params={"id": "mine"}).json()["state"] == "done"


def test_an_operation_that_fails_after_its_504(gallery, make_client, monkeypatch):
    client, go = make_client(limits=Limits(seconds=0.1)), threading.Event()

    def broken(ids, **options):
        assert go.wait(30)
        raise UnavailableError("the server is gone")

    with monkeypatch.context() as patch:
        patch.setattr(gallery, "delete", broken)
        key = {"Idempotency-Key": "mine"}
        assert client.delete("/v1/item?id=a/0", headers=key).status_code == 504
        assert client.delete("/v1/item?id=a/0", headers=key).status_code == 504  # the same operation
        go.set()
        while (state := client.get("/v1/operation", params={"id": "mine"}).json())["state"] == "running":
            pass
    reason = "the gallery's store cannot be reached or written, or its GPU has no free memory; try again"
    assert state == {"id": "mine", "state": "not done", "reason": reason}  # as the answer would have been
    while (answer := client.delete("/v1/item?id=a/0", headers=key)).status_code != 200:  # done by this request
        assert answer.status_code in (503, 504)  # a busy machine needs longer than the limit


def test_a_key_is_used_once_also_after_a_restart(gallery, make_client, pictures, tmp_path):
    client = make_client()
    put = {**requests(pictures)["put"], "headers": {**PNG, "Idempotency-Key": "put"}}
    first = client.request(**put)
    assert (first.json(), "Idempotent-Replayed" in first.headers) == ({"stored": 1, "version": 1}, False)
    gone = client.delete("/v1/item?id=new", headers={"Idempotency-Key": "gone"})
    assert gone.json() == {"deleted": ["new"], "unknown": []}
    nothing = client.delete("/v1/item?id=new", headers={"Idempotency-Key": "nothing"})
    assert nothing.status_code == 404
    again = client.request(**put)  # not done again: the item stays deleted
    assert (again.json(), again.headers["Idempotent-Replayed"]) == (first.json(), "true")
    assert "new" not in gallery.get(["new"])
    gallery.add([Item("new", vector=VECTOR)])
    gallery.close()
    with Gallery.open(tmp_path / "g") as opened:
        from starlette.testclient import TestClient

        with TestClient(build_app(opened, access=AccessControl({})), base_url=ADDRESS) as later:
            replayed = later.delete("/v1/item?id=new", headers={"Idempotency-Key": "gone"})
            assert (replayed.json(), replayed.headers["Idempotent-Replayed"]) == (gone.json(), "true")
            assert later.delete("/v1/item?id=new", headers={"Idempotency-Key": "nothing"}).status_code == 404
            assert "new" in opened.get(["new"])
            other = later.delete("/v1/item?id=a/0", headers={"Idempotency-Key": "gone"})
            assert (other.status_code, "a/0" in opened.get(["a/0"])) == (422, True)
            assert "was used for another request" in other.json()["error"]["reason"]
            assert later.get("/v1/operation?id=gone").json() == {"id": "gone", "state": "done", "answer": gone.json()}


def test_a_repeated_request_is_answered_also_after_a_new_version(gallery, make_client, pictures, models):
    client = make_client()
    image = base64.b64encode(png(pictures[0])).decode()
    body, key = {"items": [{"id": "new", "image": image}], "version": 1}, {"Idempotency-Key": "one"}
    first = client.post("/v1/items", json=body, headers=key)
    gallery.register(models[1], force=True)
    again = client.post("/v1/items", json=body, headers=key)
    assert (again.status_code, again.json()) == (first.status_code, first.json())
    assert again.headers["Idempotent-Replayed"] == "true"
    assert client.post("/v1/items", json=body).status_code == 422  # version 1 is no longer the newest


@pytest.mark.parametrize("key", ["", "a b", "x" * 129, "\u00e4"])
def test_keys_that_are_refused(client, gallery, key):
    headers = [(b"Idempotency-Key", key.encode("latin-1"))]
    assert client.request("DELETE", "/v1/item?id=a/0", headers=headers).status_code == 422
    assert "a/0" in gallery.get(["a/0"])


def test_requests_with_one_key_at_once_do_one_write(gallery, monkeypatch):
    app, deleted = build_app(gallery, access=AccessControl({})), []
    delete = gallery.delete
    monkeypatch.setattr(gallery, "delete", lambda ids, **options: deleted.append(ids) or delete(ids, **options))

    async def run():
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url=ADDRESS) as client:
            calls = (client.delete("/v1/item?id=a/0", headers={"Idempotency-Key": "one"}) for _ in range(6))
            return await asyncio.gather(*calls)

    answers = asyncio.run(run())
    assert [answer.status_code for answer in answers] == [200] * 6
    assert deleted == [["a/0"]]
    assert sum("idempotent-replayed" in answer.headers for answer in answers) == 5


@pytest.mark.parametrize(
    "error", [UnavailableError("the server is gone"), HoldfastError("vectors are damaged"), OSError(28, "no space")]
)
def test_a_write_is_done_although_the_engine_cannot_clean_up(gallery, make_client, monkeypatch, error):
    """After the catalogue's transaction the old vectors are deleted. If the engine fails then, the write is done."""
    client, engine = make_client(), gallery._state.engine

    def broken(collection, keys):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(engine, "delete", broken, raising=False)
        assert client.post("/v1/items", json=new_items("a/0")).status_code == 200
        assert client.delete("/v1/item?id=b/1").status_code == 200
    assert set(gallery.get(["a/0", "b/1"])) == {"a/0"}
    assert client.delete("/v1/item?id=b/3").status_code == 200  # and cleans up
    assert [row["vectors"] for row in gallery.stats()["versions"]] == [38]


def test_receipts_are_kept_for_a_day(tmp_path, monkeypatch):
    now = [1_000_000.0]
    monkeypatch.setattr("holdfast.gallery.catalogue.time.monotonic", lambda: now[0])
    catalogue = Catalogue(tmp_path / "c.sqlite", new=True)
    catalogue.remove([], lambda gone: Receipt("first", "r", {"deleted": gone}))
    now[0] += 86_000
    catalogue.remove([], lambda gone: Receipt("second", "r", {}))
    assert catalogue.receipt("first") == Receipt("first", "r", {"deleted": []})
    now[0] += 800
    assert catalogue.receipt("first") is None  # also before the next write deletes it
    catalogue.remove([], lambda gone: Receipt("third", "r", {}))
    assert catalogue.receipt("first") is None
    assert catalogue.receipt("second") is not None
    catalogue.close()


@pytest.mark.parametrize("days", [-10, 10])
def test_receipts_do_not_depend_on_the_clock(tmp_path, monkeypatch, days):
    """A clock that was set forward let a retried write be done twice."""
    catalogue = Catalogue(tmp_path / "c.sqlite", new=True)
    catalogue.remove([], lambda gone: Receipt("first", "r", {}))
    wrong = time.time() + days * 86_400
    monkeypatch.setattr("holdfast.gallery.catalogue.time.time", lambda: wrong)
    catalogue.remove([], lambda gone: Receipt("second", "r", {}))
    catalogue.close()
    # The machine was started again: its other clock begins at zero.
    monkeypatch.setattr("holdfast.gallery.catalogue.time.monotonic", lambda: 5.0)
    catalogue = Catalogue(tmp_path / "c.sqlite")
    catalogue.remove([], lambda gone: Receipt("third", "r", {}))
    assert all(catalogue.receipt(key) for key in ("first", "second", "third"))
    catalogue.close()


def test_only_one_of_the_two_decides():
    for first, second in (("claim", "give_up"), ("give_up", "claim")):
        request = DeleteRequest(None, ["a"])
        assert getattr(request, first)()
        assert not getattr(request, second)()


def test_every_write_describes_its_key(client):
    described = client.get("/v1/openapi.json").json()["paths"]
    for path, method in (
        ("/v1/item", "put"),
        ("/v1/item", "delete"),
        ("/v1/items", "post"),
        ("/v1/items/delete", "post"),
    ):
        names = [one["name"] for one in described[path][method]["parameters"]]
        assert "Idempotency-Key" in names
        assert ("id" in names) == (path == "/v1/item")

"""Batches of images and items, registration during searches, and limits on time and load."""

import asyncio
import socket
import threading
import time
from collections import Counter

import httpx2
import numpy as np
import pytest
import torch
from service_inputs import ADDRESS, metric_values, png

from holdfast.core.errors import HoldfastError
from holdfast.core.file_lock import locked
from holdfast.gallery import registration
from holdfast.gallery.version_models import batch_sizes
from holdfast.service.access_control import AccessControl
from holdfast.service.app import build_app
from holdfast.service.batcher import Batcher
from holdfast.service.body_limits import Limits
from holdfast.service.gallery_jobs import GalleryJobs
from holdfast.service.served_gallery import ServerRecord, run_on_server
from holdfast.train.encoders import Encoder

PNG = {"Content-Type": "image/png"}


async def answers(app, *requests):
    """All requests at once, each (method, path, options)."""
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=ADDRESS) as client:
        return await asyncio.gather(*(client.request(method, path, **options) for method, path, options in requests))


def test_batched_images_get_the_same_hits(gallery, pictures):
    app = build_app(gallery, access=AccessControl({}), limits=Limits(encoder_wait_ms=100, encoder_batch=16))
    searches = [("POST", "/v1/search/image?k=5", {"content": png(one), "headers": PNG}) for one in pictures]
    broken = ("POST", "/v1/search/image", {"content": b"no image", "headers": PNG})

    async def run():
        return await answers(app, *searches, broken), await answers(app, ("GET", "/metrics", {}))

    found, (metrics,) = asyncio.run(run())
    assert found.pop().status_code == 422
    for picture, answer in zip(pictures, found, strict=True):
        alone = gallery.search(picture, k=5)
        assert [hit["id"] for hit in answer.json()["hits"]] == [hit.id for hit in alone]
        assert [hit["score"] for hit in answer.json()["hits"]] == pytest.approx([hit.score for hit in alone], abs=1e-5)
    counts = metric_values(metrics.text)
    assert counts["holdfast_queue_jobs_total", ("encoder",)] == 40
    assert 3 <= counts["holdfast_queue_batches_total", ("encoder",)] <= 10


def test_encoder_batch_size(gallery, monkeypatch):
    """By default as many as suit the gallery's device."""

    def most(limits):
        work = GalleryJobs(gallery, limits, name="g")
        asyncio.run(work.close())
        return work.encoder.max_batch

    assert most(Limits()) == batch_sizes(None).queries
    assert most(Limits(encoder_batch=16)) == 16
    encoder = gallery.models.encoder(gallery.newest())
    monkeypatch.setattr(type(encoder), "on_gpu", True)
    assert most(Limits()) == batch_sizes(encoder).queries == 256


def test_a_gpu_without_free_memory(gallery, pictures, make_client, monkeypatch):
    client = make_client()

    def full(self, images, **options):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has ...")

    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "encode", full)
        answer = client.post("/v1/search/image", content=png(pictures[0]), headers=PNG)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert "its GPU has no free memory; try again" in answer.json()["error"]["reason"]
    assert client.post("/v1/search/image", content=png(pictures[0]), headers=PNG).status_code == 200


def test_a_refused_item_does_not_affect_its_batch(gallery):
    app = build_app(gallery, access=AccessControl({}))
    rows = np.random.default_rng(0).standard_normal((12, 32))
    requests = [
        ("POST", "/v1/items", {"json": {"items": [{"id": f"new/{n}", "vector": row[: 7 if n == 5 else 32].tolist()}]}})
        for n, row in enumerate(rows)
    ]
    found = asyncio.run(answers(app, *requests))
    assert [answer.status_code for answer in found] == [422 if n == 5 else 200 for n in range(12)]
    assert sorted(gallery.get([f"new/{n}" for n in range(12)])) == sorted(f"new/{n}" for n in range(12) if n != 5)


def test_additions_are_stored_together_up_to_the_limit_of_one_request(gallery, monkeypatch):
    """The requests of 256 clients, 256 items each, were stored in one step, for which searches waited seconds."""
    stored, add = [], type(gallery).add

    def watch(self, items, **options):
        stored.append(len(items))
        return add(self, items, **options)

    monkeypatch.setattr(type(gallery), "add", watch)
    app = build_app(gallery, access=AccessControl({}), limits=Limits(batch=20))
    vector = np.random.default_rng(0).standard_normal(32).tolist()
    sizes = (8, 8, 8, 20, 1, 1, 20)
    posts = [
        ("POST", "/v1/items", {"json": {"items": [{"id": f"{n}/{i}", "vector": vector} for i in range(size)]}})
        for n, size in enumerate(sizes)
    ]

    async def run():
        with gallery.writing():  # all of them wait for this
            asked = asyncio.gather(answers(app, *posts))
            await asyncio.sleep(1)
        return (await asked)[0]

    assert [answer.json()["stored"] for answer in asyncio.run(run())] == list(sizes)
    assert max(stored) <= 20
    assert sum(stored) == sum(sizes)
    assert len(stored) < len(sizes)


def test_batcher_limits_and_cancelled_callers():
    done = []

    def work(jobs, answer):
        done.append(jobs)
        for place, job in enumerate(jobs):
            if job != 3:  # no result for 3
                answer(place, ValueError("bad") if job == 4 else 10 * job)

    async def run():
        batcher = Batcher(work, max_batch=3, wait_s=0.05, name="test")
        gone = asyncio.create_task(batcher.submit(9))
        await asyncio.sleep(0)
        gone.cancel()
        found = await asyncio.gather(*(batcher.submit(n) for n in range(5)), return_exceptions=True)
        await batcher.close()
        return found

    found = asyncio.run(run())
    assert found[:3] == [0, 10, 20]
    assert [str(error) for error in found[3:]] == ["the batch ended without a result for this job", "bad"]
    assert [job for jobs in done for job in jobs] == [0, 1, 2, 3, 4]
    assert max(len(jobs) for jobs in done) <= 3


def test_requests_are_answered_during_a_registration(gallery, models, pictures, tmp_path, make_client, monkeypatch):
    """The check is made to last until a hundred searches, additions and deletions were answered during it."""
    client, during = make_client(served=True), threading.Event()
    searched = threading.Event()
    check_on_sample = registration.check_on_sample

    def slow(*arguments):
        during.set()
        assert searched.wait(300)
        return check_on_sample(*arguments)

    monkeypatch.setattr(registration, "check_on_sample", slow)
    registered = []

    def register():
        registered.append(run_on_server(tmp_path / "g", "register", model=str(models[1]), force=True))

    thread = threading.Thread(target=register)
    thread.start()
    assert during.wait(30)
    versions = []
    for n in range(100):
        if n == 50:
            assert client.get("/v1/gallery").json()["newest"] == 1
        for answer in (
            client.post("/v1/search/image", content=png(pictures[n % 40]), headers=PNG),
            client.post("/v1/search/vector", json={"vector": [1.0] * 32, "version": 1}),
            client.post("/v1/search/id", json={"id": f"{'ab'[n % 2]}/{n % 40}"}),
        ):
            assert answer.status_code == 200, answer.text
        stored = client.put(f"/v1/item?id=during/{n}", content=png(255 - pictures[n % 40]), headers=PNG)
        assert stored.json() == {"stored": 1, "version": 1}
        if n % 2:
            assert client.delete(f"/v1/item?id=during/{n}").json()["deleted"] == [f"during/{n}"]
    searched.set()
    while not versions or versions[-1] == 1:
        assert thread.is_alive() or registered
        answer = client.post("/v1/search/image", content=png(pictures[0]), headers=PNG)
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["hits"]) == 10
        versions.append(answer.json()["version"])
    thread.join()
    assert registered[0]["number"] == 2
    assert client.put("/v1/item?id=x", content=png(pictures[0]), headers=PNG).json()["version"] == 2
    assert [row["items"] for row in gallery.stats()["versions"]] == [90, 1]


def test_requests_are_answered_during_backfill_and_rollback(gallery, models, pictures, tmp_path, make_client):
    """A backfill and a rollback of a served gallery, run by the local commands."""
    client, folder, reported = make_client(served=True), tmp_path / "g", []
    run_on_server(folder, "register", model=str(models[1]), force=True)
    done: dict = {}

    def move():
        done["there"] = run_on_server(folder, "backfill", rate=100, on_progress=reported.append)
        done["back"] = run_on_server(folder, "rollback", rate=100)

    thread = threading.Thread(target=move)
    thread.start()
    seen = set()
    while thread.is_alive():
        answer = client.post("/v1/search/image?k=40", content=png(pictures[len(seen) % 40]), headers=PNG)
        assert answer.status_code == 200, answer.text
        assert len({hit["id"] for hit in answer.json()["hits"]}) == 40
        seen.add(answer.json()["version"])
    assert (done["there"]["progress"]["moved"], done["back"]["moved"], seen) == (40, 40, {1, 2})
    assert [row["number"] for row in client.get("/v1/versions").json()["versions"]] == [1]
    assert reported[-1]["progress"]["moved"] == reported[-1]["progress"]["total"] == 40


def test_newest_version_during_a_rollback(gallery, models, pictures, make_client, monkeypatch):
    """A rollback that was stopped at once: version 2 is there, but version 1 asks and takes what is added."""
    client, stop = make_client(), threading.Event()
    gallery.register(models[1], force=True)
    client.put("/v1/item?id=x", content=png(pictures[0]), headers=PNG)
    stop.set()
    opened = gallery.models.newest  # an image that was opened just before the rollback began
    last = gallery.versions()[-1]
    answers = iter([last])
    gallery.rollback(drop=True, stop=stop)
    assert gallery.newest().number == 1
    monkeypatch.setattr(gallery.models, "newest", lambda: next(answers, None) or opened())
    assert client.put("/v1/item?id=y", content=png(pictures[1]), headers=PNG).json() == {"stored": 1, "version": 1}
    rows = client.get("/v1/versions").json()["versions"]
    assert [(row["number"], row["newest"]) for row in rows] == [(1, True), (2, False)]
    assert metric_values(client.get("/metrics").text)["holdfast_gallery_newest_version", ()] == 1


def test_closing_the_connection_stops_a_backfill(gallery, models, tmp_path, make_client):
    make_client(served=True)
    folder = tmp_path / "g"
    run_on_server(folder, "register", model=str(models[1]), force=True)

    def leave(progress):
        if progress["progress"]["moved"]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_on_server(folder, "backfill", rate=5, on_progress=leave)
    done = ask_server_when_free(folder)
    assert 0 < done["progress"]["moved"] < 40  # the rest, by another call


def ask_server_when_free(folder):
    for _ in range(100):
        try:
            return run_on_server(folder, "backfill")
        except HoldfastError:  # the one before is just ending
            time.sleep(0.05)
    raise AssertionError("the backfill did not stop")


def test_bad_commands(gallery, make_client, models, tmp_path):
    folder = tmp_path / "g"
    assert run_on_server(folder, "register", model="x") is None  # it is not served
    make_client(served=True)
    with pytest.raises(HoldfastError, match="this model is version 1"):
        run_on_server(folder, "register", model=str(models[0]))
    with pytest.raises(HoldfastError, match="not found: POST /v1/admin/stop"):
        run_on_server(folder, "stop")
    with pytest.raises(HoldfastError):
        run_on_server(folder, "register", nonsense=1)


def test_timeout_and_too_many_requests(gallery, monkeypatch):
    search = gallery.search

    def slow(**query):
        time.sleep(0.5)
        return search(**query)

    monkeypatch.setattr(gallery, "search", slow)
    app = build_app(gallery, access=AccessControl({}), limits=Limits(seconds=0.2, in_flight=2))
    query = ("POST", "/v1/search/vector", {"json": {"vector": [1.0] * 32}})
    found = asyncio.run(answers(app, *[query] * 3, ("GET", "/v1/health", {})))
    assert [answer.status_code for answer in found] == [503, 503, 503, 200]
    reasons = [answer.json()["error"]["reason"] for answer in found[:3]]
    assert sorted("too many" in reason for reason in reasons) == [False, False, True]
    assert all("retry-after" in answer.headers for answer in found[:3])


def test_slow_bodies_take_no_turn_of_others(gallery):
    """300 bodies that did not arrive took all places of requests; whole ones take them still."""
    app = build_app(gallery, access=AccessControl({}), limits=Limits(in_flight=4))
    query = ("POST", "/v1/search/id", {"json": {"id": "a/0"}})

    async def run():
        others_done = asyncio.Event()

        async def drip():
            yield b'{"id": '
            await others_done.wait()
            yield b'"a/0"}'

        headers = {"Content-Type": "application/json"}
        slow = [("POST", "/v1/search/id", {"content": drip(), "headers": headers}) for _ in range(300)]
        slow_answers = asyncio.ensure_future(answers(app, *slow))
        await asyncio.sleep(0.5)
        found = await answers(app, query, query)
        others_done.set()
        return found, await slow_answers

    found, late = asyncio.run(run())
    assert [answer.status_code for answer in found] == [200, 200]
    by_status = Counter(answer.status_code for answer in late)
    assert set(by_status) == {200, 503}  # when they arrive all at once, they have to wait for places, too
    assert by_status[200] >= 4


def test_limit_on_the_bytes_of_all_bodies(gallery, pictures):
    """Each is small enough, but three at once are not; those that were let in are answered, and later ones are too."""
    app = build_app(gallery, access=AccessControl({}), limits=Limits(bodies=1_500))

    async def drip():
        yield png(pictures[0])[:100]
        yield b"x" * 500
        await asyncio.sleep(0.3)
        yield b"x"

    slow = [("POST", "/v1/search/image", {"content": drip(), "headers": PNG}) for _ in range(3)]
    whole = ("POST", "/v1/search/image", {"content": png(pictures[0]), "headers": PNG})

    async def run():
        return await answers(app, *slow), await answers(app, whole)

    found, later = asyncio.run(run())
    assert sorted(answer.status_code for answer in found) == [422, 422, 503]
    (refused,) = (answer for answer in found if answer.status_code == 503)
    assert refused.json()["error"]["reason"] == "too many large requests at once; try again"
    assert [answer.status_code for answer in later] == [200]


def test_slow_large_bodies_leave_searches_alone(gallery):
    app = build_app(gallery, access=AccessControl({}), limits=Limits(bodies=400_000))

    async def run():
        searched = asyncio.Event()

        async def drip():
            yield b"x" * 399_999
            await searched.wait()

        large = asyncio.ensure_future(answers(app, ("POST", "/v1/search/image", {"content": drip(), "headers": PNG})))
        await asyncio.sleep(0.2)
        small = await answers(app, ("POST", "/v1/search/id", {"json": {"id": "a/0"}}))
        searched.set()
        return small, await large

    ((small,), (large,)) = asyncio.run(run())
    assert (small.status_code, large.status_code) == (200, 422)


def test_a_body_that_does_not_arrive(gallery):
    app = build_app(gallery, access=AccessControl({}), limits=Limits(seconds=0.1))

    async def drip():
        yield b"half"
        await asyncio.sleep(5)
        yield b"late"

    sent = ("POST", "/v1/search/image", {"content": drip(), "headers": PNG})
    (answer,) = asyncio.run(answers(app, sent))
    assert answer.status_code == 408


def test_a_server_that_is_killed_in_the_middle_of_a_line(tmp_path):
    def die():
        connection, _ = listening.accept()
        received = b""
        while not received.endswith(b"{}"):  # the body
            received += connection.recv(1000)
        line = b'{"progress": {"moved": 1}}\n'
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head + b"%x\r\n%b\r\n" % (len(line), line) + b'40\r\n{"resu')
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listening, locked(tmp_path / "lock"):
        ServerRecord(f"http://127.0.0.1:{listening.getsockname()[1]}", "a-token").write(tmp_path)
        thread = threading.Thread(target=die)
        thread.start()
        reported = []
        with pytest.raises(HoldfastError, match="ended before it answered"):
            run_on_server(tmp_path, "stats", on_progress=reported.append)
        thread.join()
    assert reported == [{"moved": 1}]

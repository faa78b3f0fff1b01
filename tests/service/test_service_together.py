"""Images embedded and items written together, registrations while searches go on, and limits on time and load."""

import asyncio
import socket
import threading
import time

import httpx2
import numpy as np
import pytest
import torch
from service_inputs import ADDRESS, png

from holdfast.encoders import Encoder
from holdfast.errors import HoldfastError
from holdfast.gallery import registration
from holdfast.gallery.forward_pass import batch_sizes
from holdfast.service.access import Access
from holdfast.service.app import build_app
from holdfast.service.batcher import Batcher
from holdfast.service.local_commands import SOCKET, ask_server
from holdfast.service.request_bodies import Limits
from holdfast.service.work import Work

PNG = {"Content-Type": "image/png"}


async def answers(app, *requests):
    """All requests at once, each (method, path, options)."""
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=ADDRESS) as client:
        return await asyncio.gather(*(client.request(method, path, **options) for method, path, options in requests))


def test_images_are_embedded_together_and_alike(gallery, pictures):
    app = build_app(gallery, access=Access({}), limits=Limits(encoder_wait_ms=100, encoder_batch=16))
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
    counts = dict(line.rsplit(" ", 1) for line in metrics.text.splitlines() if not line.startswith("#"))
    assert counts['holdfast_queue_jobs_total{queue="encoder"}'] == "40"
    assert 3 <= int(counts['holdfast_queue_batches_total{queue="encoder"}']) <= 10


def test_how_many_images_are_embedded_together(gallery):
    """By default as many as suit the gallery's device."""

    def most(limits):
        work = Work(gallery, limits, name="g")
        asyncio.run(work.close())
        return work.encoder._most

    assert most(Limits()) == batch_sizes(gallery.device).queries
    assert most(Limits(encoder_batch=16)) == 16
    gallery._models.device = torch.device("cuda")
    assert most(Limits()) == batch_sizes(torch.device("cuda")).queries == 256


def test_a_gpu_without_free_memory(gallery, pictures, ask, monkeypatch):
    client = ask()

    def full(self, images, **options):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has ...")

    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "encode", full)
        answer = client.post("/v1/search/image", content=png(pictures[0]), headers=PNG)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert "its GPU has no free memory; try again" in answer.json()["error"]["reason"]
    assert client.post("/v1/search/image", content=png(pictures[0]), headers=PNG).status_code == 200


def test_a_bad_item_does_not_spoil_those_written_with_it(gallery):
    app = build_app(gallery, access=Access({}))
    rows = np.random.default_rng(0).standard_normal((12, 32))
    requests = [
        ("POST", "/v1/items", {"json": {"items": [{"id": f"new/{n}", "vector": row[: 7 if n == 5 else 32].tolist()}]}})
        for n, row in enumerate(rows)
    ]
    found = asyncio.run(answers(app, *requests))
    assert [answer.status_code for answer in found] == [422 if n == 5 else 200 for n in range(12)]
    assert sorted(gallery.get([f"new/{n}" for n in range(12)])) == sorted(f"new/{n}" for n in range(12) if n != 5)


def test_batcher_by_count_by_time_and_without_those_who_gave_up():
    done = []

    def work(jobs, answer):
        done.append(jobs)
        for place, job in enumerate(jobs):
            if job != 3:  # nobody answers for 3
                answer(place, ValueError("bad") if job == 4 else 10 * job)

    async def run():
        batcher = Batcher(work, most=3, wait_s=0.05, name="test")
        gone = asyncio.create_task(batcher.ask(9))
        await asyncio.sleep(0)
        gone.cancel()
        found = await asyncio.gather(*(batcher.ask(n) for n in range(5)), return_exceptions=True)
        await batcher.close()
        return found

    found = asyncio.run(run())
    assert found[:3] == [0, 10, 20]
    assert [str(error) for error in found[3:]] == ["the batch ended without an answer", "bad"]
    assert [job for jobs in done for job in jobs] == [0, 1, 2, 3, 4]
    assert max(len(jobs) for jobs in done) <= 3


def test_others_go_on_while_a_version_is_registered(gallery, models, pictures, tmp_path, ask, monkeypatch):
    """The check is made to last until a hundred searches, additions and deletions were answered during it."""
    client, during = ask(control=tmp_path / "g"), threading.Event()
    searched = threading.Event()
    checked = registration._judge_all

    def slow(*arguments):
        during.set()
        assert searched.wait(30)
        return checked(*arguments)

    monkeypatch.setattr(registration, "_judge_all", slow)
    registered = []

    def register():
        registered.append(ask_server(tmp_path / "g", "register", model=str(models[1]), force=True))

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
        answer = client.post("/v1/search/image", content=png(pictures[0]), headers=PNG)
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["hits"]) == 10
        versions.append(answer.json()["version"])
    thread.join()
    assert registered[0]["number"] == 2
    assert client.put("/v1/item?id=x", content=png(pictures[0]), headers=PNG).json()["version"] == 2
    assert [row["items"] for row in gallery.stats()["versions"]] == [90, 1]


def test_search_goes_on_while_items_move_there_and_back(gallery, models, pictures, tmp_path, ask):
    """A backfill and a rollback of a served gallery, as the commands ask for them."""
    client, folder, told = ask(control=tmp_path / "g"), tmp_path / "g", []
    ask_server(folder, "register", model=str(models[1]), force=True)
    done: dict = {}

    def move():
        done["there"] = ask_server(folder, "backfill", rate=100, probes=0, tell=told.append)
        done["back"] = ask_server(folder, "rollback", rate=100)

    thread = threading.Thread(target=move)
    thread.start()
    seen = set()
    while thread.is_alive():
        answer = client.post("/v1/search/image?k=40", content=png(pictures[len(seen) % 40]), headers=PNG)
        assert answer.status_code == 200, answer.text
        assert len({hit["id"] for hit in answer.json()["hits"]}) == 40
        seen.add(answer.json()["version"])
    assert (done["there"]["moved"], done["back"]["moved"], seen) == (40, 40, {1, 2})
    assert [row["number"] for row in client.get("/v1/versions").json()["versions"]] == [1]
    assert told[-1]["moved"] == told[-1]["total"] == 40


def test_what_is_newest_while_a_version_leaves(gallery, models, pictures, ask, monkeypatch):
    """A rollback that was stopped at once: version 2 is there, but version 1 asks and takes what is added."""
    client, stop = ask(), threading.Event()
    gallery.register(models[1], force=True)
    client.put("/v1/item?id=x", content=png(pictures[0]), headers=PNG)
    stop.set()
    opened = gallery._models.newest  # an image that was opened just before the rollback began
    last = gallery.versions()[-1]
    answers = iter([last])
    gallery.rollback(drop=True, stop=stop)
    assert gallery.newest().number == 1
    monkeypatch.setattr(gallery._models, "newest", lambda: next(answers, None) or opened())
    assert client.put("/v1/item?id=y", content=png(pictures[1]), headers=PNG).json() == {"stored": 1, "version": 1}
    rows = client.get("/v1/versions").json()["versions"]
    assert [(row["number"], row["newest"]) for row in rows] == [(1, True), (2, False)]
    assert "holdfast_gallery_newest_version 1" in client.get("/metrics").text


def test_hanging_up_stops_a_backfill(gallery, models, tmp_path, ask):
    ask(control=tmp_path / "g")
    folder = tmp_path / "g"
    ask_server(folder, "register", model=str(models[1]), force=True)

    def leave(progress):
        if progress["moved"]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask_server(folder, "backfill", rate=5, probes=0, tell=leave)
    done = ask_server_when_free(folder)
    assert 0 < done["moved"] < 40  # the rest, by another call
    assert done["left"] == 0


def ask_server_when_free(folder):
    for _ in range(100):
        try:
            return ask_server(folder, "backfill", probes=0)
        except HoldfastError:  # the one before is just ending
            time.sleep(0.05)
    raise AssertionError("the backfill did not stop")


def test_control_refuses_and_is_the_owners_only(gallery, ask, models, tmp_path):
    folder = tmp_path / "g"
    assert ask_server(folder, "register", model="x") is None  # nobody serves it
    ask(control=folder)
    assert (folder / SOCKET).stat().st_mode & 0o777 == 0o600
    with pytest.raises(HoldfastError, match="these weights are version 1"):
        ask_server(folder, "register", model=str(models[0]))
    with pytest.raises(HoldfastError, match="unknown command 'stop'; known: add, backfill"):
        ask_server(folder, "stop")
    with pytest.raises(HoldfastError):
        ask_server(folder, "register", nonsense=1)


def test_slow_work_and_too_much_of_it(gallery, monkeypatch):
    search = gallery.search

    def slow(**question):
        time.sleep(0.5)
        return search(**question)

    monkeypatch.setattr(gallery, "search", slow)
    app = build_app(gallery, access=Access({}), limits=Limits(seconds=0.2, in_flight=2))
    question = ("POST", "/v1/search/vector", {"json": {"vector": [1.0] * 32}})
    found = asyncio.run(answers(app, *[question] * 3, ("GET", "/v1/health", {})))
    assert [answer.status_code for answer in found] == [503, 503, 503, 200]
    reasons = [answer.json()["error"]["reason"] for answer in found[:3]]
    assert sorted("too many" in reason for reason in reasons) == [False, False, True]
    assert all("retry-after" in answer.headers for answer in found[:3])


def test_bodies_that_are_too_large_together(gallery, pictures):
    """Each is small enough, but three at once are not; those that were let in are answered, and later ones are too."""
    app = build_app(gallery, access=Access({}), limits=Limits(bodies=1_500))

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


def test_a_body_that_does_not_arrive(gallery):
    app = build_app(gallery, access=Access({}), limits=Limits(seconds=0.1))

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
        connection.recv(1000)
        connection.sendall(b'{"progress": {"moved": 1}}\n{"resu')
        connection.close()

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / SOCKET))
        listening.listen()
        thread = threading.Thread(target=die)
        thread.start()
        with pytest.raises(HoldfastError, match="ended before it answered"):
            ask_server(tmp_path, "stats")
        thread.join()

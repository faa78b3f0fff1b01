"""Hostile clients: large bodies, images that take long, waiting writers, connections that send nothing."""

import asyncio
import base64
import contextlib
import io
import json
import shutil
import signal
import struct
import threading
import time
import zlib

import numpy as np
import pytest
import uvicorn
from PIL import Image
from service_inputs import png
from uvicorn.server import ServerState

from holdfast.service import connections, gallery_jobs, server, worker_pool
from holdfast.service.access_control import AccessControl
from holdfast.service.app import build_app
from holdfast.service.body_limits import Limits
from holdfast.service.connections import LimitedConnection, most_connections
from holdfast.service.json_bodies import Bounds, NewItems, check_bounds, checked_body, read_checked
from holdfast.service.refusals import RequestError
from holdfast.service.worker_pool import WorkerPool

JSON, PNG = {"Content-Type": "application/json"}, {"Content-Type": "image/png"}
LARGE = 5_000_000


def repeated(start, part, end, size=LARGE):
    return f"{start}{part * (size // len(part))}{part.rstrip(',')}{end}".encode()


HOSTILE = {
    "texts for numbers": ("/v1/search/vector", repeated('{"vector":[', '"",', "]}")),
    "numbers": ("/v1/search/vector", repeated('{"vector":[', "1,", "]}")),
    "lists": ("/v1/search/vector", repeated('{"vector":[', "[],", "]}")),
    "names": ("/v1/search/id", repeated('{"id":"a","filter":{', '"":1,', "}}")),
    "values of a filter": ("/v1/search/id", repeated('{"id":"a","filter":{"price":[', "1,", "]}}")),
    "empty items": ("/v1/items", repeated('{"items":[', "{},", "]}")),
    "texts for items": ("/v1/items", repeated('{"items":[', '"",', "]}")),
    "metadata": ("/v1/items", repeated('{"items":[{"id":"a","vector":[1],"metadata":{', '"b":1,', "}}]}")),
    "ids": ("/v1/items/delete", repeated('{"ids":[', '"a",', "]}")),
    "numbers for ids": ("/v1/items/delete", repeated('{"ids":[', "1,", "]}")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_large_body_is_refused_before_it_is_parsed(client, name):
    path, body = HOSTILE[name]
    answer = client.post(path, content=body, headers=JSON)
    assert answer.status_code == 422
    assert "the body has" in answer.json()["error"]["reason"]


@pytest.mark.parametrize("values", [66_000, 10_000])
def test_lists_end_at_their_first_error(client, values):
    """Both the bodies that are parsed here and those that a worker parses; without this, an error for each value."""
    body = json.dumps({"vector": [""] * values})
    reason = client.post("/v1/search/vector", content=body, headers=JSON).json()["error"]["reason"]
    assert reason == "vector.0: must be a number (and 1 more)"  # the other one: it is not base64 either


def test_values_within_texts_are_not_counted():
    text = json.dumps({"items": [{"id": 'a"\\,[{:"' * 9, "vector": [1.0, 2.0]}]}).encode()
    check_bounds(text, Bounds(6, 3))
    with pytest.raises(RequestError, match="the body has 6 values; at most 4"):
        check_bounds(text, Bounds(4, 9))
    with pytest.raises(RequestError, match="the body has 3 names; at most 2"):
        check_bounds(text, Bounds(9, 2))
    long = json.dumps({"a": "," * 3_000_000, "b": [1, 2]}).encode()  # a text over the border of two blocks
    check_bounds(long, Bounds(4, 2))


def test_a_checked_body_is_the_same_body():
    rows = [{"id": "ä", "vector": [0.1, 2, -3e38], "label": "x"}, {"id": "b", "image": "AAAA", "metadata": {"n": 1}}]
    found = read_checked(NewItems, checked_body(NewItems, json.dumps({"items": rows, "version": 3}).encode(), 5))
    assert found.version == 3
    first, second = found.items
    vector = np.frombuffer(base64.b64decode(first.vector), "<f4")
    assert vector.tolist() == np.array([0.1, 2, -3e38], np.float32).tolist()
    assert (first.id, first.label, first.image, first.metadata) == ("ä", "x", None, {})
    assert (second.id, second.vector, second.image, second.metadata) == ("b", None, "AAAA", {"n": 1})


def test_large_bodies_are_parsed_by_a_worker(client, gallery, monkeypatch):
    """The same items by the worker's and by the service's own parser."""
    tasks = []
    run = worker_pool._run_task
    monkeypatch.setattr(worker_pool, "_run_task", lambda task, body: tasks.append(task["task"]) or run(task, body))
    rows = np.random.default_rng(0).standard_normal((200, 32))
    items = [{"id": f"w/{n}", "vector": row.tolist(), "metadata": {"n": n}} for n, row in enumerate(rows)]
    assert client.post("/v1/items", json={"items": items}).json() == {"stored": 200, "version": 1}
    assert tasks == ["body"]
    assert client.post("/v1/items", json={"items": [{**items[7], "id": "here"}]}).json()["stored"] == 1
    assert tasks == ["body"]
    hits = client.post("/v1/search/vector", json={"vector": rows[7].tolist(), "k": 2}).json()["hits"]
    assert {hit["id"] for hit in hits} == {"w/7", "here"}
    assert hits[0]["score"] == hits[1]["score"] == pytest.approx(1)
    assert client.get("/v1/item?id=w/7").json()["metadata"] == {"n": 7}


def slow_png(side=5000):
    """A PNG that is small and takes longer than 50 ms of processor time to decode."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    packed = zlib.compress(bytes((3 * side + 1) * side), 1)
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def test_an_image_that_takes_too_long_or_too_much_memory(make_client, pictures):
    """The worker's process ends in the middle of the decoder, and the next image gets another one."""
    slow = slow_png()
    quick = make_client(limits=Limits(task_seconds=0.05))
    answer = quick.post("/v1/search/image", content=slow, headers=PNG)
    reason = "this image cannot be used: it takes more than 0.05 s of processor time to read"
    assert (answer.status_code, answer.json()["error"]["reason"]) == (422, reason)
    small = make_client(limits=Limits(pixels=25_000_000, body=1_000_000))
    assert small.post("/v1/search/image", content=slow, headers=PNG).status_code == 200
    rotated = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (5000, 5000)).save(rotated, "JPEG", exif=exif)
    answer = small.post("/v1/search/image", content=rotated.getvalue(), headers=PNG)
    reason = "this image cannot be used: it takes more memory than one request may use"
    assert (answer.status_code, answer.json()["error"]["reason"]) == (422, reason)
    assert small.post("/v1/search/image", content=png(pictures[0]), headers=PNG).status_code == 200


@pytest.mark.parametrize("kind", ["JPEG2000", "PPM", "TGA", "PNG", "WEBP", "TIFF"])
def test_formats_that_people_send(client, kind):
    file = io.BytesIO()
    try:
        Image.new("RGB", (32, 32), "red").save(file, kind)
    except (KeyError, OSError):
        pytest.skip("this Pillow cannot write it")
    answer = client.post(
        "/v1/search/image", content=file.getvalue(), headers={"Content-Type": "application/octet-stream"}
    )
    assert answer.status_code == (200 if kind in ("PNG", "WEBP", "TIFF") else 422)
    assert client.post("/v1/search/image", content=b"x", headers={"Content-Type": "image/jp2"}).status_code == 415


def test_clients_take_turns_and_none_takes_all_workers(monkeypatch):
    begun, go = [], threading.Event()

    def work(task, body):
        begun.append(task["client"])
        assert go.wait(30)
        return b""

    monkeypatch.setattr(worker_pool, "_run_task", work)

    async def run():
        pool = WorkerPool(3)
        calls = [asyncio.create_task(pool.run({"client": one}, b"", client=one)) for one in "aaaaaaabbc"]
        while len(begun) < 3:
            await asyncio.sleep(0.001)
        first = list(begun)
        calls[2].cancel()  # in the queue
        calls[0].cancel()  # running: its worker stays busy
        await asyncio.sleep(0.02)
        assert len(begun) == 3
        go.set()
        await asyncio.gather(*calls, return_exceptions=True)
        await pool.close()
        return first

    first = asyncio.run(run())
    assert sorted(first) == ["a", "a", "b"]
    assert "c" in begun[3:5]
    assert sorted(begun) == ["a"] * 6 + ["b"] * 2 + ["c"]


def test_waiting_deletions_do_not_stop_searches(gallery, make_client, monkeypatch):
    """More deletions than there are threads for searches wait for the lock that another writer holds."""
    client = make_client()
    held, answers = threading.Event(), []

    def delete(n):
        answers.append(client.delete(f"/v1/item?id=a/{2 * n}"))

    with gallery.writing():
        threads = [threading.Thread(target=delete, args=(n,)) for n in range(12)]
        for thread in threads:
            thread.start()
        while client.get("/metrics").text.count("holdfast_requests_in_flight 13.0") == 0:
            held.wait(0.01)
        for _ in range(5):
            assert client.post("/v1/search/vector", json={"vector": [1.0] * 32}).status_code == 200
        assert not answers
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [200] * 12
    assert gallery.stats()["items"] == 28


async def connected(app, most, seconds, talk):
    """The result of ``talk(open connection)`` with a server of LimitedConnections."""
    config = uvicorn.Config(app, lifespan="off", log_level="critical")
    config.load()
    state = ServerState()
    listening = await asyncio.get_running_loop().create_server(
        lambda: LimitedConnection(config=config, server_state=state, app_state={}, most=most, seconds=seconds),
        "127.0.0.1",
        0,
    )
    port = listening.sockets[0].getsockname()[1]
    try:
        return await talk(lambda: asyncio.open_connection("127.0.0.1", port))
    finally:
        listening.close()
        for one in list(state.connections):
            one.transport.abort()


HEALTH = b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def ask(reader, writer, request=HEALTH):
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = int(head.lower().partition("content-length: ")[2].split("\r\n")[0])
    return head, json.loads(await reader.readexactly(length))


def test_too_many_connections_get_503_and_silent_ones_are_closed(gallery):
    app = build_app(gallery, access=AccessControl({}))

    async def talk(connect):
        first = await connect()
        await ask(*first)  # the first request takes longer than the others
        first[1].close()
        await asyncio.sleep(0.05)
        open_ones = [await connect() for _ in range(4)]
        head, body = await ask(*open_ones[0])
        assert head.startswith("HTTP/1.1 200")
        extra = await connect()
        head, body = await ask(*extra)
        assert head.startswith("HTTP/1.1 503")
        assert "retry-after: 1" in head.lower()
        assert body["error"] == {"status": 503, "reason": "too many connections; try again"}
        assert await extra[0].read() == b""
        begun = time.monotonic()
        open_ones[2][1].write(b"GET /v1/health HT")  # half of a head
        assert await open_ones[1][0].read() == b""  # silent from the start
        assert (await open_ones[2][0].read()).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - begun < 30
        head, _ = await ask(*open_ones[0])  # kept alive
        assert head.startswith("HTTP/1.1 200")
        head, _ = await ask(*await connect())
        assert head.startswith("HTTP/1.1 200")
        for _, writer in (*open_ones, extra):
            writer.close()

    asyncio.run(connected(app, 4, 1.0, talk))


def test_the_head_of_a_request_has_a_largest_size(gallery):
    app = build_app(gallery, access=AccessControl({}))

    async def talk(connect):
        reader, writer = await connect()
        writer.write(b"GET /v1/health HTTP/1.1\r\nX: ")
        for _ in range(3):
            writer.write(b"x" * (connections.LONGEST_HEAD // 2))
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            await asyncio.sleep(0.02)
        assert (await reader.read(1000)).startswith(b"HTTP/1.1 431")
        writer.close()

    asyncio.run(connected(app, 4, 5, talk))


def test_connections_leave_files_for_the_gallery(monkeypatch):
    limit = [(256, 512)]
    monkeypatch.setattr(connections.resource, "getrlimit", lambda kind: limit[0])
    monkeypatch.setattr(connections.resource, "setrlimit", lambda kind, pair: limit.__setitem__(0, pair))
    assert 100 < most_connections(1000) <= 256
    assert limit == [(512, 512)]
    limit[0] = (20_000, 20_000)
    assert most_connections(1000) == 1000


def test_small_bodies_need_no_worker(client, monkeypatch):
    async def fail(self, task, body, client):
        raise AssertionError("a worker for a small body")

    monkeypatch.setattr(gallery_jobs.GalleryJobs, "in_worker", fail)
    assert client.post("/v1/search/vector", json={"vector": [0.5] * 32}).status_code == 200


def test_serve_uses_limited_connections(filled, tmp_path, monkeypatch):
    """The server of ``holdfast serve`` has the limits, not uvicorn's own connections."""
    folder, found = shutil.copytree(filled, tmp_path / "g"), []

    class Server:
        started = True

        def __init__(self, config):
            found.append(config.http)

        def run(self, sockets):
            pass

    monkeypatch.setattr(uvicorn, "Server", Server)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        limits = Limits(connections=7, head_seconds=3)
        server.serve(folder, host="127.0.0.1", port=0, access=AccessControl({}), limits=limits, device="cpu")
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    (http,) = found
    assert (http.func, http.keywords) == (LimitedConnection, {"most": 7, "seconds": 3})


def test_worker_processes_get_no_tokens(monkeypatch):
    monkeypatch.setenv("HOLDFAST_WRITE_TOKEN", "secret-secret-secret")
    monkeypatch.setenv("PGPASSWORD", "secret")
    assert not any("secret" in value for value in worker_pool._environment().values())


def test_the_images_of_one_request_are_decoded_one_after_another(client, gallery, pictures, monkeypatch):
    """Two at once would take twice the memory. A bad one refuses the request, whatever became of the others."""
    run, at_once, most = worker_pool._run_task, [0], [0]

    def counted(task, body):
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        try:
            return run(task, body)
        finally:
            at_once[0] -= 1

    monkeypatch.setattr(worker_pool, "_run_task", counted)
    rows = [{"id": f"new/{n}", "image": base64.b64encode(png(pictures[n])).decode()} for n in range(12)]
    assert client.post("/v1/items", json={"items": rows}).json() == {"stored": 12, "version": 1}
    assert most == [1]
    (hit,) = gallery.search(pictures[7], k=1, filter={"label": "b"})
    assert hit.score == pytest.approx(1, abs=1e-5)
    assert gallery.search(id="b/7", k=1)[0].id == "new/7"
    bad = {"id": "bad", "image": base64.b64encode(b"no image").decode()}
    assert client.post("/v1/items", json={"items": [{**rows[0], "id": "good"}, bad]}).status_code == 422
    assert not gallery.get(["good", "bad"])

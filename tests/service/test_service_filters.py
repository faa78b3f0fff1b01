"""Filters and new fields that a client can make expensive, in a served gallery of 40,000 items."""

import base64
import http.client
import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import numpy as np
import pytest
from test_service_process import start

from holdfast.gallery import Gallery, Item

ITEMS, LATE, DIM = 40_000, 2000, 16
LARGEST_FILTER = 16 * 1024
MOST_WAITING_S = 0.25
TRIES = 3  # other programs may take the cores for longer
LOG = logging.getLogger(__name__)  # shown with -o log_cli=true -o log_cli_level=INFO
NUMBERS = [f"f{n}" for n in range(8)]
LATE_FIELDS = [f"late{n}" for n in range(80)]


def fields(n):
    """An item's fields; those of the last items are new, and no index holds them."""
    found = {name: (n // 3) % (2 + 40 * place) for place, name in enumerate(NUMBERS)}
    found |= {"shop": f"shop {n % 300}", "sale": n % 7 == 0, "mixed": n if n % 2 else str(n)}
    return found | (dict.fromkeys(LATE_FIELDS[:32], n) if n >= ITEMS - LATE else {})


def listed(names, value):
    """Lists of 256 values in all, for these fields."""
    return {name: [value(n) for n in range(256 // len(names))] for name in names}


FILTERS = {
    "a type that no item has": {"label": [True] * 256},
    "one text for a field of numbers": {"f0": "a"},
    "80 times the same text": {"f0": ["a"] * 80},
    "256 texts for a field of numbers": listed(["f0"], lambda n: f"a{n}"),
    "numbers for 2 fields of text": listed(["label", "shop"], lambda n: n),
    "256 texts": listed(["shop"], lambda n: f"shop {n}"),
    "256 long texts": listed(["shop"], lambda n: f"shop {n:050}"),
    "256 numbers": listed(["f7"], lambda n: n),
    "256 numbers that no item has": listed(["f7"], lambda n: n + 0.5),
    "numbers in 8 fields": listed(NUMBERS, lambda n: n),
    "bounds of 8 fields": {name: {"gte": 0, "lte": 1e9} for name in NUMBERS},
    "true or false in 8 fields": {name: [True, False] for name in NUMBERS},
    "256 texts of a mixed field": listed(["mixed"], lambda n: str(2 * n)),
    "texts, numbers and true of a mixed field": {"mixed": [*range(100), *map(str, range(100)), True]},
    "a field that no index holds": {"late0": ITEMS - 1},
    "256 values of a field that no index holds": listed(["late0"], lambda n: ITEMS - n),
    "32 fields that no index holds": {name: {"gte": 0} for name in LATE_FIELDS[:32]},
    "more values than are taken": {name: list(range(128)) for name in NUMBERS},
}


class Client:
    """One connection to the service."""

    def __init__(self, url):
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=300)

    def __call__(self, method, path, body=None):
        text = None if body is None else json.dumps(body, separators=(",", ":"))
        self._connection.request(method, path, text, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())


def waiting_for_health(url, work):
    """The result of ``work``, how long it took, and how long /v1/health took at most meanwhile."""
    done, longest = threading.Event(), [0.0]

    def ask():
        client = Client(url)
        while not done.is_set():
            begun = time.perf_counter()
            assert client("GET", "/v1/health")[0] == 200
            longest[0] = max(longest[0], time.perf_counter() - begun)
            time.sleep(0.01)

    thread = threading.Thread(target=ask)
    thread.start()
    begun = time.perf_counter()
    try:
        found = work()
    finally:
        done.set()
        thread.join()
    return found, time.perf_counter() - begun, longest[0]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The URL of a service, and a query. The last items were added after the index was built."""
    root = tmp_path_factory.mktemp("filters")
    vectors = np.random.default_rng(0).standard_normal((ITEMS, DIM)).astype(np.float32)
    with Gallery.create(root / "g", vectors=vectors, device="cpu") as gallery:
        items = [Item(f"i{n}", vector=vectors[n], label=f"l{n % 50}", metadata=fields(n)) for n in range(ITEMS)]
        gallery.add(items[:-LATE], batch_size=4000)
        gallery.build_index()
        gallery.add(items[-LATE:], batch_size=1000)
    process, url = start(root / "g")
    yield url, base64.b64encode(vectors[0].astype("<f4").tobytes()).decode()
    process.terminate()
    process.communicate(timeout=60)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_filter_stops_the_service(served):
    """A condition that no index holds was looked up in every item, with Python's lock held: up to 30 s for 2 kB."""
    url, query = served
    too_long = []
    for name, where in {"none": None, **FILTERS}.items():
        assert len(json.dumps(where, separators=(",", ":"))) <= LARGEST_FILTER
        for exact in (False, True):
            body = {"vector": query, "k": 10, "filter": where, "exact": exact}
            for _ in range(TRIES):
                (status, answer), took, longest = waiting_for_health(
                    url, lambda body=body: Client(url)("POST", "/v1/search/vector", body)
                )
                assert status == (422 if name.startswith("more values") else 200), answer
                if longest < MOST_WAITING_S or longest > 1:
                    break
            said = f"{1000 * longest:.0f} ms, search {1000 * took:.0f} ms: {name}{', exact' if exact else ''}"
            LOG.info("/v1/health %s", said)
            if longest > MOST_WAITING_S:
                too_long.append(said)
    assert too_long == []


@pytest.mark.slow
def test_filters_that_are_read_find_what_fits(served):
    url, query = served
    for where in (FILTERS["256 numbers"], FILTERS["texts, numbers and true of a mixed field"], {"late0": ITEMS - 1}):
        status, answer = Client(url)("POST", "/v1/search/vector", {"vector": query, "k": 1000, "filter": where})
        assert status == 200
        accepted = {
            name: {(type(value), value) for value in (values if isinstance(values, list) else [values])}
            for name, values in where.items()
        }
        wanted = [
            n for n in range(ITEMS)
            if all((type(fields(n).get(name)), fields(n).get(name)) in some for name, some in accepted.items())
        ]  # fmt: skip
        assert len(answer["hits"]) == min(1000, len(wanted))
        assert {hit["id"] for hit in answer["hits"]} <= {f"i{n}" for n in wanted}


@pytest.mark.slow
def test_new_fields_stop_nobody(tmp_path):
    """16 items with 64 new names each in a small gallery: an index for each was made before the write was done."""
    vectors = np.eye(DIM, dtype=np.float32)
    with Gallery.create(tmp_path / "g", vectors=vectors, device="cpu") as gallery:
        gallery.add(Item(f"i{n}", vector=vectors[n % DIM], label="a") for n in range(4000))
    process, url = start(tmp_path / "g")
    vector = vectors[0].tolist()

    def item(n, names):
        return {"id": f"n{n}", "vector": vector, "metadata": dict.fromkeys(names, 1)}

    def write(*items):
        return Client(url)("POST", "/v1/items", {"items": items})

    try:
        many = [item(n, [f"x{n}_{place}" for place in range(64)]) for n in range(16)]
        (status, _), took, longest = waiting_for_health(url, lambda: write(*many))
        found = [("16 x 64 new fields", status, took, longest)]
        for place in range(3):
            names = [f"y{place}_{n}" for n in range(63)]

            def both(place=place, names=names):
                with ThreadPoolExecutor(2) as pool:
                    first = pool.submit(write, item(place, names))
                    time.sleep(0.2)
                    return first.result()[0], pool.submit(write, item(99, [])).result()[0]

            statuses, took, longest = waiting_for_health(url, both)
            found.append(("63 new fields, and another write", statuses, took, longest))
        for name, status, took, longest in found:
            LOG.info("%s: %s, %.0f ms; /v1/health %.0f ms", name, status, 1000 * took, 1000 * longest)
        assert [row[1] for row in found] == [422, (200, 200), (200, 200), (422, 200)]
        assert max(took for _, _, took, _ in found) < 5  # 0.5 s; all indexes took minutes
    finally:
        process.terminate()
        process.communicate(timeout=60)

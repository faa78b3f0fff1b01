"""Filters, pages and parallel searches of attached stores. The reference is a loop over the rows in memory."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attached_stores import DIM, QdrantStandIn, collection_with_fields, stored_rows, table_with_fields

from holdfast.core.errors import HoldfastError, UnavailableError
from holdfast.gallery import Address, AttachedGallery, Gallery, Item
from holdfast.gallery.attached import open_source
from holdfast.gallery.attached.postgres_table import MOST_CONNECTIONS
from holdfast.gallery.filters import matches, parse_filter
from holdfast.train.encoders import Encoder, VectorInput, build_backbone

pytest.importorskip("psycopg")
pytest.importorskip("qdrant_client")

ROWS = stored_rows()
FIELDS = {"stock", "new", "kind", "price", "shop", "label"}
FILTERS: list[dict[str, Any]] = [
    {"shop": "north"},
    {"shop": "east's"},
    {"shop": ["north", "south"], "new": True},
    {"shop": "3"},
    {"stock": 7},
    {"stock": 7.0},
    {"stock": 7.5},
    {"stock": [1, 2.5, 3]},
    {"stock": {"gt": 6.5, "lte": 20}},
    {"stock": {"gte": 7, "lt": 20.5}},
    {"stock": {"lt": 1e30}},
    {"stock": "7"},
    {"price": 3.5},
    {"price": {"gte": 10, "lt": 12.5}},
    {"new": False, "stock": {"lt": 9}},
    {"kind": "k1"},
    {"label": ["k0", "k2"], "price": {"gt": 30}},
    {"shop": {"gt": 3}},
]


@pytest.fixture(scope="module")
def server(postgres_server):
    return str(postgres_server.url)


@pytest.fixture(scope="module")
def table(server):
    with table_with_fields(server, ROWS) as address:
        yield address


@pytest.fixture(scope="module")
def collection(tmp_path_factory) -> Address:
    return collection_with_fields(tmp_path_factory.mktemp("filtered") / "qdrant", ROWS)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("filtered-model") / "model"
    Encoder(build_backbone("linear", in_channels=DIM, width=DIM), preprocess=VectorInput(DIM)).save_pretrained(folder)
    return folder


def nearest(query: np.ndarray, given: dict[str, Any] | None) -> list[str]:
    """The ids of all rows that match, best first."""
    where = parse_filter(given, FIELDS)
    kept = [row for row in ROWS if where is None or matches(where, {**row["fields"], "label": row["fields"]["kind"]})]
    cosine = [float(row["vector"] @ query / np.linalg.norm(row["vector"])) for row in kept]
    return [kept[place]["id"] for place in np.argsort(-np.array(cosine), kind="stable")]


@pytest.mark.parametrize("store", ["table", "collection"])
def test_a_filter_finds_what_a_loop_over_the_rows_finds(store, request, model, tmp_path):
    address, query = request.getfixturevalue(store), ROWS[4]["vector"]
    with AttachedGallery.attach(tmp_path / "g", address, model) as gallery:
        for given in FILTERS:
            expected = nearest(query, given)
            found = [hit.id for hit in gallery.search(vector=query, k=90, filter=given)]
            assert found == expected, given
            assert [hit.id for hit in gallery.search(vector=query, k=90, filter=given, exact=True)] == expected, given
        like = gallery.search(id="item-004", k=3, filter={"shop": "south"})
        assert [hit.id for hit in like] == [name for name in nearest(query, {"shop": "south"}) if name != "item-004"][
            :3
        ]
        assert set(gallery.stats()["fields"]) >= FIELDS


def test_members_of_a_jsonb_column(table):
    source, query = open_source(table), ROWS[4]["vector"]
    for given in FILTERS:
        renamed = {field if field in ("label", "kind") else f"more.{field}": value for field, value in given.items()}
        found = source.search(query, 90, source.parse_filter(renamed))
        assert [near.id for near in found] == nearest(query, given), renamed
    source.close()


@pytest.mark.parametrize(
    ("store", "given", "message"),
    [
        ("table", {"colour": "red"}, "unknown filter field 'colour'"),
        ("table", {"made": "2026-01-01"}, "unknown filter field 'made'"),  # a date
        ("table", {"v": "x"}, "unknown filter field 'v'"),
        ("table", {"more": 1}, "unknown filter field 'more'"),
        ("table", {"id'; --": 1}, "unknown filter field"),
        ("table", {"stock": []}, "an empty list matches nothing"),
        ("table", {"stock": {"above": 3}}, "unknown bound on stock 'above'"),
        ("collection", {"colour": "red"}, "unknown filter field 'colour'"),
        ("collection", {"shop": [None]}, "is not text, true, false or a finite number"),
    ],
)
def test_filters_that_are_refused(store, given, message, request):
    source = open_source(request.getfixturevalue(store))
    with pytest.raises(HoldfastError) as refused:
        source.parse_filter(given)
    source.close()
    assert message in str(refused.value)


def test_a_field_that_only_a_late_point_has(tmp_path):
    rows = stored_rows(130)
    rows[-1]["fields"]["rare"] = "yes"
    source = open_source(collection_with_fields(tmp_path / "qdrant", rows))
    assert "rare" not in source.fields
    found = source.search(rows[0]["vector"], 5, source.parse_filter({"rare": "yes"}))
    assert [near.id for near in found] == ["item-129"]
    assert "rare" in source.fields
    source.close()


def test_an_index_that_returns_too_few_is_left_aside(server):
    """An HNSW index has candidates for 40 hits by default, and a filter leaves few of them."""
    with table_with_fields(server, ROWS, index=True) as address:
        source, query = open_source(address), ROWS[4]["vector"]
        assert source.index == "a cosine index"
        for given, k in ((None, 90), ({"stock": {"gte": 80}}, 20), ({"shop": "north"}, 90)):
            found = source.search(query, k, source.parse_filter(given))
            assert [near.id for near in found] == nearest(query, given)[:k]
        source.close()


def pages(gallery: Any, query: np.ndarray, size: int, **options: Any) -> list[str]:
    found: list[str] = []
    while page := gallery.search(vector=query, k=size, offset=len(found), **options):
        found += [hit.id for hit in page]
    return found


@pytest.mark.parametrize("store", ["table", "collection", "gallery"])
def test_pages_are_parts_of_one_list(store, request, model, tmp_path):
    query = ROWS[4]["vector"]
    if store == "gallery":
        opened: Any = Gallery.create(tmp_path / "g", model, device="cpu")
        opened.add(Item(row["id"], vector=row["vector"], metadata=row["fields"]) for row in ROWS)
    else:
        opened = AttachedGallery.attach(tmp_path / "g", request.getfixturevalue(store), model)
    with opened as gallery:
        assert pages(gallery, query, 7) == nearest(query, None)
        assert pages(gallery, query, 10, filter={"shop": "south"}) == nearest(query, {"shop": "south"})
        second = gallery.search(id="item-004", k=5, offset=5)
        assert [hit.id for hit in second] == [name for name in nearest(query, None) if name != "item-004"][5:10]
        for offset, message in ((-1, "from 0 on, got -1"), (1.5, "got 1.5"), (9_991, "together are at most 10000")):
            with pytest.raises(HoldfastError, match=message):
                gallery.search(vector=query, k=10, offset=offset)


def test_a_table_is_searched_by_several_threads_at_once(table):
    """Every thread holds its connection until all have one, which needs as many connections as threads."""
    source = open_source(table)
    together, errors = threading.Barrier(MOST_CONNECTIONS, timeout=20), []

    def work(connection: Any) -> None:
        connection.execute("SELECT 1")
        together.wait()

    def run() -> None:
        try:
            source._run(work)
            assert source.search(ROWS[4]["vector"], 1)[0].id == "item-004"
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(MOST_CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    source.close()
    assert not errors


def test_connections_that_the_server_has_closed_are_opened_again(table):
    import psycopg

    source = open_source(table)
    (pid,) = source._fetch_all("SELECT pg_backend_pid()")[0]
    with psycopg.connect(table.url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    assert source.search(ROWS[4]["vector"], 1)[0].id == "item-004"
    with pytest.raises(HoldfastError, match="read-only transaction"):
        source._fetch_all("CREATE TABLE anything (n int)")  # the new connection only reads, too
    source.close()


COLLECTION = {
    "status": "green",
    "optimizer_status": "ok",
    "segments_count": 2,
    "points_count": 2,
    "config": {
        "params": {"vectors": {"size": DIM, "distance": "Cosine"}, "shard_number": 6, "replication_factor": 2},
        "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000},
        "optimizer_config": {"deleted_threshold": 0.2, "vacuum_min_vector_number": 1000, "default_segment_number": 0,
                             "flush_interval_sec": 5},
    },
    "payload_schema": {"shop": {"data_type": "keyword", "points": 2}},
}  # fmt: skip


def test_a_server_is_asked_by_several_threads_at_once_and_as_documented():
    """Recorded HTTP: the requests are those of Qdrant's REST interface; no server was at hand."""
    together = threading.Barrier(5, timeout=20)

    def answer(method: str, path: str, body: Any) -> Any:
        if path == "/collections":
            return {"collections": [{"name": "items"}]}
        if path == "/collections/items":
            return COLLECTION
        if path.startswith("/collections/items/points/scroll"):
            return {"points": [{"id": 1, "payload": {"price": 3}}], "next_page_offset": None}
        if path.startswith("/collections/items/points/query"):
            together.wait()  # answers only when five searches are under way
            return {"points": [{"id": 7, "version": 0, "score": 0.5, "payload": {"kind": "k1"}}]}
        return None

    stand_in = QdrantStandIn(answer)
    try:
        source = open_source(Address(stand_in.url, "items", "id", "", "kind"))
        assert source.fields == ["label", "price", "shop"]
        where = source.parse_filter({"shop": ["north", "south"], "price": {"lt": 5}, "label": "k1"})
        found: list[Any] = []
        query = np.ones(DIM, dtype=np.float32)
        threads = [threading.Thread(target=lambda: found.append(source.search(query, 3, where))) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        source.close()
    finally:
        stand_in.close()
    assert found == [[("7", 0.5, "k1")]] * 5
    assert stand_in.most_running == 5
    method, path, body = next(one for one in stand_in.asked if "/points/query" in one[1])
    assert (method, path) == ("POST", "/collections/items/points/query")
    assert (body["query"], body["limit"], body["with_payload"]) == ({"nearest": [1.0] * DIM}, 3, True)
    shop, price, label = body["filter"]["must"]
    assert [one["match"] for one in shop["should"]] == [{"value": "north"}, {"value": "south"}]
    assert price == {"key": "price", "range": {"lt": 5.0}}
    assert label["should"] == [{"key": "kind", "match": {"value": "k1"}}]
    assert {one[0] for one in stand_in.asked} <= {"GET", "POST"}
    assert all(one[1].partition("?")[0].endswith(("items", "collections", "scroll", "query")) for one in stand_in.asked)


@pytest.mark.parametrize(("field", "most"), [("id", 2**64), ("name", 2**63)])
def test_ids_that_no_point_can_have_are_not_asked_for(field, most):
    """A server refuses a whole number beyond its types, and takes a filter without conditions for all points."""
    stand_in = QdrantStandIn(lambda method, path, body: {
        "/collections": {"collections": [{"name": "items"}]}, "/collections/items": COLLECTION,
        "/collections/items/points": [],
    }.get(path, {"points": [], "next_page_offset": None}))  # fmt: skip
    try:
        source = open_source(Address(stand_in.url, "items", field, "", None))
        asked = len(stand_in.asked)
        assert source.fetch([]) == {}
        assert len(stand_in.asked) == asked
        assert source.fetch([str(most - 1), str(most)]) == {}
        assert most - 1 in _numbers(stand_in.asked[asked:])
        assert most not in _numbers(stand_in.asked[asked:])
        source.close()
    finally:
        stand_in.close()


def _numbers(value: Any) -> set[int]:
    """All whole numbers in a value of JSON."""
    if isinstance(value, dict | list | tuple):
        members = value.values() if isinstance(value, dict) else value
        return set().union(*map(_numbers, members))
    return {value} if isinstance(value, int) else set()


def test_a_server_that_is_gone_is_unavailable():
    stand_in = QdrantStandIn(lambda method, path, body: {
        "/collections": {"collections": [{"name": "items"}]}, "/collections/items": COLLECTION,
    }.get(path, {"points": [], "next_page_offset": None}))  # fmt: skip
    source = open_source(Address(stand_in.url, "items", "id", "", None))
    stand_in.close()
    with pytest.raises(UnavailableError, match="items: "):
        source.search(np.ones(DIM, dtype=np.float32), 3)
    source.close()


@pytest.mark.parametrize("place", ["table", "collection"])
def test_labels_of_items_and_how_many_have_one(place, request):
    """Every seventh row has no shop, which is the label here."""
    address = replace(request.getfixturevalue(place), label="shop")
    source = open_source(address)
    try:
        assert source.labels(["item-001", "item-007", "nothing"]) == {"item-001": "south", "item-007": None}
        assert source.count() == len(ROWS)
        assert source.count(labelled=True) == sum("shop" in row["fields"] for row in ROWS)
    finally:
        source.close()
    bare = open_source(replace(address, label=None))
    try:
        assert bare.labels(["item-001"]) == {"item-001": None}
        assert bare.count(labelled=True) == 0
    finally:
        bare.close()

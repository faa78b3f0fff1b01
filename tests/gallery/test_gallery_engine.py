"""What every engine must do, against a plain dictionary and numpy."""

import itertools
import os
import shutil
import time

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.gallery import open_engine
from holdfast.gallery.engines import embedded_engine as embedded
from holdfast.gallery.engines import embedded_process
from holdfast.gallery.engines.engine import new_engine_address
from holdfast.gallery.filters import matches, parse_filter

FILTERS = [
    None,
    {"name": "north"},
    {"name": ["north", "true"]},
    {"name": "1"},
    {"size": 1},
    {"size": [2.5, 3]},
    {"size": {"gt": 1, "lte": 3}},
    {"flag": True},
    {"flag": [False, "true"]},
    {"mixed": 1},
    {"mixed": "1"},
    {"mixed": True},
    {"mixed": {"gte": 0}},
    {"name": "north", "size": {"lt": 3}, "flag": False},
]


@pytest.fixture(params=["embedded", "postgresql"])
def engine(request, address_of, tmp_path):
    made = open_engine(new_engine_address(address_of(request.param)), tmp_path / "vectors")
    made.create("v0001", 8)
    yield made
    for collection in made.collections():
        made.drop(collection)
    made.close()


def some_rows(count=60, seed=0):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((count, 8)).astype(np.float32)
    fields = [
        {
            "name": ["north", "south", "true", "1"][i % 4],
            "size": [1, 2.5, 3, 10**6][i % 4],
            "flag": i % 3 == 0,
            "mixed": [1, "1", True, 1.0, "x"][i % 5],
        }
        for i in range(count - 5)
    ]
    return vectors, fields + [{} for _ in range(5)]


def test_search_is_brute_force_over_what_fits(engine):
    vectors, fields = some_rows()
    engine.upsert("v0001", range(100, 160), vectors, fields)
    query = 0.25 * np.random.default_rng(1).standard_normal(8).astype(np.float32)
    for indexed, given in itertools.product((False, True), FILTERS):
        if indexed:
            engine.build_index("v0001")
        where = parse_filter(given, {"name", "size", "flag", "mixed"})
        kept = [i for i, row in enumerate(fields) if where is None or matches(where, row)]
        assert kept
        scores = vectors[kept] @ query  # the query's length included
        order = np.argsort(-scores)
        found = engine.search("v0001", query, 60, where, exact=True)
        assert [one.key for one in found] == [100 + kept[i] for i in order], given
        np.testing.assert_allclose([one.score for one in found], scores[order], atol=1e-5)
        best = [one.key for one in engine.search("v0001", query, 3, where)]
        assert best == [100 + kept[i] for i in order[:3]], given


def test_pages_of_equal_vectors_fit_together(engine):
    """A store that cut equal scores anywhere showed some vectors on two pages and others on none."""
    rng = np.random.default_rng(0)
    vectors = np.repeat(rng.standard_normal((3, 8)).astype(np.float32), 40, axis=0)
    keys = (1 + rng.permutation(len(vectors))).tolist()
    for start in range(0, len(keys), 20):  # as if stored in another order than the keys
        engine.upsert("v0001", keys[start : start + 20], vectors[start : start + 20], [{}] * 20)
    for exact in (True, False):  # nothing is indexed yet, so that all vectors are compared
        whole = [one.key for one in engine.search("v0001", vectors[0], 120, exact=exact)]
        scores = dict(zip(keys, vectors @ vectors[0], strict=True))
        assert whole == sorted(keys, key=lambda key: (-scores[key], key))
        for k in range(1, 120, 7):
            assert [one.key for one in engine.search("v0001", vectors[0], k, exact=exact)] == whole[:k]


def test_counting_stops_no_search(tmp_path):
    """No Python thread runs during a call of qdrant-edge, and stats, metrics and every write count."""
    pytest.importorskip("qdrant_edge")
    made = open_engine(new_engine_address("embedded"), tmp_path / "vectors")
    made.create("v0001", 4)
    vectors = np.random.default_rng(0).standard_normal((10_000, 4)).astype(np.float32)
    for first in (1, 10_001, 20_001):
        made.upsert("v0001", range(first, first + 10_000), vectors, [{}] * 10_000)
    made.delete("v0001", [7, 8, 99_999])
    seconds = []
    for _ in range(9):
        began = time.perf_counter()
        assert made.count("v0001") == 29_998
        seconds.append(time.perf_counter() - began)
    made.close()
    assert np.median(seconds) < 1e-3


def test_replace_delete_fetch_scan_count(engine):
    vectors, fields = some_rows()
    engine.upsert("v0001", range(60), vectors, fields)
    engine.upsert("v0001", [7], -vectors[7:8], [{}])
    engine.delete("v0001", [3, 4, 999])
    expected = {i: v for i, v in enumerate(vectors) if i not in (3, 4)} | {7: -vectors[7]}
    assert engine.count("v0001") == 58
    blocks = list(engine.scan("v0001", block=25))
    assert [len(keys) for keys, _ in blocks] == [25, 25, 8]
    keys = np.concatenate([keys for keys, _ in blocks])
    assert keys.tolist() == sorted(expected)
    np.testing.assert_array_equal(np.concatenate([v for _, v in blocks]), [expected[key] for key in keys])
    assert [keys.tolist() for keys, _ in engine.scan("v0001", block=3, after=54)] == [[55, 56, 57], [58, 59]]
    fetched = engine.fetch("v0001", [7, 3, 8])
    assert sorted(fetched) == [7, 8]
    np.testing.assert_array_equal(fetched[7], -vectors[7])
    assert engine.search("v0001", vectors[3], 1)[0].key != 3


def test_collections_are_apart_and_can_be_dropped(engine):
    engine.create("v0002", 3)
    engine.upsert("v0002", [1], np.ones((1, 3), dtype=np.float32), [{}])
    assert engine.search("v0001", np.ones(8, dtype=np.float32), 5) == []
    assert engine.collections() == ["v0001", "v0002"]
    engine.drop("v0002")
    assert engine.collections() == ["v0001"]
    engine.create("v0002", 4)
    assert engine.count("v0002") == 0


def test_an_index_changes_no_content(engine):
    vectors, fields = some_rows(400)
    engine.upsert("v0001", range(400), vectors, fields)
    before = engine.search("v0001", vectors[0], 400, exact=True)
    indexed = engine.build_index("v0001")
    assert engine.unindexed("v0001") == 0
    assert not engine.build_index("v0001")
    assert engine.count("v0001") == 400
    assert engine.search("v0001", vectors[0], 400, exact=True) == before
    engine.upsert("v0001", [1000], 100 * vectors[:1], [{}])
    engine.delete("v0001", [before[1].key])
    # One key is waiting, or none where the index takes it in at once; a deleted one does not make up for it.
    assert engine.unindexed("v0001") in ((0, 1) if indexed else (0,))
    assert [one.key for one in engine.search("v0001", vectors[0], 3)] == [1000, before[0].key, before[2].key]


@pytest.mark.parametrize("indexed_at_once", [True, False], ids=["when stored", "with the vectors"])
def test_filtered_searches_of_the_graph_find_the_nearest(tmp_path, monkeypatch, indexed_at_once):
    """Few neighbours in the graph match the filter; without an index of the field a fifth of the nearest were found."""
    pytest.importorskip("qdrant_edge")
    monkeypatch.setattr(embedded_process, "_FULL_SCAN_BELOW", 1)  # the graph is searched, not all that match
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((3000, 64)).astype(np.float32)
    fields = [{"part": i % 20, "name": f"n{i % 20}"} for i in range(len(vectors))]
    made = open_engine(new_engine_address("embedded"), tmp_path / "vectors")
    made.create("v0001", 64)
    if not indexed_at_once:
        made.upsert("v0001", [5000], vectors[:1], [{}])  # only fields of the first write are indexed then
    made.upsert("v0001", range(1, 3001), vectors, fields)
    filters = [parse_filter(given, {"part", "name"}) for given in ({"part": 3}, {"name": "n3"})]

    def recall(where):
        kept = np.arange(3, 3000, 20)
        found = 0
        for query in vectors[:40]:
            best = 1 + kept[np.argsort(-(vectors[kept] @ query))[:10]]
            found += len({one.key for one in made.search("v0001", query, 10, where)} & set(best.tolist()))
        return found / 400

    if not indexed_at_once:
        assert [recall(where) for where in filters] == [1, 1]  # compared one by one
    made.build_index("v0001")
    assert made._field_types["v0001"] == {"part": float, "name": str}
    assert min(recall(where) for where in filters) >= 0.95
    monkeypatch.setattr(made, "_filtered", None)
    assert max(recall(where) for where in filters) < 0.9  # the graph was searched; it differs from build to build
    made.close()


@pytest.mark.parametrize("large", [True, False])
def test_a_large_collection_is_searched_by_4_bit_copies_and_scored_in_float32(tmp_path, monkeypatch, large):
    edge = pytest.importorskip("qdrant_edge")
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((4000, 16)).astype(np.float32)
    vectors[:, 0] = 9 + vectors[:, 0]  # one number is much larger than the others
    made = open_engine(new_engine_address("embedded"), tmp_path / "vectors")
    made.create("v0001", 16)
    made.upsert("v0001", range(4000), vectors, [{}] * 4000)
    with monkeypatch.context() as patch:
        if large:  # indexed here and not by another process, which would not see the smaller limit
            patch.setattr(embedded_process, "_FULL_SCAN_BELOW", 1)
            patch.setattr(
                embedded, "_run_process", lambda task, folder: embedded_process.index_collection(edge, str(folder))
            )
        made.build_index("v0001")
    assert bool(list((tmp_path / "vectors").rglob("quantized.data"))) == large
    found = 0
    for query in vectors[:40]:
        scores = vectors @ query
        best = np.argsort(-scores)[:10]
        exact = made.search("v0001", query, 10, exact=True)
        assert [one.key for one in exact] == best.tolist()
        hits = made.search("v0001", query, 10)
        assert [one.score for one in hits] == pytest.approx(scores[[one.key for one in hits]], rel=1e-5)
        assert made.search("v0001", query, 1)[0].key == best[0]
        found += len({one.key for one in hits} & set(best.tolist()))
    assert found / 400 >= 0.97
    made.upsert("v0001", [5000], 2 * vectors[:1], [{}])
    assert made.search("v0001", vectors[0], 1)[0].key == 5000  # found before it is indexed
    assert made.build_index("v0001")
    assert made.search("v0001", vectors[0], 1)[0].key == 5000
    made.close()


def test_another_process_that_fails_leaves_nothing(tmp_path, monkeypatch):
    """The second collection of the embedded engine is created by another process."""
    pytest.importorskip("qdrant_edge")
    made = open_engine(new_engine_address("embedded"), tmp_path / "vectors")
    made.create("v0001", 8)
    with monkeypatch.context() as patch:
        patch.setattr("sys.executable", "/bin/false")
        with pytest.raises(HoldfastError, match=r"the embedded store could not create a collection \(status 1\)$"):
            made.create("v0002", 8)
    assert made.collections() == ["v0001"]
    assert [path.name for path in (tmp_path / "vectors").iterdir()] == ["v0001.0001"]
    made.create("v0002", 8)
    assert made.collections() == ["v0001", "v0002"]
    made.close()


def test_a_write_is_synced_without_the_flush_that_stops_other_threads(tmp_path, monkeypatch):
    """The log is written to disk by every write; the other files from so many changed points on, and at the end."""
    from holdfast.gallery.engines import embedded_engine as embedded

    synced, flushed = [], []
    fsync = os.fsync
    monkeypatch.setattr(embedded.os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino) or fsync(handle))
    monkeypatch.setattr(embedded, "FLUSH_FROM", 10)
    flush = embedded.EdgeEngine._flush
    monkeypatch.setattr(embedded.EdgeEngine, "_flush", lambda self, name: flushed.append(name) or flush(self, name))
    rows = np.eye(8, dtype=np.float32)
    engine = embedded.EdgeEngine(tmp_path / "v")
    engine.create("a", 8)
    for n in range(8):
        synced.clear()
        engine.upsert("a", [n], rows[n : n + 1], [{}])
        logs = [path.stat().st_ino for path in (tmp_path / "v" / "a.0001" / "wal").glob("open-*")]
        assert set(logs) <= set(synced)
    engine.delete("a", [3])
    assert flushed == []
    shutil.copytree(tmp_path / "v", tmp_path / "killed")  # what a process that is killed now leaves
    engine.delete("a", [4])
    assert flushed == ["a"]
    engine.delete("a", [5])
    engine.close()
    assert flushed == ["a", "a"]
    for folder, left in (("killed", [0, 1, 2, 4, 5, 6, 7]), ("v", [0, 1, 2, 6, 7])):
        engine = embedded.EdgeEngine(tmp_path / folder)
        assert sorted(engine.fetch("a", range(8))) == left
        engine.close()

"""``Upgrade``: the hits of the measured strategies, whatever the new model, the cache or the clock do."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from holdfast import NewVectors, Upgrade
from holdfast.core.errors import HoldfastError
from holdfast.upgrade.strategies import BLEND_WEIGHT, WEIGHT, blended_queries, combined_scores
from holdfast.upgrade.upgrade import SOURCES
from holdfast.vectors.feature_files import read_features

RNG = np.random.default_rng(0)
ITEMS, OLD, NEW = 300, 8, 12
MEANING = RNG.standard_normal((ITEMS, 8)).astype(np.float32)
TURN_OLD = np.linalg.qr(RNG.standard_normal((8, 8)))[0]
TURN_NEW = np.linalg.qr(RNG.standard_normal((NEW, 8)))[0].T
STORED = MEANING @ TURN_OLD + 0.5 * RNG.standard_normal((ITEMS, OLD))
STORED /= np.linalg.norm(STORED, axis=1, keepdims=True)
BY_NEW = (MEANING @ TURN_NEW).astype(np.float32)
TO_OLD = np.linalg.lstsq(BY_NEW, STORED, rcond=None)[0]


def search(vector, count, below=ITEMS):
    """A store: rows as ids, texts as contents; ``below`` is a filter of its own."""
    scores = STORED[:below] @ np.asarray(vector) / np.linalg.norm(vector)
    return [(int(row), float(scores[row]), f"text {row}") for row in np.argsort(-scores, kind="stable")[:count]]


def embed_old(queries):
    return np.stack([MEANING[query] @ TURN_OLD for query in queries])


def embed_new(queries):
    return np.stack([BY_NEW[query] for query in queries])


def embed_items(texts):
    return np.stack([BY_NEW[int(text.split()[1])] for text in texts])


def bridge(queries):
    return np.asarray(queries) @ TO_OLD


def made(**options):
    given = {"search": search, "embed_old": embed_old, "embed_new": embed_new, "embed_items": embed_items}
    return Upgrade(**{**given, "bridge": bridge, **options})


def ids(answer):
    return [hit.id for hit in answer.hits]


def slow_order(query, count, weight):
    """Two-stage search with candidates by the old query, in plain steps."""
    hits = search(embed_old([query])[0], count)
    rows = [row for row, _, _ in hits]
    new = [
        float(BY_NEW[query] @ BY_NEW[row] / np.linalg.norm(BY_NEW[query]) / np.linalg.norm(BY_NEW[row])) for row in rows
    ]
    total = combined_scores([[score for _, score, _ in hits]], [new], weight)[0]
    return [rows[place] for place in np.argsort(-total, kind="stable")]


@pytest.mark.parametrize("weight", [1.0, 0.7])
def test_hits_are_those_of_the_measured_strategy(weight):
    upgrade = made(candidates=30, weight=weight)
    for query in range(20):
        answer = upgrade.search(query, k=10)
        assert ids(answer) == slow_order(query, 30, weight)[:10]
        assert (answer.way, answer.reason, answer.embedded) == ("two-stage", None, 30)


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_answers_alone_and_in_batches(source):
    upgrade = made(source=source, candidates=25)
    one_by_one = [upgrade.search(query, k=7) for query in range(12)]
    together = upgrade.search_many(range(12), k=7)
    assert [ids(answer) for answer in one_by_one] == [ids(answer) for answer in together]
    assert {answer.way for answer in together} == {"blend" if source == "blend" else "two-stage"}
    if source == "blend":
        mixture = blended_queries(embed_old([3]), bridge(embed_new([3])), BLEND_WEIGHT)[0]
        assert ids(together[3]) == [row for row, _, _ in search(mixture, 7)]


def test_filters_are_the_store_s_own_and_k_may_exceed_the_candidates():
    answer = made(candidates=5).search(5, k=20, below=40)
    assert len(answer.hits) == 20
    assert max(ids(answer)) < 40


def test_the_cache_saves_embeddings_and_changes_no_hit(tmp_path):
    calls = []
    counted = lambda texts: calls.extend(texts) or embed_items(texts)  # noqa: E731
    cached = made(embed_items=counted, cache=NewVectors(tmp_path / "cache.sqlite", model="new"), candidates=20)
    plain = made(candidates=20)
    for _ in range(2):
        assert [ids(cached.search(query)) for query in range(15)] == [ids(plain.search(query)) for query in range(15)]
    distinct = {row for query in range(15) for row, _, _ in search(embed_old([query])[0], 20)}
    assert len(calls) == len(distinct) == cached.counts["embedded"]
    again = cached.search(3)
    assert (again.embedded, again.cached) == (0, 20)


def test_an_edited_item_is_embedded_again(tmp_path):
    contents, asked = {row: f"text {row}" for row in range(ITEMS)}, []

    def counted(texts):
        asked.extend(texts)
        return np.stack([BY_NEW[int(text.split()[1])] * (1 if "edited" not in text else -1) for text in texts])

    store = lambda *asked: [(row, score, contents[row]) for row, score, _ in search(*asked)]  # noqa: E731
    upgrade = made(search=store, embed_items=counted, cache=NewVectors(tmp_path / "cache.sqlite"), weight=1.0)
    first = upgrade.search(4).hits[0].id
    contents[first] = f"text {first} edited"
    asked.clear()
    assert first not in ids(upgrade.search(4))  # its new vector points the other way
    assert asked == [contents[first]]


def test_a_cache_is_bounded_and_keeps_what_was_used(tmp_path):
    cache = NewVectors(tmp_path / "cache.sqlite", most=10)
    for start in range(0, 30, 5):
        cache.put({(row, ""): BY_NEW[row] for row in range(start, start + 5)})
        assert cache.get([(0, "")]) or start > 0
    assert len(cache) == 10
    assert list(cache.get([(0, ""), (7, "")])) == [(0, "")]  # used before each write


def test_a_cache_of_another_model_or_a_damaged_one_is_refused(tmp_path):
    NewVectors(tmp_path / "cache.sqlite", model="new").close()
    with pytest.raises(HoldfastError, match="holds vectors with the model 'new'"):
        NewVectors(tmp_path / "cache.sqlite", model="newer")
    (tmp_path / "bad.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(HoldfastError, match="cannot be opened as a cache"):
        NewVectors(tmp_path / "bad.sqlite")


def test_export_writes_vectors_that_holdfast_reads(tmp_path):
    cache = NewVectors(tmp_path / "cache.sqlite")
    with pytest.raises(HoldfastError, match="holds no vectors yet"):
        cache.export(tmp_path / "new.npz")
    cache.put({(f"item {row}", "x"): BY_NEW[row] for row in range(5)})
    assert cache.export(tmp_path / "new.npz") == 5
    written = read_features(tmp_path / "new.npz", "gallery")
    assert written.ids.tolist() == [f"item {row}" for row in range(5)]
    assert np.allclose(written.rows.block(0, 5), BY_NEW[:5])


def filled(path, start):
    cache = NewVectors(path, model="new")
    for row in range(start, start + 50):
        cache.put({(row, ""): BY_NEW[row]})


def test_processes_share_a_cache(tmp_path):
    path = tmp_path / "cache.sqlite"
    with multiprocessing.get_context("fork").Pool(3) as pool:
        pool.starmap(filled, [(path, start) for start in (0, 50, 100)])
    kept = NewVectors(path, model="new").get([(row, "") for row in range(150)])
    assert len(kept) == 150
    assert all(np.array_equal(vector, BY_NEW[row]) for (row, _), vector in kept.items())


def test_a_budget_per_search_scores_the_best_candidates_first():
    answer = made(candidates=20, most_per_search=6, weight=1.0).search(2, k=20)
    scored = [hit for hit in answer.hits if hit.new_score is not None]
    assert {hit.id for hit in scored} == {row for row, _, _ in search(embed_old([2])[0], 6)}
    assert [hit.id for hit in answer.hits[:6]] == [hit.id for hit in scored]
    assert answer.embedded == 6
    assert "budget" in answer.reason


def test_a_used_up_minute_falls_back_to_blend_and_says_so(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("holdfast.upgrade.upgrade.time.monotonic", lambda: now[0])
    upgrade = made(candidates=10, most_per_minute=10)
    assert upgrade.search(0).way == "two-stage"
    answer = upgrade.search(1)
    assert answer.way == "blend"
    assert "budget allowed 0 of 10" in answer.reason
    mixture = blended_queries(embed_old([1]), bridge(embed_new([1])), BLEND_WEIGHT)[0]
    assert ids(answer) == [row for row, _, _ in search(mixture, 10)]
    now[0] += 61
    assert upgrade.search(1).way == "two-stage"
    assert made(candidates=10, most_per_minute=0, bridge=None).search(1).way == "old query"


FAULTS = {
    "failed": lambda rows: (_ for _ in ()).throw(RuntimeError("no connection")),
    "not finite": lambda rows: rows * np.nan,
    "wrong size": lambda rows: np.hstack([rows, rows]),
    "wrong number": lambda rows: rows[: len(rows) // 2],
}


@pytest.mark.parametrize("deadline", [None, 5.0])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("embedder", ["embed_items", "embed_new"])
def test_no_search_fails_because_the_new_model_does(embedder, fault, deadline):
    if (embedder, fault) == ("embed_new", "wrong size"):
        return  # a query alone has no wrong size
    bad = {embedder: lambda contents: FAULTS[fault](globals()[embedder](contents)), "deadline": deadline}
    upgrade = made(**bad, bridge=None)
    answer = upgrade.search(3)
    assert ids(answer) == [row for row, _, _ in search(embed_old([3])[0], 10)]
    assert (answer.way, bool(answer.reason)) == ("old query", True)
    assert upgrade.counts[fault] == 1
    if embedder == "embed_new":
        with pytest.raises(HoldfastError, match="no old model to fall back on"):
            made(**bad, embed_old=None, source="bridge").search(3)


def test_some_bad_vectors_leave_the_others_in_use():
    bad = np.where(np.arange(10) % 2, 1, np.nan)[:, None]
    answer = made(embed_items=lambda texts: embed_items(texts) * bad, candidates=10).search(3)
    assert answer.way == "two-stage"
    assert sum(hit.new_score is not None for hit in answer.hits) == 5
    assert "not finite" in answer.reason


def test_errors_of_the_old_side_are_raised():
    with pytest.raises(ZeroDivisionError):
        made(search=lambda vector, count: [1 / 0]).search(1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embed_old": None}, "needs embed_old"),
        ({"bridge": None, "source": "both"}, "needs bridge"),
        ({"embed_items": None}, "embed_items is needed"),
        ({"source": "newest"}, "source must be one of"),
    ],
)
def test_bad_set_ups_are_refused(options, message):
    with pytest.raises(HoldfastError, match=message):
        made(**options)


def test_a_policy_of_compare_is_taken_as_it_is():
    functions = {"search": search, "embed_new": embed_new, "embed_items": embed_items, "bridge": bridge}
    upgrade = Upgrade.from_policy({"source": "bridge", "candidates": 40, "weight": 1.0}, **functions)
    assert (upgrade.source, upgrade.candidates, upgrade.weight) == ("bridge", 40, 1.0)
    assert upgrade.search(1).embedded == 40


def test_sixteen_threads_get_the_hits_of_one(tmp_path):
    queries = [int(query) for query in np.random.default_rng(1).integers(0, ITEMS, 200)]
    expected = [ids(made(candidates=20).search(query)) for query in queries]
    upgrade = made(candidates=20, cache=NewVectors(tmp_path / "cache.sqlite"), deadline=60)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(upgrade.search, queries))
    assert [ids(answer) for answer in answers] == expected
    assert upgrade.counts["two-stage"] == 200  # as many calls at a time as threads are allowed


@pytest.mark.parametrize(("searches", "deadline"), [(300, 2.0), pytest.param(10_000, 1.0, marks=pytest.mark.slow)])
def test_a_hostile_embedder_is_answered_in_time_and_counted(searches, deadline):
    """It fails in every way, at random."""
    draw, lock, done = np.random.default_rng(3), threading.Lock(), dict.fromkeys(["too slow", *FAULTS], 0)

    def hostile(texts):
        with lock:
            fault = str(draw.choice(list(done))) if draw.random() < 0.03 else None
            done.update({fault: done[fault] + 1} if fault else {})
        if fault == "too slow":
            time.sleep(1.5 * deadline)
        return FAULTS.get(fault, lambda rows: rows)(embed_items(texts))

    upgrade = made(embed_items=hostile, deadline=deadline, candidates=15, bridge=None)
    for number in range(searches):
        begin = time.monotonic()
        answer = upgrade.search(number % ITEMS, k=10)
        assert time.monotonic() - begin < deadline
        assert len(answer.hits) == 10
        assert answer.reason is not None or ids(answer) == slow_order(number % ITEMS, 15, WEIGHT)[:10]
    assert {fault: upgrade.counts.get(fault, 0) for fault in done} == done


FILLER = """
import sys
import numpy as np
sys.path[:0] = {paths!r}
from tests.upgrade.test_upgrade_search import ITEMS, NewVectors, made
upgrade = made(cache=NewVectors({path!r}, model="new", most=200), candidates=20)
draw = np.random.default_rng({seed})
print("ready", flush=True)
while True:
    upgrade.search(int(draw.integers(0, ITEMS)))
"""


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_killed_searches_leave_a_right_cache(tmp_path, kills):
    path, draw, most = tmp_path / "cache.sqlite", np.random.default_rng(5), 0
    for seed in range(kills):
        code = FILLER.format(paths=[part for part in sys.path if part], path=str(path), seed=seed)
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=os.getcwd()) as process:
            process.stdout.readline()
            time.sleep(float(draw.uniform(0.0, 0.4)))
            process.send_signal(signal.SIGKILL)
        cache = NewVectors(path, model="new", most=200)
        rows = cache._connection().execute("SELECT id, content, vector FROM vectors").fetchall()
        assert all(
            content and np.array_equal(np.frombuffer(vector, "<f4"), BY_NEW[row]) for row, content, vector in rows
        )
        assert len(rows) <= 202  # the most, and a hundredth more
        assert cache._connection().execute("PRAGMA integrity_check").fetchone() == ("ok",)
        cache.close()
        most = max(most, len(rows))
    assert most > 0

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


def test_filters_are_the_store_s_own():
    answer = made().search(5, k=10, below=40)
    assert len(answer.hits) == 10
    assert max(ids(answer)) < 40


def test_more_hits_than_candidates_are_found_too():
    assert len(made(candidates=5).search(1, k=20).hits) == 20


def test_the_cache_saves_embeddings_and_changes_no_hit(tmp_path):
    calls = []

    def counted(texts):
        calls.append(len(texts))
        return embed_items(texts)

    cached = made(embed_items=counted, cache=NewVectors(tmp_path / "cache.sqlite", model="new"), candidates=20)
    plain = made(candidates=20)
    for _ in range(2):
        assert [ids(cached.search(query)) for query in range(15)] == [ids(plain.search(query)) for query in range(15)]
    distinct = {row for query in range(15) for row, _, _ in search(embed_old([query])[0], 20)}
    assert sum(calls) == len(distinct) == cached.counts["embedded"]
    again = cached.search(3)
    assert (again.embedded, again.cached) == (0, 20)


def test_an_edited_item_is_embedded_again(tmp_path):
    contents = {row: f"text {row}" for row in range(ITEMS)}
    asked = []

    def store(vector, count):
        return [(row, score, contents[row]) for row, score, _ in search(vector, count)]

    def counted(texts):
        asked.extend(texts)
        return np.stack([BY_NEW[int(text.split()[1])] * (1 if "edited" not in text else -1) for text in texts])

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
    assert cache.get([(0, "")])  # used before each write
    assert not cache.get([(7, "")])


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


def _fill(path, start):
    cache = NewVectors(path, model="new")
    for row in range(start, start + 50):
        cache.put({(row, ""): BY_NEW[row]})


def test_processes_share_a_cache(tmp_path):
    path = tmp_path / "cache.sqlite"
    NewVectors(path, model="new").close()
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_fill, args=(path, 50 * number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = NewVectors(path, model="new").get([(row, "") for row in range(150)])
    assert len(found) == 150
    assert all(np.array_equal(vector, BY_NEW[row]) for (row, _), vector in found.items())


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


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("deadline", [None, 5.0])
def test_no_search_fails_because_item_embedding_does(fault, deadline):
    upgrade = made(embed_items=lambda texts: FAULTS[fault](embed_items(texts)), bridge=None, deadline=deadline)
    answer = upgrade.search(3)
    assert ids(answer) == [row for row, _, _ in search(embed_old([3])[0], 10)]
    assert answer.way == "old query"
    assert answer.reason
    assert upgrade.counts[fault] == 1


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "wrong size"])
def test_no_search_fails_because_the_query_s_embedding_does(fault):
    upgrade = made(embed_new=lambda queries: FAULTS[fault](embed_new(queries)))
    assert ids(upgrade.search(3)) == [row for row, _, _ in search(embed_old([3])[0], 10)]
    assert upgrade.counts[fault] == 1
    gone = made(embed_new=lambda queries: FAULTS[fault](embed_new(queries)), embed_old=None, source="bridge")
    with pytest.raises(HoldfastError, match="no old model to fall back on"):
        gone.search(3)


def test_some_bad_vectors_leave_the_others_in_use():
    def partly(texts):
        rows = embed_items(texts)
        rows[::2] = np.nan
        return rows

    upgrade = made(embed_items=partly, candidates=10)
    answer = upgrade.search(3)
    assert answer.way == "two-stage"
    assert sum(hit.new_score is not None for hit in answer.hits) == 5
    assert "not finite" in answer.reason


def test_errors_of_the_old_side_are_raised():
    def broken(vector, count):
        raise OSError("the store is down")

    with pytest.raises(OSError, match="store is down"):
        made(search=broken).search(1)


def test_bad_set_ups_are_refused():
    with pytest.raises(HoldfastError, match="needs embed_old"):
        made(embed_old=None)
    with pytest.raises(HoldfastError, match="needs bridge"):
        made(bridge=None, source="both")
    with pytest.raises(HoldfastError, match="embed_items is needed"):
        made(embed_items=None)
    with pytest.raises(HoldfastError, match="source must be one of"):
        made(source="newest")


def test_a_policy_of_compare_is_taken_as_it_is():
    policy = {"source": "bridge", "candidates": 40, "weight": 1.0}
    functions = {"search": search, "embed_new": embed_new, "embed_items": embed_items, "bridge": bridge}
    upgrade = Upgrade.from_policy(policy, **functions)
    assert (upgrade.source, upgrade.candidates, upgrade.weight) == ("bridge", 40, 1.0)
    assert upgrade.search(1).way == "two-stage"


def test_sixteen_threads_get_the_hits_of_one(tmp_path):
    queries = [int(query) for query in np.random.default_rng(1).integers(0, ITEMS, 200)]
    expected = [ids(made(candidates=20).search(query)) for query in queries]
    upgrade = made(candidates=20, cache=NewVectors(tmp_path / "cache.sqlite"), deadline=60)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(upgrade.search, queries))
    assert [ids(answer) for answer in answers] == expected
    assert {answer.way for answer in answers} <= {"two-stage", "blend", "old query"}
    assert upgrade.counts["searches"] == 200
    assert not any(name in upgrade.counts for name in ("failed", "cache failed", "too slow"))


class Hostile:
    """A new model that fails in every way, at random; counts what it did."""

    def __init__(self, embed, seed, share, hang):
        self.embed, self.share, self.hang = embed, share, hang
        self._draw, self._lock = np.random.default_rng(seed), threading.Lock()
        self.done = {"hang": 0, **dict.fromkeys(FAULTS, 0)}

    def __call__(self, contents):
        with self._lock:
            fault = self._draw.choice(list(self.done)) if self._draw.random() < self.share else None
            if fault is not None:
                self.done[str(fault)] += 1
        rows = self.embed(contents)
        if fault == "hang":
            time.sleep(self.hang)
        return rows if fault in (None, "hang") else FAULTS[str(fault)](rows)


def hostile_searches(count, deadline):
    hostile = Hostile(embed_items, seed=3, share=0.03, hang=deadline * 1.5)
    upgrade = made(embed_items=hostile, deadline=deadline, candidates=15, bridge=None)
    slowest = 0.0
    for number in range(count):
        begin = time.monotonic()
        answer = upgrade.search(number % ITEMS, k=10)
        slowest = max(slowest, time.monotonic() - begin)
        assert len(answer.hits) == 10
        expected = slow_order(number % ITEMS, 15, WEIGHT)[:10] if answer.way == "two-stage" else None
        assert answer.reason is not None or ids(answer) == expected
    return hostile.done, upgrade.counts, slowest


def check_hostile(done, counts, slowest, deadline):
    assert slowest < deadline
    assert counts["too slow"] == done["hang"]
    for name in FAULTS:
        assert counts.get(name, 0) == done[name], name


def test_a_hostile_embedder_is_answered_in_time_and_counted():
    check_hostile(*hostile_searches(300, 2.0), deadline=2.0)


@pytest.mark.slow
def test_ten_thousand_searches_with_a_hostile_embedder():
    check_hostile(*hostile_searches(10_000, 1.0), deadline=1.0)


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


def killed_while_filling(path, kills):
    draw = np.random.default_rng(5)
    most = 0
    for seed in range(kills):
        code = FILLER.format(paths=[part for part in sys.path if part], path=str(path), seed=seed)
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=os.getcwd())
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(float(draw.uniform(0.0, 0.4)))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        cache = NewVectors(path, model="new", most=200)
        rows = cache._connection().execute("SELECT id, content, vector FROM vectors").fetchall()
        for row, content, vector in rows:
            assert np.array_equal(np.frombuffer(vector, np.float32), BY_NEW[row])
            assert content
        assert len(rows) <= 202  # the most, and a hundredth more
        assert cache._connection().execute("PRAGMA integrity_check").fetchone() == ("ok",)
        cache.close()
        most = max(most, len(rows))
    assert most > 0


def test_a_killed_search_leaves_a_right_cache(tmp_path):
    killed_while_filling(tmp_path / "cache.sqlite", 3)


@pytest.mark.slow
def test_thirty_killed_searches_leave_a_right_cache(tmp_path):
    killed_while_filling(tmp_path / "cache.sqlite", 30)

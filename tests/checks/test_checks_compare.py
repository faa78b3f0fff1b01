"""All ways to serve an upgrade: against slow searches, and the answers that may never be wrong."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from holdfast import compare
from holdfast.checks.comparison import bridge_candidates
from holdfast.checks.measured_ways import way_name
from holdfast.cli import app
from holdfast.core.errors import HoldfastError
from holdfast.upgrade.strategies import WEIGHT


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def made_up(items=400, queries=200, old_noise=0.7, new_noise=0.2, seed=0):
    """An index by two models that add noise to a meaning, in different bases; each query asks for one item."""
    rng = np.random.default_rng(seed)
    meaning, asked = rng.standard_normal((items, 10)), rng.integers(0, items, queries)
    turns = [np.linalg.qr(rng.standard_normal((size, 10)))[0].T for size in (12, 16)]

    def by(rows, model):
        noise = (old_noise, new_noise)[model]
        return (rows + noise * rng.standard_normal(rows.shape)) @ turns[model]

    ids = np.array([f"item {i}" for i in range(items)])
    names = np.array([f"query {i}" for i in range(queries)])
    grades = {str(names[q]): {f"item {item}": 2, f"item {(item + 1) % items}": 0} for q, item in enumerate(asked)}
    vectors = [(by(meaning, 0), None, ids), (by(meaning, 1), None, ids)]
    return [*vectors, (by(meaning[asked], 0), None, names), (by(meaning[asked], 1), None, names)], grades, asked


@pytest.fixture(scope="module")
def example():
    vectors, grades, asked = made_up()
    return vectors, grades, asked, compare(*vectors, relevance=grades, pairs=150)


def slow_score(order, item):
    """nDCG@10 with one right item."""
    place = int(np.flatnonzero(order[:10] == item)[0]) if item in order[:10] else None
    return 0.0 if place is None else 1 / np.log2(place + 2)


def test_rows_agree_with_slow_searches(example):
    vectors, _, asked, result = example
    old, new, queries_old, queries_new = (unit(part[0].astype(np.float32)) for part in vectors)
    for name, weight, count in (("keep", 0.0, 400), ("re-embed", 1.0, 400), (way_name("old", 20, 1.0), 1.0, 20)):
        expected = []
        for query, item in enumerate(asked):
            by_old, by_new = old @ queries_old[query], new @ queries_new[query]
            candidates = np.argsort(-by_old, kind="stable")[:count]
            scores = by_old if weight == 0 else by_new
            expected.append(slow_score(candidates[np.argsort(-scores[candidates], kind="stable")], item))
        assert result.values[name] == pytest.approx(expected, abs=1e-6), name


def test_both_scores_are_standardised_over_the_candidates(example):
    vectors, _, asked, result = example
    old, new, queries_old, queries_new = (unit(part[0].astype(np.float32)) for part in vectors)
    expected = []
    for query, item in enumerate(asked):
        by_old, by_new = old @ queries_old[query], new @ queries_new[query]
        candidates = np.argsort(-by_old)[:50]
        a, b = ((part[candidates] - part[candidates].mean()) / part[candidates].std() for part in (by_old, by_new))
        expected.append(slow_score(candidates[np.argsort(-((1 - WEIGHT) * a + WEIGHT * b))], item))
    assert result.values[way_name("old", 50, WEIGHT)] == pytest.approx(expected, abs=1e-6)


def test_a_real_gain_is_recommended_with_its_policy(example):
    result = example[3]
    assert (result.verdict, result.exit_code) == ("recommended", 0)
    assert result.policy == {"source": "old", "candidates": 50, "weight": WEIGHT}
    tested = [way for way in result.ways if way.status == "tested"]
    assert [way.name for way in tested] == [result.tested] == [way_name("old", 50, WEIGHT)]
    assert tested[0].gain.low > 0
    assert {way.status for way in result.ways if way.name in ("keep", "re-embed")} == {"reference"}


def test_a_worse_model_is_not_recommended_whatever_the_exploratory_rows_say():
    vectors, grades, _ = made_up(old_noise=0.2, new_noise=0.9)
    result = compare(*vectors, relevance=grades, pairs=150)
    assert (result.verdict, result.exit_code, result.policy) == ("keep the old model", 1, None)
    assert "less than" in result.reason


def test_an_equal_model_names_the_queries_that_would_settle_it():
    vectors, grades, _ = made_up(old_noise=0.5, new_noise=0.5, queries=40, seed=3)
    result = compare(*vectors, relevance=grades, pairs=150)
    if result.verdict == "keep the old model" and result.queries_needed:
        assert result.queries_needed > 40
        assert f"{result.queries_needed:,}" in result.reason


def test_without_judgements_nothing_is_judged():
    vectors, _, _ = made_up(items=60, queries=20)
    result = compare(*vectors)
    assert (result.verdict, result.exit_code, result.ways) == ("not judged", 3, ())
    assert "judgements are missing" in result.reason


def test_repeated_queries_are_not_more_evidence():
    vectors, grades, _ = made_up(queries=20, old_noise=0.5, new_noise=0.4)
    once = compare(*vectors, relevance=grades, pairs=50)
    copies = [vectors[0], vectors[1]]
    for part in vectors[2:]:
        names = np.array([f"{name}, copy {i}" for i in range(10) for name in part[2]])
        copies.append((np.tile(part[0], (10, 1)), None, names))
    many = {f"{name}, copy {i}": row for i in range(10) for name, row in grades.items()}
    again = compare(*copies, relevance=many, pairs=50)
    gains = [next(way.gain for way in result.ways if way.status == "tested") for result in (once, again)]
    assert gains[1].low == pytest.approx(gains[0].low, abs=1e-6)
    assert gains[1].units == gains[0].units


def test_a_sample_of_new_vectors_is_the_index_for_every_way():
    vectors, grades, _ = made_up()
    sample = np.arange(0, 400, 2)
    vectors[1] = (vectors[1][0][sample], None, vectors[1][2][sample])
    result = compare(*vectors, relevance=grades, pairs=100)
    assert result.facts["items"] == 200
    assert any("smaller index flatters every way" in note for note in result.notes)
    assert any("no relevant item in the gallery; left out" in note for note in result.notes)


def test_what_cannot_be_had_decides_what_is_tested():
    vectors, grades, _ = made_up()
    gone = compare(*vectors, relevance=grades, pairs=150, old_model=False)
    assert gone.tested == way_name("bridge", bridge_candidates(400), 1.0)
    assert all("the old model" in way.needs for way in gone.ways if way.name in ("keep", way_name("old", 50, WEIGHT)))
    no_content = compare(*vectors, relevance=grades, pairs=150, content=False)
    assert no_content.tested == "blend"
    assert all(way.needs for way in no_content.ways if way.name.startswith("two-stage"))
    neither = compare(*vectors, relevance=grades, pairs=150, old_model=False, content=False)
    assert neither.tested == "bridge"


def test_without_pairs_rows_say_what_they_need():
    vectors, grades, _ = made_up()
    result = compare(*vectors, relevance=grades, pairs=0)
    needs = {way.name: way.needs for way in result.ways}
    assert "pairs" in needs["bridge"]
    assert "one size" in needs["swap"]
    assert result.tested == way_name("old", 50, WEIGHT)
    gone = compare(*vectors, relevance=grades, pairs=0, old_model=False)
    assert (gone.verdict, gone.exit_code) == ("not judged", 3)


def test_one_command_with_two_files_and_judgements(tmp_path):
    vectors, grades, _ = made_up()
    for name, index, queries in (("old", vectors[0], vectors[2]), ("new", vectors[1], vectors[3])):
        arrays = {"features": index[0], "ids": index[2], "queries": queries[0], "query_ids": queries[2]}
        np.savez(tmp_path / f"{name}.npz", **arrays)
    lines = ["query-id\tcorpus-id\tscore"]
    lines += [f"{query}\t{item}\t{grade}" for query, row in grades.items() for item, grade in row.items()]
    (tmp_path / "qrels.tsv").write_text("\n".join(lines) + "\n")
    files = [str(tmp_path / "old.npz"), str(tmp_path / "new.npz")]
    page, comment = tmp_path / "page.html", tmp_path / "page.md"
    judged = ["--relevance", str(tmp_path / "qrels.tsv")]
    run = CliRunner().invoke(app, ["compare", *files, *judged, "--page", str(page), "--page", str(comment)])
    assert run.exit_code == 0, run.output
    assert run.output.startswith("Recommended: two-stage@50")
    assert "exploratory" in " ".join(run.output.split())
    assert "Is the upgrade better than staying?" in page.read_text()
    assert "<table" in page.read_text()
    assert comment.read_text().startswith("### Recommended")
    record = json.loads(CliRunner().invoke(app, ["compare", *files, *judged, "--json"]).output)
    assert record["policy"] == {"source": "old", "candidates": 50, "weight": WEIGHT}
    missing = CliRunner().invoke(app, ["compare", *files])
    assert missing.exit_code == 3
    assert "judgements are missing" in " ".join(missing.output.split())
    bad = CliRunner().invoke(app, ["compare", files[0], str(tmp_path / "none.npz")])
    assert bad.exit_code == 2


def test_known_items_and_columns_of_other_names(tmp_path):
    """The same vectors give the same score, whatever the arrays are called; a wrong name lists those that are there."""
    vectors, grades, _ = made_up()
    right = [next(iter(grades[query])) for query in vectors[2][2]]
    for name, index in (("old", vectors[0]), ("new", vectors[1])):
        np.savez(tmp_path / f"{name}.npz", emb=index[0], sku=index[2])
    np.savez(tmp_path / "known.npz", old=vectors[2][0], new=vectors[3][0], item=right)
    words = ["compare", tmp_path / "old.npz", tmp_path / "new.npz", "--known-items", tmp_path / "known.npz", "--json"]

    def run(*more):
        result = CliRunner().invoke(app, [str(word) for word in (*words, *more)])
        return result.exit_code, json.loads(result.stdout)

    status, record = run("--id", "sku", "--vector", "emb")
    queries = [(part[0], None) for part in vectors[2:]]
    same = compare(vectors[0], vectors[1], *queries, known_items=right)
    assert (status, record["score"], record["judged"]) == (same.exit_code, "hit@1", len(right))
    assert record["ways"][0]["score"]["value"] == pytest.approx(same.as_json()["ways"][0]["score"]["value"])
    assert any("stand-in for real queries" in note for note in record["notes"])
    status, record = run("--id", "name")
    assert status == 2
    assert "old.npz: no column name (--id); it has emb, sku" in record["reason"]
    with pytest.raises(HoldfastError, match="give one of them"):
        compare(*vectors, known_items=right, relevance=grades)


def test_bad_options_are_refused():
    vectors, grades, _ = made_up(items=40, queries=10)
    with pytest.raises(HoldfastError, match="name the hits that count"):
        compare(*vectors, relevance=grades, score="mAP")
    with pytest.raises(HoldfastError, match="none of 1 pairs has ids"):
        compare(*vectors, relevance={"nobody": {"item 1": 1}})
    with pytest.raises(HoldfastError, match="were files exchanged"):
        compare(vectors[0], vectors[1], vectors[3], vectors[2], relevance=grades)
    with pytest.raises(HoldfastError, match="are the same vectors"):
        compare(vectors[0], vectors[0], vectors[2], vectors[2], relevance=grades)
    with pytest.raises(HoldfastError, match="queries_old is needed"):
        compare(vectors[0], vectors[1])

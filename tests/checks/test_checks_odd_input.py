"""Ids, labels and numbers as exports really have them."""

import json

import numpy as np
import pytest

from holdfast import check, check_history
from holdfast.core.errors import HoldfastError
from holdfast.reports import check_report, html_page, markdown
from holdfast.vectors.feature_files import read_features
from holdfast.vectors.feature_set import feature_set


def test_ids_as_numbers_in_one_and_text_in_the_other(sets):
    (old, labels), (new, _) = sets["queries_old"], sets["queries_new"]
    order = np.random.default_rng(0).permutation(600)
    ids = np.arange(600)
    found = check(sets["gallery"], (old, labels, ids), (new[order], labels[order], ids[order].astype(str)))
    assert found.gain == check(sets["gallery"], sets["queries_old"], sets["queries_new"]).gain
    with pytest.raises(HoldfastError, match=r"no id is in both \(0, 1, ... and q0, q1, ...\)"):
        check(sets["gallery"], (old, labels, ids), (new, labels, [f"q{i}" for i in ids]))


def test_ids_in_one_set_only_are_told(sets):
    found = check(sets["gallery"], (*sets["queries_old"], np.arange(600)), sets["queries_new"])
    assert "only one of the two query sets has ids, so queries were paired row by row" in found.notes


def test_a_ceiling_of_other_items_is_told(sets):
    half = sets["gallery_new"][0][:100], sets["gallery_new"][1][:100]
    told = "the new gallery does not hold the items of the old one, so the ceiling is that of other items"
    assert told in check(**{**sets, "gallery_new": half}).notes
    assert told not in check(**sets).notes


def test_ids_of_64_bits_stay_what_they_are(sets):
    ids = np.arange(200, dtype=np.uint64) + np.uint64(2**64 - 200)
    assert feature_set("g", *sets["gallery"], ids).names()[-1] == str(2**64 - 1)
    bare = (sets["gallery"][0], None, ids), sets["queries_old"][0], sets["queries_new"][0]
    assert check(*bare, relevance=[(0, 2**64 - 1), ("1", str(2**64 - 2))]).notes[0].startswith("relev")
    with pytest.raises(HoldfastError, match="give whole numbers or text"):
        feature_set("g", sets["gallery"][0], np.full(200, np.inf))


@pytest.mark.parametrize("factor", [1e30, 1e-30, 1e300, 1e-300])
def test_very_long_and_very_short_vectors_are_directions(factor, sets):
    plain = check(**sets)
    scaled = {name: (features.astype(np.float64), labels) for name, (features, labels) in sets.items()}
    scaled["gallery"][0][::3] *= factor
    scaled["queries_new"][0][::2] *= factor
    found = check(**scaled)
    assert found.bad_rows == {}
    assert found.gain == plain.gain


def test_arrays_of_the_caller_are_not_changed(sets):
    gallery, labels = sets["gallery"]
    short = (gallery * 1e-30).astype(np.float32)
    given = short.copy()
    check((given, labels), sets["queries_old"], sets["queries_new"])
    assert np.array_equal(given, short)


@pytest.mark.parametrize("dtype", ["float16", "float64", ">f4", "int8"])
def test_numbers_of_any_kind(dtype, sets, tmp_path):
    files = {}
    for name, (features, labels) in sets.items():
        coarse = (np.round(features * 100) if dtype == "int8" else features).astype(dtype)
        np.savez(tmp_path / f"{name}.npz", features=coarse, labels=labels.astype("uint8"))
        files[name] = tmp_path / f"{name}.npz"
    found = check(**files)
    assert found.gain.value == pytest.approx(check(**sets).gain.value, abs=0.02)
    assert any("not of length 1" in note for note in found.notes) is (dtype == "int8")


def test_labels_of_a_data_frame(sets, tmp_path):
    """Categories, as data frames write text that repeats."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    features, labels = sets["gallery"]
    texts = arrow.array([f"class {label}" for label in labels])
    table = arrow.table({"features": list(features), "labels": texts.dictionary_encode()})
    parquet.write_table(table, tmp_path / "g.parquet")
    assert read_features(tmp_path / "g.parquet", "gallery").labels.tolist() == texts.to_pylist()


@pytest.mark.parametrize("score", ["hit@1", "mAP"])
def test_one_query_makes_a_report(score, sets):
    one = {name: (f[:1], y[:1]) if "queries" in name else (f, y) for name, (f, y) in sets.items()}
    found = check(**one, score=score)
    assert found.verdict == "not shown"
    record = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert "too few" in html_page(check_report(record))
    assert "too few" in markdown(check_report(record))


def test_one_query_makes_a_history(sets):
    models = [((f[:1], y[:1]), sets["gallery"]) for f, y in (sets["queries_old"], sets["queries_new"])]
    record = check_history(models).as_json()
    assert 0 <= record["AA"] <= 1
    assert "AA " in markdown(check_report(record))
    assert html_page(check_report(record))


def test_a_history_tells_of_odd_vectors_and_says_what_was_asked(sets):
    features, labels = sets["queries_new"]
    spoilt = features * 3
    spoilt[[4, 9]] = 0
    models = [(sets["queries_old"], sets["gallery"]), ((spoilt, labels), sets["gallery_new"])]
    found = check_history(models, max_loss=0.05)
    assert any("queries of model 2: 2 of 600 vectors are zero (rows 4, 9)" in note for note in found.notes)
    assert any("queries of model 2: not of length 1" in note for note in found.notes)
    assert (found.loss.question, found.loss.answer) == ("At most 5 points lost", "yes")
    wide = np.hstack([features] * 2), np.hstack([sets["gallery_new"][0]] * 2)
    models[1] = (wide[0], labels), (wide[1], sets["gallery_new"][1])
    assert "features of another size" in check_history(models).reason


def test_queries_that_find_nothing_do_not_agree(clustered):
    labels = np.arange(200) % 10
    gallery, old = clustered(labels, 0.3, seed=0), clustered(labels[:50], 0.3, seed=1)
    new = clustered(labels[:50], 0.3, seed=2)
    old[:25], new[:25] = 0, np.nan
    found = check((gallery,), (old,), (new,)).overlap
    alone = check((gallery,), (old[25:],), (new[25:],)).overlap
    assert found.shared.value == pytest.approx(alone.shared.value / 2)
    assert found.same_first.value == pytest.approx(alone.same_first.value / 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"max_loss": float("nan")}, "max-loss is a fraction"), ({"confidence": float("nan")}, "confidence must be")],
)
def test_numbers_that_no_check_can_use(options, message, clustered):
    labels = np.arange(50) % 5
    sets = [(clustered(labels, 0.3, seed=seed), labels) for seed in range(3)]
    with pytest.raises(HoldfastError, match=message):
        check(*sets, **options)


def test_parquet_numbers_that_float32_cannot_hold_are_scaled(clustered, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    rows = clustered(np.arange(20) % 5, 0.3).astype(np.float64)
    for name, factor in (("large", 1e300), ("small", 1e-60)):
        lists = pyarrow.array((factor * rows).tolist())
        parquet.write_table(pyarrow.table({"features": lists}), tmp_path / f"{name}.parquet")
        found = read_features(tmp_path / f"{name}.parquet", "gallery").rows.block(0, 20)
        found = found / np.abs(found).max(axis=1, keepdims=True)
        found = found / np.linalg.norm(found, axis=1, keepdims=True)
        np.testing.assert_allclose(found, rows, atol=1e-6)


@pytest.mark.parametrize(("grades", "named"), [(["1", "good"], "'good'"), ([1.0, None], "nan")])
def test_a_grade_that_is_no_number_is_named(grades, named, clustered, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    columns = {"query": ["0", "1"], "gallery": ["0", "1"], "grade": grades}
    parquet.write_table(pyarrow.table(columns), tmp_path / "relevance.parquet")
    rows = clustered(np.arange(20) % 5, 0.3)
    with pytest.raises(HoldfastError, match=f"row 1: grade {named} is not a number"):
        check((rows,), (rows,), (rows,), relevance=tmp_path / "relevance.parquet")

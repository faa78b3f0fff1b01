"""Verdicts, and what is odd about an input: told, not crashed on."""

import numpy as np
import pytest

from holdfast import check
from holdfast.checks.estimates import Estimate
from holdfast.checks.verdict import answer_about, better_answer
from holdfast.core.errors import HoldfastError


def test_better_and_worse(sets):
    assert (check(**sets).verdict, check(**sets).exit_code) == ("better", 0)
    swapped = {**sets, "queries_old": sets["queries_new"], "queries_new": sets["queries_old"]}
    del swapped["gallery_new"]
    assert (check(**swapped).verdict, check(**swapped).exit_code) == ("worse", 1)


def same_model(sets):
    """The old queries as those of both models; twice as long, because equal files are refused."""
    features, labels = sets["queries_old"]
    return {"gallery": sets["gallery"], "queries_old": (features, labels), "queries_new": (2 * features, labels)}


def test_the_same_model_is_not_shown_but_not_inferior(sets):
    same = same_model(sets)
    found = check(**same)
    assert (found.verdict, found.gain.value, found.changes.p_value) == ("not shown", 0.0, 1.0)
    assert check(**same, max_loss=0.02).loss.answer == "yes"
    assert check(**same, max_loss=-0.02).loss.answer == "no"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.01, 0.03, "yes"), (0.0, 0.03, "not shown"), (-0.02, 0.0, "not shown"), (-0.03, -0.01, "no"),
     (float("nan"), 0.01, "not shown")],
)  # fmt: skip
def test_a_tie_decides_nothing(low, high, expected):
    gain = Estimate(0.0, low, high)
    assert better_answer(gain, 100, "queries").answer == expected
    assert better_answer(gain, 9, "queries").answer == "not shown"


def test_clusters_count_classes(sets):
    assert check(**sets, groups=np.arange(600) % 25).distinct == 600
    few = {k: (f[y < 5], y[y < 5]) for k, (f, y) in sets.items()}
    found = check(**few)
    assert "the queries are of 5 groups, too few to show how much groups differ" in found.uncertain
    with pytest.raises(HoldfastError, match="groups: 3 labels for 600 queries"):
        check(**sets, groups=[1, 2, 3])


def test_another_size_is_refused_before_anything_is_computed(sets):
    wide = np.hstack([sets["queries_new"][0]] * 2), sets["queries_new"][1]
    stages = []
    with pytest.raises(HoldfastError, match="queries_new: 32 numbers per query, but gallery has 16; a bridge") as error:
        check(sets["gallery"], sets["queries_old"], wide, progress=lambda *stage: stages.append(stage))
    assert stages == []
    assert "holdfast bridge" in str(error.value)


def test_an_unrelated_space_is_reported(sets, clustered):
    labels = sets["queries_old"][1]
    found = check(sets["gallery"], sets["queries_old"], (clustered(labels, 0.2, world=7), labels))
    assert found.verdict == "worse"
    assert "unrelated" in found.reason


def test_bad_vectors_are_counted_and_named(sets):
    spoilt = {name: (features.copy(), labels) for name, (features, labels) in sets.items()}
    spoilt["gallery"][0][[3, 8]] = np.nan
    spoilt["gallery"][0][5] = 0
    right = sets["gallery"][1][(sets["queries_old"][0] @ sets["gallery"][0].T).argmax(1)] == sets["queries_old"][1]
    rows = np.flatnonzero(right)[[3, 40, 200]].tolist()
    spoilt["queries_new"][0][rows] = np.inf
    found = check(**spoilt)
    assert found.verdict == "better"
    assert found.bad_rows == {
        "gallery": {"not_finite": [3, 8], "zero": [5]},
        "queries_new": {"not_finite": rows, "zero": []},
    }
    assert any("2 of 200 vectors are not finite (rows 3, 8); left out of the search" in note for note in found.notes)
    kept = np.setdiff1d(np.arange(200), [3, 5, 8])
    clean = check((sets["gallery"][0][kept], sets["gallery"][1][kept]), sets["queries_old"], sets["queries_new"])
    assert found.self_test == clean.self_test
    lost = {entry["query"]: entry["new_hit"] for entry in found.changes.lost_queries}
    assert [lost[row] for row in rows] == [None] * 3
    assert clean.changes.lost <= found.changes.lost <= clean.changes.lost + 3
    for score in ("mAP", "hit@5"):
        assert np.isfinite(check(**spoilt, score=score).gain.value)


def test_nothing_but_bad_vectors(sets):
    nothing = np.zeros_like(sets["gallery"][0]), sets["gallery"][1]
    for protocol in ("instance", "template"):
        with pytest.raises(HoldfastError, match="no usable vector"):
            check(nothing, sets["queries_old"], sets["queries_new"], protocol=protocol)


def test_lengths_do_not_matter_and_are_told(sets):
    longer = {**sets, "gallery": (sets["gallery"][0] * np.linspace(1, 9, 200)[:, None], sets["gallery"][1])}
    found = check(**longer)
    assert [note for note in found.notes if "not of length 1" in note] != []
    assert found.gain.value == pytest.approx(check(**sets).gain.value, abs=1e-9)
    assert check(**sets).notes == []


def test_queries_are_paired_by_id(sets):
    (old, labels), (new, _) = sets["queries_old"], sets["queries_new"]
    ids = np.array([f"q{i}" for i in range(600)])
    order = np.random.default_rng(0).permutation(600)[:-10]
    found = check(sets["gallery"], (old, labels, ids), (new[order], labels[order], ids[order]))
    kept = np.sort(order)
    plain = check(sets["gallery"], (old[kept], labels[kept]), (new[kept], labels[kept]))
    assert (found.gain, found.queries) == (plain.gain, 590)
    assert len(found.unpaired["old"]) == 10
    assert "10 queries are only in the old set" in found.notes[0]
    assert found.changes.lost_queries[0]["query"].startswith("q")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s: {"queries_new": (s["queries_new"][0][:-1], s["queries_new"][1][:-1])}, "600 queries .* has 599"),
        (lambda s: {"queries_new": (s["queries_new"][0], s["queries_new"][1][::-1])}, "have another label"),
        (lambda s: {"queries_new": (*s["queries_new"], np.zeros(600, int))}, "1 ids occur more than once"),
        (lambda s: {"queries_old": (s["queries_old"][0][:, :5], s["queries_old"][1])}, "5 numbers per query"),
        (lambda s: {"gallery_new": (s["gallery_new"][0][:, :5], s["gallery_new"][1])}, "5 numbers per vector"),
        (lambda s: {"gallery": (s["gallery"][0], s["gallery"][1].astype(str))}, "one is numbers, one is text"),
        (lambda s: {"gallery": (s["gallery"][0], s["gallery"][1] + 100)}, "no class of the queries|none of the"),
        (lambda s: {"gallery": (s["gallery"][0], None)}, "has no labels"),
        (lambda s: {"gallery": (s["gallery"][0], s["gallery"][1][:7])}, "labels have shape"),
        (lambda s: {"gallery": (s["gallery"][0][0],)}, "must be a matrix"),
        (lambda s: {"gallery": (s["gallery"][0][:0], s["gallery"][1][:0])}, "nothing to compare"),
        (lambda s: {"score": "hit@0"}, "unknown score"),
        (lambda s: {"score": "auc"}, "unknown score"),
        (lambda s: {"protocol": "centroid"}, "unknown protocol"),
        (lambda s: {"confidence": 95}, "confidence"),
        (lambda s: {"max_loss": -2}, "0.01 is one point"),
    ],
)
def test_refused(change, reason, sets):
    with pytest.raises(HoldfastError, match=reason) as error:
        check(**{**sets, **change(sets)})
    assert "\n" not in str(error.value)


def test_without_classes_there_is_only_overlap(sets):
    bare = [sets[name][0] for name in ("gallery", "queries_old", "queries_new")]
    found = check(*bare)
    assert (found.verdict, found.exit_code, found.gain, found.loss) == ("not judged", 3, None, None)
    cosines = [bare[i] @ bare[0].T for i in (1, 2)]
    first = np.mean(cosines[0].argmax(1) == cosines[1].argmax(1))
    assert found.overlap.same_first.value == pytest.approx(first)
    tops = [np.argsort(-table, axis=1)[:, :10] for table in cosines]
    shared = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(*tops)])
    assert found.overlap.shared.value == pytest.approx(shared)


def test_relevance_takes_the_place_of_classes(sets):
    """Everything of one class declared relevant gives the numbers of the classes."""
    labels, gallery_labels = sets["queries_old"][1], sets["gallery"][1]
    pairs = [(str(q), str(g)) for q in range(600) for g in np.flatnonzero(gallery_labels == labels[q])]
    bare = {name: (features, None) for name, (features, _) in sets.items()}
    for score in ("hit@1", "hit@4", "mAP"):
        by_class = check(**sets, score=score)
        by_pairs = check(**bare, relevance=pairs, score=score)
        for field in ("self_test", "cross_test", "new_self_test", "gain"):
            first, second = (getattr(found, field) for found in (by_class, by_pairs))
            assert (first.value, first.low) == pytest.approx((second.value, second.low)), (score, field)
        assert (by_class.verdict, by_class.chance) == (by_pairs.verdict, by_pairs.chance)
        assert by_class.changes.lost == by_pairs.changes.lost


def test_queries_without_relevance_are_left_out(sets):
    bare = {name: (features, None) for name, (features, _) in sets.items()}
    found = check(**bare, relevance=[("0", "0"), ("1", "1"), ("nobody", "3"), ("1", "gone")])
    assert "relevance: 1 of 3 right items is not in gallery (1 - gone): never found" in found.notes
    assert any("598 of 600 queries have no relevant item" in note for note in found.notes)
    assert found.verdict == "not shown"
    with pytest.raises(HoldfastError, match="none of 1 pairs"):
        check(**bare, relevance=[("x", "y")])
    with pytest.raises(HoldfastError, match="averages classes"):
        check(**bare, relevance=[("0", "0")], protocol="template")


@pytest.mark.parametrize(
    ("low", "high", "answer"),
    [(-0.009, 0.03, "yes"), (-0.01, 0.03, "not shown"), (-0.05, -0.01, "not shown"), (-0.05, -0.011, "no")],
)
def test_at_most_a_point_lost(low, high, answer):
    found = answer_about(Estimate((low + high) / 2, low, high), 0.01, 100, "queries", needed=lambda bound: 500)
    assert (found.question, found.answer) == ("At most 1 point lost", answer)
    assert found.units_needed == (500 if answer == "not shown" else None)
    few = answer_about(Estimate(0.0, low, high), 0.01, 9, "queries", needed=lambda bound: 500)
    assert (few.answer, few.units_needed) == ("not shown", None)


def test_the_exit_status_goes_by_the_accepted_loss_and_the_verdict_by_the_definition(sets):
    same = same_model(sets)
    found = check(**same)
    assert (found.loss.answer, found.exit_code, found.better.answer) == ("yes", 0, "not shown")
    strict = check(**same, max_loss=0.0)
    assert (strict.loss.question, strict.loss.answer, strict.exit_code) == ("A gain", "not shown", 1)
    with pytest.raises(HoldfastError, match="max-loss is a fraction of 1"):
        check(**same, max_loss=1)


def test_the_share_of_re_embedding_kept_has_an_interval(sets):
    for score in ("hit@1", "mAP"):
        found = check(**sets, score=score)
        assert found.kept.value == pytest.approx(found.cross_test.value / found.new_self_test.value)
        assert found.kept.low < found.kept.value < found.kept.high

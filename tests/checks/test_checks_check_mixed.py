"""``check_mixed`` against plain loops over all scores, its gates, and what it refuses."""

import json

import numpy as np
import pytest

from holdfast import Bridge, check, check_mixed
from holdfast.checks.estimates import Estimate
from holdfast.checks.verdict import Gate, gates_answer
from holdfast.core.errors import HoldfastError
from holdfast.reports import check_report, html_page, markdown

ITEMS, QUERIES, CLASSES = 120, 60, 8
LABELS, QUERY_LABELS = np.arange(ITEMS) % CLASSES, np.arange(QUERIES) % CLASSES
IDS = np.array([f"item {i}" for i in range(ITEMS)])
DIMS = {1: 10, 2: 14, 3: 14}


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def world():
    """Three models of the same items; model 3 is the newest. Each version holds a third of the items."""
    rng = np.random.default_rng(0)
    centres = 2 * rng.standard_normal((CLASSES, 8))
    items, queries = (centres[y] + 2 * rng.standard_normal((len(y), 8)) for y in (LABELS, QUERY_LABELS))
    turns = {model: np.linalg.qr(rng.standard_normal((dim, dim)))[0][:8] for model, dim in DIMS.items()}
    embedded = {
        model: (items @ turn + 0.3 * rng.standard_normal((ITEMS, turn.shape[1]))).astype(np.float32)
        for model, turn in turns.items()
    }
    asked = (queries @ turns[3] + 0.3 * rng.standard_normal((QUERIES, DIMS[3]))).astype(np.float32)
    asked_old = queries @ turns[1] + 0.3 * np.random.default_rng(1).standard_normal((QUERIES, DIMS[1]))
    order = rng.permutation(ITEMS)
    rows = {1: order[:40], 2: order[40:80], 3: order[80:]}
    bridges = {model: Bridge.fit(new=embedded[3], old=embedded[model], kind="rotation") for model in (1, 2)}
    return {"embedded": embedded, "queries": asked, "queries_old": asked_old, "rows": rows, "bridges": bridges}


def parts_of(world, *, labels=True, bridged=True):
    found = []
    for model, rows in world["rows"].items():
        source = (world["embedded"][model][rows], LABELS[rows] if labels else None, IDS[rows])
        bridge = world["bridges"].get(model) if bridged else None
        found.append((source, bridge, None if bridge is None else bridge.scale))
    return found


def again(world, *, labels=True):
    order = np.random.default_rng(9).permutation(ITEMS)
    return world["embedded"][3][order], LABELS[order] if labels else None, IDS[order]


def judge(world, **options):
    labels = options.pop("labels", True)
    parts = options.pop("parts", None) or parts_of(world, labels=labels)
    queries = (world["queries"], QUERY_LABELS if labels else None)
    return check_mixed(parts, queries, again(world, labels=labels), **options)


def rankings(world):
    """Merged scores of every query with every item, by plain matrix products: with bridges, without, re-embedded."""
    queries = unit(world["queries"])
    found = {name: np.full((QUERIES, ITEMS), -np.inf) for name in ("mixed", "raw", "fair")}
    for model, rows in world["rows"].items():
        stored = unit(world["embedded"][model][rows])
        bridge = world["bridges"].get(model)
        if bridge is None:
            found["mixed"][:, rows] = found["raw"][:, rows] = queries @ stored.T
        else:
            cosines = bridge(queries) @ stored.T
            found["mixed"][:, rows] = bridge.scale.offset + bridge.scale.slope * cosines
            if DIMS[model] == DIMS[3]:
                found["raw"][:, rows] = queries @ stored.T
    found["fair"] = queries @ unit(world["embedded"][3]).T
    ranked = {}
    for name, scores in found.items():
        ranked[name] = [[i for i in np.argsort(-row, kind="stable") if row[i] > -np.inf] for row in scores]
    return ranked


def average_precision(ranked, label):
    right, total = 0, 0.0
    for place, item in enumerate(ranked, start=1):
        if LABELS[item] == label:
            right += 1
            total += right / place
    return total / np.count_nonzero(label == LABELS)


SCORES = {
    "hit@1": lambda ranked, label: float(LABELS[ranked[0]] == label),
    "hit@5": lambda ranked, label: float((LABELS[ranked[:5]] == label).any()),
    "mAP": average_precision,
}


@pytest.mark.parametrize("score", SCORES)
def test_scores_are_those_of_a_plain_loop(score, world):
    found = judge(world, score=score)
    means = {
        name: np.mean([SCORES[score](row, label) for row, label in zip(ranked, QUERY_LABELS)])
        for name, ranked in rankings(world).items()
    }
    assert found.accuracy.value == pytest.approx(means["mixed"])
    assert found.raw_accuracy.value == pytest.approx(means["raw"])
    assert found.reembedded.value == pytest.approx(means["fair"])
    assert found.kept.value == pytest.approx(means["mixed"] / means["fair"])
    assert found.raw_kept.value == pytest.approx(means["raw"] / means["fair"])
    assert found.kept.low < found.kept.value < found.kept.high


def test_exposure_and_recall_are_those_of_a_plain_loop(world):
    found, ranked = judge(world), rankings(world)
    for (model, rows), version in zip(world["rows"].items(), found.versions):
        assert version.items == 40
        for search, name in ((version.mixed, "mixed"), (version.raw, "raw")):
            for k in (1, 10):
                shown = np.mean([len(set(row[:k]) & set(rows)) / k for row in ranked[name]])
                fair = np.mean([len(set(row[:k]) & set(rows)) / k for row in ranked["fair"]])
                assert search.shown[k] == pytest.approx(shown)
                assert search.fair[k] == pytest.approx(fair)
                assert search.exposure[k].value == pytest.approx(shown / fair)
                assert search.exposure[k].low <= search.exposure[k].value <= search.exposure[k].high
        for value, name in ((version.mixed.recall, "mixed"), (version.recall_reembedded, "fair")):
            shares = []
            for row, label in zip(ranked[name], QUERY_LABELS):
                wanted = {i for i in rows if LABELS[i] == label}
                if wanted:
                    shares.append(len(wanted & set(row[:10])) / min(10, len(wanted)))
            assert value == pytest.approx(np.mean(shares)), model
    # Version 1 has vectors of another size: without a bridge it is never found.
    assert found.versions[0].raw.exposure[1].value == 0
    assert found.versions[0].mixed.exposure[10].value > 0.5


def test_relevant_pairs_take_the_place_of_labels(world):
    relevance = [(q, IDS[i]) for q in range(QUERIES) for i in range(ITEMS) if LABELS[i] == QUERY_LABELS[q]]
    by_label, by_pair = judge(world), judge(world, relevance=relevance, labels=False, score="hit@1")
    assert by_pair.accuracy == by_label.accuracy
    assert [version.mixed.recall for version in by_pair.versions] == [one.mixed.recall for one in by_label.versions]
    assert by_pair.classes is None


def test_without_labels_the_share_of_reembedded_hits_is_measured(world):
    found, ranked = judge(world, labels=False), rankings(world)
    shared = np.mean([len(set(a[:10]) & set(b[:10])) / 10 for a, b in zip(ranked["mixed"], ranked["fair"])])
    assert (found.score, found.agreement) == ("overlap@10", True)
    assert found.accuracy.value == pytest.approx(shared)
    assert found.reembedded.value == 1
    assert found.versions[0].recall_reembedded == 1


def test_one_space_without_bridges(world):
    rows = world["rows"]
    parts = [((world["embedded"][3][rows[m]], LABELS[rows[m]], IDS[rows[m]]), None, None) for m in (1, 2, 3)]
    found = judge(world, parts=parts)
    assert found.accuracy == found.reembedded
    assert found.kept.value == 1
    assert 0.8 < found.kept.low < 1 < found.kept.high  # equal scores in 60 queries do not prove equality
    assert found.raw_accuracy is None
    assert all(version.raw is None for version in found.versions)
    assert all(version.mixed.exposure[1].value == 1 for version in found.versions)


def test_gates(world):
    assert (judge(world).verdict, judge(world).gates, judge(world).exit_code) == ("not judged", None, 3)
    loose = judge(world, min_exposure=0.01)
    assert (loose.verdict, loose.gates, loose.exit_code) == ("not judged", "reached", 0)
    assert "the exposure of every version is at least 0.01" in loose.gates_reason
    raw = parts_of(world)
    raw[0] = (raw[0][0], raw[0][1], lambda cosine: cosine - 2)  # ranked after everything else
    found = judge(world, parts=raw, min_exposure=0.8)
    assert (found.gates, found.exit_code) == ("missed", 1)
    assert (
        "the exposure of version 1 at 1 is 0.000 (0.000 to 0.183): the whole interval lies below 0.8"
        in found.gates_reason
    )
    few = check_mixed(parts_of(world), (world["queries"][:8], QUERY_LABELS[:8]), again(world), min_exposure=0.5)
    assert (few.gates, few.gates_reason) == ("not shown", "8 queries are too few to tell; at least 10 are needed")


def test_every_gate_counts():
    good, bad, doubtful = Estimate(0.9, 0.85, 0.95), Estimate(0.5, 0.4, 0.6), Estimate(0.8, 0.7, 0.9)
    assert gates_answer([Gate("a", good, 0.85), Gate("b", good, 0.8)], 50, "queries")[0] == "reached"
    assert gates_answer([Gate("a", good, 0.8), Gate("b", doubtful, 0.8)], 50, "queries")[0] == "not shown"
    answer, reason = gates_answer([Gate("a", doubtful, 0.8), Gate("b", bad, 0.8), Gate("c", bad, 0.8)], 50, "queries")
    assert answer == "missed"
    assert reason == "b is 0.500 (0.400 to 0.600): the whole interval lies below 0.8 (and 1 more)"
    nothing = Estimate(float("nan"), float("-inf"), float("inf"))
    assert gates_answer([Gate("a", nothing, 0.8)], 50, "queries")[0] == "not shown"
    exposure = Gate("the exposure of version 2 at 1", nothing, 0.8, of_version=True)
    answer, reason = gates_answer([Gate("a", good, 0.8), exposure], 50, "queries")
    assert answer == "reached"
    assert reason.endswith("not measured, because no place is due: the exposure of version 2 at 1")


def test_unusable_vectors_are_told_and_never_found(world):
    parts = parts_of(world)
    features, labels, ids = parts[0][0]
    spoilt = features.copy()
    spoilt[0], spoilt[1] = np.nan, 0
    parts[0] = ((spoilt, labels, ids), *parts[0][1:])
    queries = world["queries"].copy()
    queries[4] = 0
    features, labels, ids = again(world)
    features[7] = 0
    found = check_mixed(parts, (queries, QUERY_LABELS), (features, labels, ids))
    text = " ".join(found.notes)
    assert "gallery_new: 1 of 120 vectors is zero (row 7); they are never found" in text
    assert "part 1: 1 of 40 vectors is not finite (row 0); they are never found" in text
    assert "part 1: 1 of 40 vectors is zero (row 1)" in text
    assert "queries: 1 of 60 vectors is zero (row 4); they find nothing and count as wrong" in text
    assert found.versions[0].items == 40
    with pytest.raises(HoldfastError, match="queries: holds no usable query"):
        check_mixed(parts, (queries * 0, QUERY_LABELS), again(world))


def test_items_that_no_part_holds_are_left_out(world):
    parts = parts_of(world)
    features, labels, ids = again(world)
    more = (np.vstack([features, features[:5] + 1]), np.append(labels, labels[:5]), [*ids, *"abcde"])
    found = check_mixed(parts, (world["queries"], QUERY_LABELS), more)
    assert found.reembedded == judge(world).reembedded
    assert found.notes[0] == "gallery_new: 5 of 125 items are in no part; left out"


def changed(parts, number, **change):
    (features, labels, ids), bridge, scale = parts[number]
    source = (change.get("features", features), change.get("labels", labels), change.get("ids", ids))
    return [*parts[:number], (source, change.get("bridge", bridge), scale), *parts[number + 1 :]]


def test_refusals(world):
    parts = parts_of(world)
    ids = parts[1][0][2]
    shared = np.array([*parts[0][0][2][:2], *ids[2:]])
    unknown = np.array(["nobody", *ids[1:]])
    cases = [
        ({"parts": changed(parts, 1, ids=shared)}, "part 1, part 2: 2 ids are in both .* an item is stored by one ver"),
        ({"parts": changed(parts, 1, ids=unknown)}, "gallery_new: lacks 1 ids of part 2: nobody"),
        ({"parts": changed(parts, 1, ids=None)}, "part 2: has no ids; the parts of a mixed gallery are matched by id"),
        ({"parts": changed(parts, 0, bridge=None)}, "part 1: 10 numbers per vector, but the queries have 14; give its"),
        ({"parts": changed(parts, 1, bridge=world["bridges"][1])}, "but the bridge maps queries of 14 numbers to vec"),
        ({"parts": changed(parts, 1, labels=parts[1][0][1] + 1)}, "40 items have another label than in their part"),
        ({"parts": changed(parts, 1, labels=parts[1][0][1].astype(str))}, "numbers and of others text"),
        ({"score": "auc"}, "unknown score"),
        ({"min_exposure": 80}, "min-exposure is a share of 1, such as 0.8; got 80"),
        ({"min_agreement": 0}, "min-agreement is a share of 1"),
        ({"score": "hit@200"}, "would be the same for any features"),
        ({"score": "mAP", "labels": False}, "the score mAP needs labels or relevance; without them overlap@10 is meas"),
    ]
    for options, message in cases:
        with pytest.raises(HoldfastError, match=message):
            judge(world, **options)
    with pytest.raises(HoldfastError, match="needs at least one part"):
        check_mixed([], world["queries"], again(world))
    with pytest.raises(HoldfastError, match="both must come from the newest model"):
        check_mixed(parts, world["queries"][:, :9], again(world))
    bad = (world["embedded"][3] * np.nan, LABELS, IDS)
    with pytest.raises(HoldfastError, match="gallery_new: holds no usable vector"):
        check_mixed(parts, (world["queries"], QUERY_LABELS), bad)


def test_the_record_is_json_and_makes_a_page(world):
    for options in ({}, {"labels": False}, {"min_exposure": 0.8}):
        found = judge(world, **options)
        record = json.loads(json.dumps(found.as_json(), allow_nan=False))
        assert record["kind"] == "mixed"
        assert set(record["versions"][0]["mixed"]["exposure"]) == {"1", "10"}
        page, text = html_page(check_report(record)), markdown(check_report(record))
        ratio = found.versions[1].mixed.exposure[1]
        for shown in (page, text):
            assert f"{100 * found.kept.value:.2f}" in shown
            assert f"{ratio.value:.2f} ({ratio.low:.2f}-{ratio.high:.2f})" in shown
            assert "Version 1: part 1, bridge rotation." in shown
            assert "None" not in shown
            assert "nan" not in shown
        assert "Version 1: part 1, bridge rotation." in found._repr_html_()


def test_few_places_that_are_due_decide_nothing():
    """Four of 200 items are the old version's, and both models are equally noisy: its exposure is about 1."""
    verdicts = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        items = rng.standard_normal((200, 16))
        old, new = (items + 0.3 * rng.standard_normal(items.shape) for _ in range(2))
        ids, queries = np.arange(200).astype(str), rng.standard_normal((100, 16))
        parts = [((old[:4], None, ids[:4]), None, None), ((new[4:], None, ids[4:]), None, None)]
        found = check_mixed(parts, (queries,), (new, None, ids), min_exposure=0.5)
        ratios = found.versions[0].mixed.exposure.values()
        assert all(ratio.low < ratio.high for ratio in ratios if not np.isnan(ratio.value))
        verdicts.append(found.gates)
        assert found.exit_code == 3  # without judgements, whatever the gates
    assert set(verdicts) <= {"not shown", "reached"}


def test_a_version_that_is_never_due_is_named():
    rng = np.random.default_rng(0)
    far, near = rng.standard_normal((10, 8)) * [1, 0, 0, 0, 0, 0, 0, 0], rng.standard_normal((150, 8))
    far[:, 0], near[:, 0] = -5 - np.arange(10), np.abs(near[:, 0])
    queries = near[:60] + 0.01 * rng.standard_normal((60, 8))
    ids, both = np.arange(160).astype(str), np.concatenate([far, near])
    parts = [((far, None, ids[:10]), None, None), ((near, None, ids[10:]), None, None)]
    found = check_mixed(parts, (queries,), (both, None, ids), min_exposure=0.8)
    assert found.gates == "reached"
    assert "not measured, because no place is due: the exposure of version 1 at 1, the exposure of version 1 at 10" in (
        found.gates_reason
    )


def test_without_labels_the_check_warns_of_a_bridge_that_was_fitted_on_the_items(world):
    notes = judge(world, labels=False).notes
    assert any("the bridge was fitted on 120 of these 120 items" in note for note in notes)
    assert not any("fitted on" in note for note in judge(world).notes)


def test_a_raw_search_without_items_counts_the_same_queries(world):
    parts = parts_of(world)[:1]  # vectors of another size: never found without the bridge
    labels = QUERY_LABELS.copy()
    labels[:5] = 99  # a class that no item has
    found = check_mixed(parts, (world["queries"], labels), again(world), score="mAP")
    assert found.raw_accuracy.value == 0


def test_a_mixed_gallery_is_compared_with_keeping_the_old_model(world):
    """The old model's vectors of everything are what nothing but waiting would show."""
    old = (world["embedded"][1], LABELS, IDS)
    queries_old = (world["queries_old"], QUERY_LABELS)
    found = judge(world, gallery_old=old, queries_old=queries_old)
    plain = check(old, queries_old, (2 * world["queries_old"], QUERY_LABELS))
    assert found.keep == plain.self_test
    assert found.gain.value == pytest.approx(found.accuracy.value - found.keep.value)
    assert (found.verdict, found.better.answer) in (("better", "yes"), ("worse", "no"), ("not shown", "not shown"))
    assert found.exit_code == (0 if found.loss.answer == "yes" else 1)
    assert markdown(check_report(found.as_json())).startswith("### Better than keeping the old model: ")
    impossible = judge(world, gallery_old=old, queries_old=queries_old, min_exposure=1.0, max_loss=0.9)
    assert (impossible.loss.answer, impossible.gates, impossible.exit_code) == ("yes", "not shown", 1)
    with pytest.raises(HoldfastError, match="gallery-old and queries-old go together"):
        judge(world, gallery_old=old)
    same = (world["embedded"][3], LABELS, IDS)
    with pytest.raises(HoldfastError, match="the old and the new queries are the same vectors"):
        judge(world, gallery_old=same, queries_old=(world["queries"], QUERY_LABELS))


def test_without_judgements_only_a_gate_on_agreement_gives_0(world):
    kept = judge(world, labels=False)
    assert (kept.verdict, kept.exit_code) == ("not judged", 3)
    assert judge(world, labels=False, min_exposure=0.01).exit_code == 3
    reached = judge(world, labels=False, min_agreement=0.1)
    assert (reached.verdict, reached.gates, reached.exit_code) == ("not judged", "reached", 0)
    assert judge(world, labels=False, min_agreement=1.0).exit_code == 1
    assert judge(world, labels=False, min_agreement=0.1, min_exposure=1.0).exit_code == 1
    with pytest.raises(HoldfastError, match="the judgements decide"):
        judge(world, min_agreement=0.5)

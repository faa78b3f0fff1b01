"""``check`` with a bridge: other sizes, no labels, and what the plain queries score beside it."""

import json

import numpy as np
import pytest

from holdfast import Bridge, check
from holdfast.core.errors import HoldfastError
from holdfast.reports import check_report, html_page, markdown
from holdfast.vectors import nearest
from holdfast.vectors.feature_set import feature_set
from holdfast.vectors.lengths import unit

LABELS, GALLERY_LABELS = np.arange(300) % 15, np.arange(200) % 15


def worlds(new_dim: int, *, noise: float = 0.8, seed: int = 0):
    """Queries and gallery of an old model (24 numbers, noisy) and of a new one in another space, less noisy."""
    rng = np.random.default_rng(seed)
    centres = 3 * rng.standard_normal((15, 12))
    items = {
        "queries": centres[LABELS] + 2 * rng.standard_normal((300, 12)),
        "gallery": centres[GALLERY_LABELS] + 2 * rng.standard_normal((200, 12)),
    }
    found = {}
    for name, dim, scatter in (("old", 24, noise * 2), ("new", new_dim, noise / 2)):
        turn = np.linalg.qr(rng.standard_normal((dim, dim)))[0][:12]
        for which, rows in items.items():
            found[f"{which}_{name}"] = rows @ turn + scatter * rng.standard_normal((len(rows), dim))
    return found


def labelled(made, *names):
    return [(made[name], LABELS if "queries" in name else GALLERY_LABELS) for name in names]


@pytest.fixture(params=[24, 36])
def made(request):
    return worlds(request.param)


@pytest.fixture
def bridge(made):
    return Bridge.fit(new=made["gallery_new"], old=made["gallery_old"], kind="rotation")


def test_bridged_queries_search_the_old_gallery(made, bridge):
    sources = labelled(made, "gallery_old", "queries_old", "queries_new", "gallery_new")
    found = check(*sources, bridge=bridge)
    queries = bridge.transform(made["queries_new"])
    first = nearest(queries, unit(made["gallery_old"])).indices[:, 0]
    assert found.cross_test.value == pytest.approx((GALLERY_LABELS[first] == LABELS).mean())
    # The new gallery is searched by plain queries.
    plain = unit(made["queries_new"])
    again = nearest(plain, unit(made["gallery_new"])).indices[:, 0]
    assert found.new_self_test.value == pytest.approx((GALLERY_LABELS[again] == LABELS).mean())
    assert found.verdict == "better"
    assert found.bridged
    assert found.bridge["kind"] == "rotation"
    if made["queries_new"].shape[1] == 24:
        alone = check(*sources)
        assert found.without_bridge.cross_test == alone.cross_test
        assert found.without_bridge.gain == alone.gain
        assert found.without_bridge.gain.high < found.gain.low
    else:
        assert found.without_bridge is None


def test_any_function_is_a_bridge(made, bridge):
    sources = labelled(made, "gallery_old", "queries_old", "queries_new")
    expected = check(*sources, bridge=bridge)
    found = check(*sources, bridge=lambda queries: 7 * bridge(queries))
    assert found.gain == expected.gain
    assert found.bridge is None
    assert found.bridged
    assert "Bridged." in markdown(check_report(found.as_json()))


@pytest.mark.parametrize("score", ["mAP", "hit@5"])
def test_other_scores(score):
    made = worlds(24)
    bridge = Bridge.fit(new=made["gallery_new"], old=made["gallery_old"], kind="rotation")
    sources = labelled(made, "gallery_old", "queries_old", "queries_new", "gallery_new")
    found = check(*sources, bridge=bridge, score=score)
    alone = check(*sources, score=score)
    assert found.without_bridge.cross_test == alone.cross_test
    assert found.cross_test.value > alone.cross_test.value


def test_without_labels_agreement_with_the_reembedded_hits_is_shown(made, bridge):
    sources = [made[name] for name in ("gallery_old", "queries_old", "queries_new", "gallery_new")]
    found = check(*sources, bridge=bridge)
    stored, old, new, again = (unit(rows) for rows in sources)
    wanted = nearest(new, again, 10).indices
    for queries, estimate in ((old, found.agreement.old), (bridge(new), found.agreement.new)):
        hits = nearest(queries, stored, 10).indices
        shared = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(hits, wanted)])
        assert estimate.value == pytest.approx(shared)
    assert (found.verdict, found.exit_code, found.gain, found.loss) == ("not judged", 3, None, None)
    assert found.changes is None
    record = json.loads(json.dumps(found.as_json(), allow_nan=False))
    for shown in (html_page(check_report(record)), markdown(check_report(record))):
        assert "It rewards imitating the new model, also where that finds less than the old one." in shown


def test_without_labels_items_are_matched_by_id(made, bridge):
    ids = np.array([f"i{row}" for row in range(200)])
    order = np.random.default_rng(1).permutation(200)
    given = {"bridge": bridge}
    expected = check(*[made[n] for n in ("gallery_old", "queries_old", "queries_new", "gallery_new")], **given)
    stored, again = (made["gallery_old"], None, ids), (made["gallery_new"][order], None, ids[order])
    found = check(stored, made["queries_old"], made["queries_new"], again, **given)
    assert found.agreement == expected.agreement
    # Items that only the new gallery holds cannot be found in the old one and do not count.
    more = (np.vstack([again[0], made["queries_new"][:50]]), None, [*again[2], *(f"more{i}" for i in range(50))])
    assert check(stored, made["queries_old"], made["queries_new"], more, **given).agreement == expected.agreement
    # Items that only the old gallery holds could only be wrong hits and are not searched.
    larger = (np.vstack([stored[0], made["queries_old"][:50]]), None, [*ids, *more[2][200:]])
    found = check(larger, made["queries_old"], made["queries_new"], again, **given)
    assert (found.agreement, found.gallery) == (expected.agreement, 200)
    assert "50 items of gallery are not in gallery_new and not searched" in found.notes
    assert not any("ceiling" in note for note in found.notes)
    larger = (np.vstack([np.zeros((50, 24)), stored[0]]), None, [*more[2][200:], *ids])
    larger[0][51] = 0
    found = check(larger, made["queries_old"], made["queries_new"], again, **given)
    assert found.bad_rows == {"gallery": {"not_finite": [], "zero": [51]}}  # the number of the row in the file
    with pytest.raises(HoldfastError, match="199 items, but 200 in gallery; without labels their items are compared"):
        check(made["gallery_old"], made["queries_old"], made["queries_new"], made["gallery_new"][1:], **given)
    with pytest.raises(HoldfastError, match="has no id of gallery"):
        check(stored, made["queries_old"], made["queries_new"], (made["gallery_new"], None, np.arange(200)), **given)


def test_items_that_the_bridge_was_fitted_on_are_reported(made, bridge, tmp_path):
    """Their scores are too high: without labels a map fitted on them agrees even between unrelated spaces."""
    names = ("gallery_old", "queries_old", "queries_new", "gallery_new")
    bridge.save(tmp_path / "bridge")
    for one in (bridge, Bridge.load(tmp_path / "bridge")):
        unlabelled = check(*(made[name] for name in names), bridge=one)
        assert [note for note in unlabelled.notes if "fitted on 200 of these 200 items" in note]
        assert not [note for note in unlabelled.notes if "queries; their scores" in note]
        assert not [note for note in check(*labelled(made, *names), bridge=one).notes if "fitted" in note]
    on_queries = Bridge.fit(new=made["queries_new"][:250] * 3, old=made["queries_old"][:250], kind="rotation")
    found = check(*labelled(made, *names), bridge=on_queries)
    assert [note for note in found.notes if "fitted on 250 of these 300 queries; their scores are too high" in note]


def test_without_labels_and_without_the_new_gallery_nothing_is_judged(made, bridge):
    found = check(made["gallery_old"], made["queries_old"], made["queries_new"], bridge=bridge)
    assert (found.verdict, found.exit_code) == ("not judged", 3)
    stored, old, new = (unit(made[n]) for n in ("gallery_old", "queries_old", "queries_new"))
    hits = [nearest(queries, stored, 10).indices for queries in (old, bridge(new))]
    assert found.overlap.shared.value == pytest.approx(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(*hits)]))


def test_a_bridge_between_unrelated_spaces_is_incompatible():
    made = worlds(24)
    rng = np.random.default_rng(5)
    bridge = Bridge.fit(new=rng.standard_normal((200, 24)), old=made["gallery_old"], kind="rotation")
    found = check(*labelled(made, "gallery_old", "queries_old", "queries_new"), bridge=bridge)
    assert found.verdict == "worse"
    assert "the bridged queries score no better than a random ranking" in found.reason


def test_what_does_not_fit_is_refused(made, bridge):
    sources = labelled(made, "gallery_old", "queries_old", "queries_new")
    size = made["queries_new"].shape[1]
    other = Bridge.fit(new=0.1 + np.eye(50, 10), old=made["gallery_old"][:50], kind="rotation")
    with pytest.raises(
        HoldfastError, match=rf"{size} numbers per vector, but the bridge maps queries of 10 numbers to "
    ):
        check(*sources, bridge=other)
    narrow = Bridge.fit(new=made["gallery_new"], old=np.eye(200, 12) + 0.1, kind="rotation")
    with pytest.raises(HoldfastError, match=r"gallery: 24 numbers per vector, but the bridge maps .* of 12"):
        check(*sources, bridge=narrow)
    with pytest.raises(HoldfastError, match=r"turned \(300, \d+\) queries into \(300, 3\)"):
        check(*sources, bridge=lambda queries: queries[:, :3])
    with pytest.raises(HoldfastError, match="gives NaN or infinity"):
        check(*sources, bridge=lambda queries: bridge(queries) * float("nan"))


def test_a_bridge_of_other_models_is_refused(made, tmp_path):
    bridge = Bridge.fit(
        new=made["gallery_new"], old=made["gallery_old"], kind="rotation", models={"new": "clip-b", "old": "clip-a"}
    )
    sources = labelled(made, "gallery_old", "queries_old", "queries_new")
    for name, (features, labels) in zip(("gallery", "old", "new"), sources):
        model = "clip-b" if name == "new" else "clip-a"
        np.savez(tmp_path / f"{name}.npz", features=features, labels=labels, model=model)
    files = [tmp_path / f"{name}.npz" for name in ("gallery", "old", "new")]
    expected = check(*sources, bridge=bridge)
    assert check(*files, bridge=bridge).gain == expected.gain
    np.savez(files[2], features=sources[2][0], labels=sources[2][1], model="clip-c")
    with pytest.raises(HoldfastError, match="embedded by model clip-c, but the bridge's new model is clip-b"):
        check(*files, bridge=bridge)
    assert check(*files[:2], sources[2], bridge=bridge).gain == expected.gain


def test_unusable_queries_find_nothing_through_a_bridge(made, bridge):
    gallery, old, (features, labels) = labelled(made, "gallery_old", "queries_old", "queries_new")
    spoilt = features.copy()
    spoilt[3], spoilt[5] = np.nan, 0
    moved = Bridge.fit(new=made["gallery_new"], old=made["gallery_old"], kind="affine")  # has a bias
    found = check(gallery, old, (spoilt, labels), bridge=moved)
    assert found.bad_rows["queries_new"] == {"not_finite": [3], "zero": [5]}
    lost = {entry["query"]: entry["new_hit"] for entry in found.changes.lost_queries}
    assert all(lost[row] is None for row in (3, 5) if row in lost)
    assert any(row in lost for row in (3, 5))


@pytest.mark.parametrize("which", ["queries_old", "queries_new"])
@pytest.mark.parametrize("value", [np.nan, 0.0])
def test_queries_that_are_all_unusable_cannot_be_judged(which, value, sets):
    features, labels = sets[which]
    with pytest.raises(HoldfastError, match=f"{which}: holds no usable query; all are zero or not finite"):
        check(**{**sets, which: (np.full_like(features, value), labels)})


def test_a_name_of_the_model_is_read_and_kept(tmp_path):
    np.savez(tmp_path / "a.npz", features=np.eye(3), model="clip")
    np.savez(tmp_path / "b.npz", features=np.eye(3), model=np.array(["one", "a", "row"]))
    from holdfast.vectors.feature_files import read_features

    assert read_features(tmp_path / "a.npz", "gallery").model == "clip"
    assert read_features(tmp_path / "b.npz", "gallery").model is None
    assert feature_set("a", np.eye(3)).model is None

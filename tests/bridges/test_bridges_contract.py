"""What every kind of bridge must do, and how one is chosen."""

import json
import re

import numpy as np
import pytest

from holdfast.bridges import BRIDGES, Bridge, choice, measure_scale
from holdfast.bridges.export import export_npz
from holdfast.bridges.score_scale import SAME
from holdfast.bridges.trial import Trial, split_pairs
from holdfast.core.errors import HoldfastError
from holdfast.core.storage import read_tensors, write_tensors
from holdfast.vectors import nearest
from holdfast.vectors.lengths import unit

FAST = {
    "rotation": {},
    "affine": {"ridge": 0.1},
    "local": {},
}


def drawn(count: int, dim: int, seed: int, classes: int = 20) -> np.ndarray:
    """Unit vectors in clusters, as embeddings have them."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((classes, dim))
    rows = centres[rng.integers(classes, size=count)] + 0.7 * rng.standard_normal((count, dim))
    return unit(rows)


def turned(items: np.ndarray, dim: int, noise: float = 0.0, seed: int = 1) -> np.ndarray:
    """The same items in another space of ``dim`` numbers."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((max(dim, items.shape[1]),) * 2))[0][: items.shape[1], :dim]
    rows = items @ turn
    return unit(rows + noise * rng.standard_normal(rows.shape) / dim**0.5)


@pytest.mark.parametrize("kind", BRIDGES)
@pytest.mark.parametrize(("new_dim", "old_dim"), [(24, 24), (16, 40), (40, 16)])
def test_every_kind_finds_items_again(kind, new_dim, old_dim, tmp_path):
    base = drawn(400, 16, 0)
    new, old = turned(base, new_dim, 0.1, 1), turned(base, old_dim, 0.1, 2)
    bridge = Bridge.fit(new=new[:300], old=old[:300], kind=kind, options=FAST[kind])
    queries = bridge(new[300:])
    assert queries.shape == (100, old_dim)
    assert queries.dtype == np.float32
    assert np.allclose(np.linalg.norm(queries, axis=1), 1, atol=1e-5)
    assert np.array_equal(bridge.transform(new[300:]), queries)
    assert np.allclose(bridge.one(unit(new[300])), queries[0], atol=1e-6)
    found = nearest(queries, old[300:], 1).indices[:, 0]
    assert (found == np.arange(100)).mean() > 0.8
    assert np.array_equal(bridge(np.zeros((1, new_dim))), np.zeros((1, old_dim)))
    bridge.save(tmp_path / "bridge")
    again = Bridge.load(tmp_path / "bridge")
    assert np.array_equal(again(new[300:]), queries)
    assert again.as_json() == bridge.as_json()
    assert again.scale == bridge.scale
    json.dumps(bridge.as_json(), allow_nan=False)


def test_a_rotation_is_found_exactly():
    old = drawn(300, 32, 0)
    new = turned(old, 32)
    bridge = Bridge.fit(new=new, old=old, kind="rotation")
    assert np.allclose(bridge(new), old, atol=1e-4)
    weight = bridge.map.weight
    assert np.allclose(weight @ weight.T, np.eye(32), atol=1e-5)
    centred = Bridge.fit(new=new, old=old, kind="rotation", options={"centred": True})
    assert np.allclose(centred(new), old, atol=1e-4)


def test_directions_that_pairs_do_not_span_are_dropped():
    """Ten pairs span ten directions; a query outside them has no place in the old space."""
    old = drawn(10, 32, 0)
    bridge = Bridge.fit(new=turned(old, 32), old=old, kind="rotation")
    assert np.linalg.matrix_rank(bridge.map.weight, tol=1e-3) <= 10


def test_none_wins_in_one_space_and_loses_between_two():
    items = drawn(600, 32, 0)
    near = unit(items + 0.05 * np.random.default_rng(1).standard_normal(items.shape) / 32**0.5)
    same = Bridge.fit(new=near, old=items)
    assert same.kind == "none"
    assert same.agrees_beyond_chance
    assert np.allclose(same(near), near)
    wide = drawn(600, 128, 0)
    other = Bridge.fit(new=turned(wide, 128, 0.1), old=wide)
    assert other.kind == "rotation"
    assert other.agrees_beyond_chance
    values = {one.kind: one.value for one in other.evidence.candidates}
    assert values["rotation"] > values["none"] + 0.3
    counts = [count for count, _ in other.evidence.curve]
    assert counts == [105, 210, 420]
    assert other.evidence.curve[-1][1] > other.evidence.curve[0][1]


def unrelated(dim: int, copies: int = 1, classes: int = 100):
    """Pairs of items that have nothing to do with each other; every pair is there several times."""

    def make(count: int):
        different = -(-count // copies)
        new, old = drawn(different, dim, 3, classes=classes), drawn(different, dim, 4, classes=classes)
        return np.tile(new, (copies, 1))[:count], np.tile(old, (copies, 1))[:count]

    return make


def related(new_dim: int, old_dim: int, *, noise: float = 0.1, classes: int = 20, copies: int = 1):
    """Items embedded by two models, in spaces that differ by a rotation and noise."""

    def make(count: int):
        base = np.tile(drawn(-(-count // copies), min(new_dim, old_dim), 0, classes=classes), (copies, 1))[:count]
        return turned(base, new_dim, noise, 1), turned(base, old_dim, noise, 2)

    return make


def identical(count: int):
    items = drawn(count, 32, 0)
    return items, items


def nearly_identical(count: int):
    items = drawn(count, 32, 0)
    return unit(items + 0.1 * turned(items, 32, 1.0, 5)), items


def all_equal(count: int):
    return np.ones((count, 16)), np.ones((count, 16))


def half_precision(count: int):
    return tuple(rows.astype(np.float16) for rows in related(32, 32)(count))


def backwards(count: int):
    """Arrays with negative and with wide strides."""
    new, old = related(32, 32)(count)
    return np.flip(new, 0).copy()[::-1], np.repeat(old, 2, axis=1)[:, ::2]


WORST = {
    "identical spaces": identical,
    "nearly identical spaces": nearly_identical,
    "unrelated spaces": unrelated(32),
    "unrelated spaces, each pair four times": unrelated(32, copies=4),
    "related spaces": related(32, 32),
    "related spaces, each pair four times": related(32, 32, noise=0.0, copies=4),
    "little in common": related(32, 32, noise=2.0),
    "one class": related(32, 32, classes=1),
    "64 to 1280": related(64, 1280),
    "1280 to 64": related(1280, 64),
    "all vectors equal": all_equal,
    "half precision": half_precision,
    "strides": backwards,
}
KINDS_OF_LABELS = {
    "no labels": lambda count: None,
    "one class": lambda count: ["a"] * count,
    "some unknown": lambda count: [(None, "", "a", "b", 3)[i % 5] for i in range(count)],
}


def overlaps(queries: np.ndarray, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Overlap@10 of each item's hits among the other items with those of the new space, by a plain loop."""
    found = []
    for i in range(len(new)):
        hits = []
        for scores in (old @ queries[i], new @ new[i]):
            scores[i] = -2
            hits.append(set(np.argsort(-scores, kind="stable")[:10].tolist()))
        found.append(len(hits[0] & hits[1]) / 10)
    return np.array(found)


@pytest.mark.parametrize("labelled", KINDS_OF_LABELS)
@pytest.mark.parametrize("pairs", [20, 700])
@pytest.mark.parametrize("case", WORST)
def test_the_chosen_kind_is_never_worse_than_none(case, pairs, labelled):
    """On items that had no part in the choice, by more than the noise; the noise is three standard errors."""
    new, old = WORST[case](pairs + 200)
    bridge = Bridge.fit(new=new[:pairs], old=old[:pairs], labels=KINDS_OF_LABELS[labelled](pairs))
    unseen, stored = (unit(rows[pairs:]) for rows in (new, old))
    bridged = bridge(unseen)
    assert np.isfinite(bridged).all()
    assert bridge.scale.slope > 0
    if unseen.shape == stored.shape:
        gain = overlaps(bridged, stored, unseen) - overlaps(unseen, stored, unseen)
        assert gain.mean() >= -3 * gain.std(ddof=1) / len(gain) ** 0.5
    if case.startswith(("unrelated", "all vectors")):
        assert not bridge.agrees_beyond_chance
    elif pairs == 700:
        assert bridge.agrees_beyond_chance


@pytest.mark.parametrize("labels", [["a"] * 700, ["a"] * 600 + ["b"] * 100])
def test_labels_that_random_hits_match_do_not_decide(labels):
    """All candidates would be equally good, and queries as they are would win, though they find nothing."""
    items = drawn(700, 32, 0, classes=1)
    bridge = Bridge.fit(new=turned(items, 32, 0.1), old=items, labels=labels)
    assert (bridge.evidence.measure, bridge.kind, bridge.agrees_beyond_chance) == ("overlap@10", "rotation", True)


def test_labels_of_what_is_similar_decide():
    items = drawn(700, 32, 0, classes=5)
    labels = nearest(items, items[:5]).indices[:, 0].tolist()
    bridge = Bridge.fit(new=turned(items, 32, 0.1), old=items, labels=labels)
    assert (bridge.evidence.measure, bridge.kind, bridge.agrees_beyond_chance) == ("top1", "rotation", True)
    codes = np.array(labels)
    chance = np.mean([(np.delete(codes, i) == one).mean() for i, one in enumerate(codes)])
    assert bridge.evidence.chance == pytest.approx(chance, abs=0.1)  # of all items; the held-out ones are a sample


@pytest.mark.parametrize("unknown", ["", float("nan")])
def test_unknown_labels_are_no_class(unknown):
    """In most places, as in a table that was labelled in part."""
    items = drawn(1000, 32, 0, classes=5)
    labels = nearest(items, items[:5]).indices[:, 0].tolist()
    new, known = turned(items, 32, 0.1), [label if i % 4 else None for i, label in enumerate(labels)]
    named = [unknown if label is None else label for label in known]
    one, other = (Bridge.fit(new=new, old=items, labels=given).evidence for given in (known, named))
    assert (one.measure, one.chance, one.chosen.value) == (other.measure, other.chance, other.chosen.value)


def test_tensors_of_torch_are_taken():
    torch = pytest.importorskip("torch")
    items = drawn(60, 32, 0)
    new = turned(items, 32, 0.1)
    bridge = Bridge.fit(new=torch.from_numpy(new), old=torch.from_numpy(items).double())
    queries = torch.from_numpy(new[:3]).requires_grad_()
    assert np.array_equal(bridge(queries), Bridge.fit(new=new, old=items)(new[:3]))


def test_a_bridge_is_shown_in_a_sentence():
    items = drawn(200, 32, 0)
    shown = repr(Bridge.fit(new=turned(items, 32, 0.1), old=items))
    assert re.fullmatch(
        r"Bridge from 32 to 32 numbers by rotation, fitted on 200 pairs; it agrees more than chance, not judged: "
        r"its overlap@10 on 60 held-out pairs is [\d.]+ %, without a bridge [\d.]+ %, by chance 16.9 %",
        shown,
    ), shown


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("collapsed", ["new", "old"])
def test_a_collapsed_model_is_not_bridged(collapsed, seed):
    """All its vectors are equal, so that all queries get one ranking, which can agree with another one by chance."""
    items, equal = drawn(200, 16, seed, classes=200), np.ones((200, 16))
    new, old = (equal, items) if collapsed == "new" else (items, equal)
    assert not Bridge.fit(new=new, old=old).agrees_beyond_chance


def nearly_collapsed(seed):
    """New vectors that are nearly equal, so that all queries find about the same items, and unrelated old ones."""
    random = np.random.default_rng(seed)
    old, new = (random.standard_normal((300, 64)) for _ in range(2))
    return 1 + 0.01 * new, old


def test_chance_is_the_overlap_with_the_hits_of_other_queries():
    new, old = (unit(rows) for rows in nearly_collapsed(0))
    new = unit(old + new)  # related, and with items that are near to all queries
    split = split_pairs(300, 0)
    stored, wanted = old[split.held], new[split.held]

    def hits(queries: np.ndarray, items: np.ndarray) -> list[set[int]]:
        scores = queries @ items.T
        np.fill_diagonal(scores, -2)
        return [set(np.argsort(-row, kind="stable")[:10].tolist()) for row in scores]

    shown, right = hits(wanted, stored), hits(wanted, wanted)
    count = len(shown)
    gains = np.array(
        [
            len(shown[i] & right[i]) / 10 - np.mean([len(shown[i] & right[j]) / 10 for j in range(count) if j != i])
            for i in range(count)
        ]
    )
    found = Trial(new, old, None, split, new).beyond_chance("none", {})
    assert found == pytest.approx(gains.mean() / (gains.std(ddof=1) / count**0.5), rel=1e-4)


def test_a_nearly_collapsed_model_is_not_bridged():
    helped = [
        Bridge.fit(**dict(zip(("new", "old"), nearly_collapsed(seed))), kind="none").agrees_beyond_chance
        for seed in range(60)
    ]
    assert sum(helped) <= 1


def test_equal_scores_share_their_ranks():
    """Old vectors that are all equal: an item's own vector is in the middle of the ranking, not first."""
    bridge = Bridge.fit(new=drawn(20, 8, 0), old=np.ones((20, 8)))
    assert bridge.evidence.measure == "reciprocal rank"
    assert bridge.evidence.chosen.value < bridge.evidence.chance
    assert not bridge.agrees_beyond_chance


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda new, old: (new[:-1], old), "new has 29 rows and old 30"),
        (lambda new, old: (new[:5], old[:5]), "5 pairs are too few"),
        (lambda new, old: (new * np.array([float("nan")] + [1.0] * 7), old), "new: 30 of 30 rows hold NaN"),
        (lambda new, old: (new, old * (np.arange(30) > 1)[:, None]), "old: 2 of 30 rows are zero"),
        (lambda new, old: (new[0], old), "new has shape"),
        (lambda new, old: (np.zeros((30, 0)), old), r"new has shape \(30, 0\)"),
    ],
)
def test_bad_pairs_are_refused(change, message):
    new, old = change(drawn(30, 8, 0), drawn(30, 8, 1))
    with pytest.raises(HoldfastError, match=message):
        Bridge.fit(new=new, old=old)


def test_bad_calls_and_folders_are_refused(tmp_path):
    new, old = drawn(60, 8, 0), drawn(60, 12, 1)
    with pytest.raises(HoldfastError, match="unknown kind of bridge 'magic'; known: affine, auto"):
        Bridge.fit(new=new, old=old, kind="magic")
    with pytest.raises(HoldfastError, match="cannot be compared"):
        Bridge.fit(new=new, old=old, kind="none")
    with pytest.raises(HoldfastError, match="same_space: vectors of different sizes"):
        Bridge.fit(new=new, old=old, same_space=True)
    with pytest.raises(HoldfastError, match="belong to one kind"):
        Bridge.fit(new=new, old=old, options={"ridge": 1.0})
    bridge = Bridge.fit(new=new, old=old, kind="rotation")
    with pytest.raises(HoldfastError, match="takes Q x 8"):
        bridge(old)
    assert np.allclose(bridge(np.float32(1e38) * new), bridge(new), atol=1e-6)  # its length overflows float32
    with pytest.raises(HoldfastError, match="1 of 2 queries hold NaN or infinity"):
        bridge([[1.0] * 8, [np.inf] * 8])
    bridge.save(tmp_path / "b")
    record = json.loads((tmp_path / "b" / "bridge.json").read_text())
    (tmp_path / "b" / "bridge.json").write_text(json.dumps({**record, "dims": [9, 12]}))
    with pytest.raises(HoldfastError, match="not a bridge, or a damaged one"):
        Bridge.load(tmp_path / "b")
    (tmp_path / "b" / "bridge.json").write_text(json.dumps({**record, "dims": [8, 11]}))
    with pytest.raises(HoldfastError, match="its tensors do not fit its sizes"):
        Bridge.load(tmp_path / "b")
    with pytest.raises(HoldfastError, match="no bridge here"):
        Bridge.load(tmp_path / "nothing")


NAN, HUGE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *(("rotation", {"scale": {"slope": slope}}) for slope in (-1.0, 0, None, HUGE, 1e-12, 10**400, "1", True)),
        *(("rotation", {"scale": {"offset": offset}}) for offset in (None, NAN, -HUGE, 1e12, [0.5])),
        ("rotation", {"scale": {"mean_old": HUGE, "deviation_new": "x"}}),
        ("rotation", {"scale": {"mean_old": 10**400}}),
        ("rotation", {"scale": {"pairs": -1}}),
        ("rotation", {"evidence": {"held_out": 10**400}}),
        ("rotation", {"dims": [8, 12.0]}),
        ("rotation", {"dims": [8]}),
        ("rotation", {"dims": [8, 0]}),
        ("none", {"dims": [HUGE, 8]}),
        ("rotation", {"kind": "affine"}),
        ("rotation", {"options": {"rank": 4}}),
        ("rotation", {"evidence": {"pairs": 1.5}}),
        ("rotation", {"evidence": {"beyond_chance": HUGE}}),
        ("rotation", {"evidence": {"beyond_chance": "9"}}),
        ("rotation", {"evidence": {"measure": 1}}),
        ("rotation", {"evidence": {"candidates": []}}),
        ("rotation", {"evidence": {"raw_exposure": {"1": HUGE}}}),
        ("rotation", {"evidence": {"curve": [[10, "x"]]}}),
        ("rotation", {"tensors": {"map.weight": lambda t: t * NAN}}),
        ("rotation", {"tensors": {"map.weight": lambda t: t * 1e30}}),
        ("rotation", {"tensors": {"map.weight": lambda t: t.astype(np.float64)}}),
        ("rotation", {"tensors": {"map.weight": lambda t: t.T}}),
        ("rotation", {"tensors": {"map.weight": None}}),
        ("rotation", {"tensors": {"map.more": np.ones_like}}),
        ("rotation", {"tensors": {"map.bias": lambda t: t[None]}}),
        ("rotation", {"tensors": {"map.bias": lambda t: t[:1]}}),
        ("rotation", {"tensors": {"error_weights": lambda t: t[1:]}}),
        ("rotation", {"tensors": {"error_weights": lambda t: t * HUGE}}),
        ("rotation", {"tensors": {"fitted": lambda t: t[:, :5]}}),
        ("rotation", {"tensors": {"fitted": lambda t: t * NAN}}),
        ("rotation", {"tensors": {"fitted": None}}),
        ("local", {"tensors": {"map.residuals": lambda t: t[:5]}}),
        *(("local", {"tensors": {"map.settings": lambda t, i=i: t * np.eye(3, dtype=np.float32)[i]}}) for i in (0, 1)),
        ("local", {"tensors": {"map.settings": lambda t: t + HUGE}}),
        ("local", {"tensors": {"map.settings": lambda t: t * np.array([1, 1e-40, 1], np.float32)}}),
    ],
)
def test_numbers_that_no_fit_gives_are_refused(kind, change, tmp_path):
    new, old = drawn(60, 8, 0), drawn(60, 8 if kind == "none" else 12, 1)
    Bridge.fit(new=new, old=old, kind=kind, options=FAST.get(kind)).save(tmp_path / "b")
    Bridge.load(tmp_path / "b")
    record = json.loads((tmp_path / "b" / "bridge.json").read_text())
    tensors, _ = read_tensors(tmp_path / "b" / "bridge.safetensors")
    for name, make in change.pop("tensors", {}).items():
        tensors[name] = None if make is None else make(tensors.get(name, np.ones(3, np.float32)))
    for name, value in change.items():
        record[name] = {**record[name], **value} if name in ("scale", "evidence") else value
    write_tensors(tmp_path / "b" / "bridge.safetensors", {name: t for name, t in tensors.items() if t is not None})
    (tmp_path / "b" / "bridge.json").write_text(json.dumps(record))
    with pytest.raises(HoldfastError, match="b: not a bridge, or a damaged one"):
        Bridge.load(tmp_path / "b")


def test_scores_are_standardised_over_the_best_of_each_query():
    new, old = drawn(200, 32, 0), drawn(200, 24, 1)
    bridged = unit(old + 0.5 * np.random.default_rng(2).standard_normal(old.shape) / 24**0.5)
    scale = measure_scale(bridged, old, new)

    def best(queries, items):
        rows = queries @ items.T
        return np.array([sorted(np.delete(row, i))[-5:] for i, row in enumerate(rows)])

    merged, wanted = scale(best(bridged, old)), best(new, new)
    assert float(merged.mean()) == pytest.approx(wanted.mean(), abs=1e-5)
    assert float(merged.std(ddof=1)) == pytest.approx(wanted.std(ddof=1), abs=1e-5)
    assert scale.cosine(scale.score(0.4)) == pytest.approx(0.4)
    assert float(scale(np.array(0.4))) == pytest.approx(scale.score(0.4))
    few = measure_scale(bridged[:50], old[:50], new[:50])
    full = few.deviation_new / few.deviation_old
    assert few.slope == pytest.approx(0.5 * full + 0.5)  # half way to the raw score
    assert measure_scale(bridged[:50], old[:50], new[:50], pairs=100).slope == pytest.approx(full)
    part = measure_scale(bridged[:80], old, new)  # fewer queries than items
    assert (part.pairs, part.slope != scale.slope) == (200, True)
    assert measure_scale(bridged[:1], old[:1], new[:1]).is_raw
    flat = np.ones((5, 4), np.float32) / 2
    assert measure_scale(flat, flat, flat).is_raw


def test_old_items_are_shown_fairly():
    """Scores of the new space have a long tail: mean and deviation of all scores would hide the old items."""
    base = drawn(1500, 24, 0, classes=200)
    new = unit(np.sign(base) * np.abs(base) ** 4)
    bridge = Bridge.fit(new=new, old=turned(base, 24), kind="rotation")
    assert bridge.evidence.chosen.scaled
    for ratio in bridge.evidence.chosen.exposure.values():
        assert 0.8 <= ratio <= 1.25
    same = Bridge.fit(new=base, old=base)
    assert same.kind == "none"
    assert same.scale.is_raw


@pytest.mark.parametrize("items", [300, 600, 1200])
def test_fitted_pairs_in_the_gallery_do_not_make_unrelated_spaces_look_related(items):
    """A map memorises its pairs and finds them above chance; that says nothing about other items."""
    rng = np.random.default_rng(0)
    bridge = Bridge.fit(new=rng.standard_normal((300, 16)), old=drawn(300, 16, 1, classes=10), items=items)
    best = bridge.evidence.chosen
    assert best.value - 3 * best.error > bridge.evidence.chance or items > 600
    assert not bridge.agrees_beyond_chance


def test_a_shared_space_stored_in_two_sizes(tmp_path):
    """``none`` with queries that the caller converts: kept and read again, although the sizes differ."""
    full = drawn(200, 24, 3)
    new, old = full, unit(full[:, :20])
    bridge = Bridge.fit(new=new, old=old, kind="none", unbridged=full[:, :20])
    bridge.save(tmp_path / "bridge")
    again = Bridge.load(tmp_path / "bridge")
    assert (again.kind, again.dims) == ("none", (24, 20))
    assert (again.scale.slope, again.scale.offset) == (bridge.scale.slope, bridge.scale.offset)


@pytest.mark.parametrize(
    ("pairs", "items", "held", "beside"),
    [
        (300, None, 90, 0),
        (300, 600, 90, 90),  # half of the gallery, so half of the items searched
        (300, 300, 90, 210),
        (50_000, 50_001, 1000, 9000),  # more would need memory in proportion to the pairs
    ],
)
def test_fitted_pairs_are_searched_as_in_the_gallery(pairs, items, held, beside):
    split = split_pairs(pairs, 0, items)
    assert (len(split.held), len(split.also_searched)) == (held, beside)
    assert sorted(np.concatenate([split.held, split.fitted]).tolist()) == list(range(pairs))
    assert set(split.also_searched.tolist()) <= set(split.fitted.tolist())


@pytest.mark.parametrize("kind", ["local", "rotation"])
def test_many_queries_give_what_each_of_them_gives(kind):
    base = drawn(700, 16, 0)
    bridge = Bridge.fit(new=base[:100], old=turned(base, 24)[:100], kind=kind)
    together = bridge(base)
    assert together.shape == (700, 24)
    for row in (0, 255, 256, 699):
        assert np.allclose(together[row], bridge(base[row : row + 1])[0], atol=1e-6)
    assert bridge(base[:0]).shape == (0, 24)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [60, 200, 700])
def test_queries_as_they_are_never_win_between_two_spaces(seed, count):
    """Scores of unrelated vectors can be scaled until old items are shown fairly often; that is no reason."""
    base = drawn(count, 64, seed, classes=100)
    bent = unit(np.sign(base) * np.abs(base) ** 1.5)
    bridge = Bridge.fit(new=turned(bent, 64, 0.6, seed + 1), old=base, seed=seed)
    assert bridge.kind != "none"
    assert bridge.agrees_beyond_chance


@pytest.mark.parametrize("kind", ["rotation", "affine"])
def test_a_map_of_few_directions_is_kept_as_two_factors(kind, tmp_path):
    base = drawn(400, 8, 0)
    new, old = turned(base, 40), turned(base, 40, seed=2)
    whole, short = (Bridge.fit(new=new, old=old, kind=kind, options=options) for options in ({}, {"rank": 8}))
    assert [tuple(one.shape) for one in short.map.factors] == [(40, 8), (8, 40)]
    assert np.allclose(short(new), whole(new), atol=1e-4)  # the items span eight directions
    short.save(tmp_path / "bridge")
    assert np.array_equal(Bridge.load(tmp_path / "bridge")(new), short(new))
    export_npz(short, tmp_path / "bridge.npz")
    arrays = np.load(tmp_path / "bridge.npz")
    assert np.allclose(unit(new @ arrays["weight"] + arrays["bias"]), short(new), atol=1e-5)


@pytest.mark.parametrize(("count", "best"), [(60, 0), (600, 1)])
def test_first_places_decide_if_enough_pairs_were_held_out(count, best):
    """The second map shows fewer of the wanted items, but the nearest one further up."""
    draw = np.random.default_rng(0)
    shown = draw.random((2, count)) * [[1.0], [0.8]]
    first = draw.random((2, count)) * [[0.8], [1.0]]
    measured = [
        choice.Measured(choice.Candidate(kind, {}, float(values.mean()), 0.01), values, ranks, SAME)
        for kind, values, ranks in zip(("rotation", "local"), shown, first)
    ]
    assert choice.ranked(measured)[0] == best


def test_queries_are_fitted_on_but_neither_held_out_nor_searched():
    items, asked = drawn(300, 16, 0), drawn(200, 16, 5)
    new, is_query = turned(np.concatenate([items, asked]), 24), np.arange(500) >= 300
    bridge = Bridge.fit(new=new, old=np.concatenate([items, asked]), queries=is_query)
    assert (bridge.evidence.pairs, bridge.evidence.held_out, bridge.evidence.searched) == (500, 90, 90)
    assert bridge.evidence.curve[-1][0] == 410
    assert bridge.was_fitted_on(new[is_query]).all()
    with pytest.raises(HoldfastError, match="give a boolean for each pair, and at least 10 items"):
        Bridge.fit(new=new, old=new, queries=[True] * 500)


@pytest.mark.parametrize(("directions", "expected"), [(16, 20), (60, None)])
def test_large_maps_use_fewer_directions_if_nothing_is_lost(directions, expected, monkeypatch):
    monkeypatch.setattr(choice, "SHORT_FROM", 64)
    monkeypatch.setattr(choice, "SHORT_RANK", 20)
    base = drawn(700, directions, 0)
    bridge = Bridge.fit(new=turned(base, 64, 0.05), old=turned(base, 64, 0.05, seed=2))
    assert bridge.options.get("rank") == expected
    assert sum("rank" in one.options for one in bridge.evidence.candidates) == 1


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("rotation", {"foo": 1}, "unknown option of rotation 'foo'; known: centred, rank"),
        ("rotation", {"rank": 0}, "rotation: rank must be a whole number of at least 1, got 0"),
        ("affine", {"ridge": -1.0}, "affine: ridge must be a number of at least 0"),
        ("local", {"neighbours": 0}, "local: neighbours must be a whole number"),
        ("local", {"temperature": 0.0}, "local: temperature must be above 0"),
        ("none", {"rank": 3}, "unknown option of none 'rank'"),
        ("affine", {"ridge": 0}, "affine: ridge must be above 0"),
        ("rotation", {"rank": True}, "rank must be a whole number"),
        ("rotation", {"centred": 2}, "centred must be true or false"),
    ],
)
def test_options_of_a_kind_are_checked(kind, options, message):
    rows = np.random.default_rng(0).standard_normal((40, 8))
    with pytest.raises(HoldfastError, match=re.escape(message)):
        Bridge.fit(new=rows, old=rows, kind=kind, options=options)


def test_saving_a_bridge_does_not_remove_other_files(tmp_path):
    rows = np.random.default_rng(0).standard_normal((40, 8))
    bridge = Bridge.fit(new=rows, old=rows, kind="rotation")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(HoldfastError, match=re.escape("exists and holds notes.txt, which would be lost")):
        bridge.save(tmp_path)
    bridge.save(tmp_path / "b")
    bridge.save(tmp_path / "b")
    assert Bridge.load(tmp_path / "b").kind == "rotation"


def test_items_that_were_embedded_twice_count_once():
    """Copies differ in the last bits. On both sides of the split they would make unrelated spaces look alike."""
    random = np.random.default_rng(0)
    new, old = (np.tile(random.standard_normal((150, width)), (3, 1)) for width in (24, 16))
    noise = 1e-6 * random.standard_normal((450, 24))
    bridge = Bridge.fit(new=new + noise, old=old)
    assert bridge.evidence.pairs == 150
    assert not bridge.agrees_beyond_chance
    different = Bridge.fit(new=new[:150] + noise[:150], old=old[:150] + 0.1)
    assert different.evidence.pairs == 150
    equal = Bridge.fit(new=np.ones((3000, 8)) + 1e-6 * random.standard_normal((3000, 8)), old=np.ones((3000, 4)))
    assert not equal.agrees_beyond_chance


def test_vectors_that_were_rounded_are_recognised():
    new, old = drawn(200, 64, 0, classes=200), drawn(200, 64, 1, classes=200)
    bridge = Bridge.fit(new=new, old=old, kind="rotation")
    bfloat16 = (new.view(np.uint32) & 0xFFFF0000).view(np.float32)
    for rounded in (new.astype(np.float16), bfloat16):
        assert bridge.was_fitted_on(rounded).all()
    assert not bridge.was_fitted_on(drawn(2000, 64, 2, classes=2000)).any()

"""What every kind of bridge must do, and how one is chosen."""

import json

import numpy as np
import pytest
import torch

from holdfast.bridges import BRIDGES, Bridge, measure_scale
from holdfast.errors import HoldfastError
from holdfast.geometry import nearest, unit

FAST = {
    "rotation": {},
    "affine": {"ridge": 0.1},
    "lambda_orthogonal": {"steps": 5},
    "residual_mlp": {"steps": 20, "hidden": 16},
    "local": {},
}


def drawn(count: int, dim: int, seed: int, classes: int = 20) -> torch.Tensor:
    """Unit vectors in clusters, as embeddings have them."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((classes, dim))
    rows = centres[rng.integers(classes, size=count)] + 0.7 * rng.standard_normal((count, dim))
    return unit(torch.from_numpy(rows).float())


def turned(items: torch.Tensor, dim: int, noise: float = 0.0, seed: int = 1) -> torch.Tensor:
    """The same items in another space of ``dim`` numbers."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((max(dim, items.shape[1]),) * 2))[0][: items.shape[1], :dim]
    rows = items.numpy() @ turn
    return unit(torch.from_numpy(rows + noise * rng.standard_normal(rows.shape) / dim**0.5).float())


@pytest.mark.parametrize("kind", BRIDGES)
@pytest.mark.parametrize(("new_dim", "old_dim"), [(24, 24), (16, 40), (40, 16)])
def test_every_kind_finds_items_again(kind, new_dim, old_dim, tmp_path):
    base = drawn(400, 16, 0)
    new, old = turned(base, new_dim, 0.1, 1), turned(base, old_dim, 0.1, 2)
    bridge = Bridge.fit(new[:300], old[:300], kind=kind, options=FAST[kind])
    queries = bridge(new[300:])
    assert queries.shape == (100, old_dim)
    assert queries.dtype == torch.float32
    assert torch.allclose(queries.norm(dim=1), torch.ones(100), atol=1e-5)
    one = bridge.one(torch.nn.functional.normalize(new[300:301], dim=1)[0].numpy())
    assert torch.allclose(torch.from_numpy(one), queries[0], atol=1e-6)
    found = nearest(queries, old[300:], 1).indices[:, 0]
    assert float((found == torch.arange(100)).float().mean()) > 0.8
    assert torch.equal(bridge(torch.zeros(1, new_dim)), torch.zeros(1, old_dim))
    bridge.save(tmp_path / "bridge")
    again = Bridge.load(tmp_path / "bridge")
    assert torch.equal(again(new[300:]), queries)
    assert again.as_json() == bridge.as_json()
    assert again.scale == bridge.scale
    json.dumps(bridge.as_json(), allow_nan=False)


def test_a_rotation_is_found_exactly():
    old = drawn(300, 32, 0)
    new = turned(old, 32)
    bridge = Bridge.fit(new, old, kind="rotation")
    assert torch.allclose(bridge(new), old, atol=1e-4)
    weight = bridge.map.weight
    assert torch.allclose(weight @ weight.T, torch.eye(32), atol=1e-5)
    centred = Bridge.fit(new, old, kind="rotation", options={"centred": True})
    assert torch.allclose(centred(new), old, atol=1e-4)


def test_directions_that_pairs_do_not_span_are_dropped():
    """Ten pairs span ten directions; a query outside them has no place in the old space."""
    old = drawn(10, 32, 0)
    bridge = Bridge.fit(turned(old, 32), old, kind="rotation")
    assert np.linalg.matrix_rank(bridge.map.weight.numpy(), tol=1e-3) <= 10


def test_none_wins_in_one_space_and_loses_between_two():
    items = drawn(600, 32, 0)
    near = unit(items + 0.05 * torch.randn(items.shape) / 32**0.5)
    same = Bridge.fit(near, items)
    assert same.kind == "none"
    assert same.helps
    assert torch.allclose(same(near), near)
    wide = drawn(600, 128, 0)
    other = Bridge.fit(turned(wide, 128, 0.1), wide)
    assert other.kind == "rotation"
    assert other.helps
    values = {one.kind: one.value for one in other.evidence.candidates}
    assert values["rotation"] > values["none"] + 0.3
    counts = [count for count, _ in other.evidence.curve]
    assert counts == [50, 100, 200, 420]
    assert other.evidence.curve[-1][1] > other.evidence.curve[0][1]


@pytest.mark.parametrize(
    ("new_dim", "old_dim", "count"), [(32, 32, 600), (32, 32, 20), (64, 1280, 300), (1280, 64, 300)]
)
def test_unrelated_spaces_are_not_bridged(new_dim, old_dim, count):
    bridge = Bridge.fit(drawn(count, new_dim, 0, classes=count), drawn(count, old_dim, 9, classes=count))
    assert not bridge.helps


def test_few_pairs_duplicates_and_a_single_class_do_not_break():
    items = drawn(20, 32, 0)
    few = Bridge.fit(turned(items, 32), items)
    assert few.evidence.measure == "reciprocal rank"
    twice = torch.cat([items, items])
    Bridge.fit(turned(twice, 32), twice)
    one_class = drawn(200, 32, 0, classes=1)
    assert Bridge.fit(turned(one_class, 32, 0.1), one_class).kind == "rotation"
    constant = torch.ones(40, 8)
    assert not Bridge.fit(constant, constant).helps or Bridge.fit(constant, constant).kind == "none"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda new, old: (new[:-1], old), "new has 29 rows and old 30"),
        (lambda new, old: (new[:5], old[:5]), "5 pairs are too few"),
        (lambda new, old: (new * torch.tensor([float("nan")] + [1.0] * 7), old), "new: 30 of 30 rows hold NaN"),
        (lambda new, old: (new, old * (torch.arange(30) > 1)[:, None]), "old: 2 of 30 rows are zero"),
        (lambda new, old: (new[0], old), "new has shape"),
    ],
)
def test_bad_pairs_are_refused(change, message):
    new, old = change(drawn(30, 8, 0), drawn(30, 8, 1))
    with pytest.raises(HoldfastError, match=message):
        Bridge.fit(new, old)


def test_bad_calls_and_folders_are_refused(tmp_path):
    new, old = drawn(60, 8, 0), drawn(60, 12, 1)
    with pytest.raises(HoldfastError, match="unknown kind of bridge 'magic'; known: affine, auto"):
        Bridge.fit(new, old, kind="magic")
    with pytest.raises(HoldfastError, match="different sizes"):
        Bridge.fit(new, old, kind="none")
    with pytest.raises(HoldfastError, match="belong to one kind"):
        Bridge.fit(new, old, options={"ridge": 1.0})
    bridge = Bridge.fit(new, old, kind="rotation")
    with pytest.raises(HoldfastError, match="takes Q x 8"):
        bridge(old)
    bridge.save(tmp_path / "b")
    record = json.loads((tmp_path / "b" / "bridge.json").read_text())
    (tmp_path / "b" / "bridge.json").write_text(json.dumps({**record, "dims": [9, 12]}))
    with pytest.raises(HoldfastError, match="not a bridge, or a damaged one"):
        Bridge.load(tmp_path / "b")
    with pytest.raises(HoldfastError, match="no such file"):
        Bridge.load(tmp_path / "nothing")


def test_scores_are_standardised_over_the_best_of_each_query():
    new, old = drawn(200, 32, 0), drawn(200, 24, 1)
    bridged = unit(old + 0.5 * torch.randn(old.shape) / 24**0.5)
    scale = measure_scale(bridged, old, new)

    def best(queries, items):
        rows = (queries @ items.T).numpy()
        return np.array([sorted(np.delete(row, i))[-5:] for i, row in enumerate(rows)])

    merged, wanted = scale(torch.from_numpy(best(bridged, old))), best(new, new)
    assert float(merged.mean()) == pytest.approx(wanted.mean(), abs=1e-5)
    assert float(merged.std()) == pytest.approx(wanted.std(ddof=1), abs=1e-5)
    assert scale.cosine(scale.score(0.4)) == pytest.approx(0.4)
    assert float(scale(torch.tensor(0.4))) == pytest.approx(scale.score(0.4))
    few = measure_scale(bridged[:50], old[:50], new[:50])
    full = few.deviation_new / few.deviation_old
    assert few.slope == pytest.approx(0.5 * full + 0.5)  # half way to the raw score
    assert measure_scale(bridged[:50], old[:50], new[:50], pairs=100).slope == pytest.approx(full)
    part = measure_scale(bridged[:80], old, new)  # fewer queries than items
    assert (part.pairs, part.slope != scale.slope) == (200, True)
    assert measure_scale(bridged[:1], old[:1], new[:1]).is_raw
    flat = torch.ones(5, 4) / 2
    assert measure_scale(flat, flat, flat).is_raw


def test_old_items_are_shown_fairly():
    """Scores of the new space have a long tail: mean and deviation of all scores would hide the old items."""
    base = drawn(1500, 24, 0, classes=200)
    new = unit(base.sign() * base.abs() ** 4)
    bridge = Bridge.fit(new, turned(base, 24), kind="rotation")
    assert bridge.evidence.chosen.scaled
    for ratio in bridge.evidence.chosen.exposure.values():
        assert 0.8 <= ratio <= 1.25
    same = Bridge.fit(base, base)
    assert same.kind == "none"
    assert same.scale.is_raw


@pytest.mark.parametrize("items", [300, 600, 1200])
def test_fitted_pairs_in_the_gallery_do_not_make_unrelated_spaces_look_related(items):
    """A map memorises its pairs and finds them above chance; that says nothing about other items."""
    rng = np.random.default_rng(0)
    bridge = Bridge.fit(rng.standard_normal((300, 16)), drawn(300, 16, 1, classes=10), items=items)
    best = bridge.evidence.chosen
    assert best.value - 3 * best.error > bridge.evidence.chance or items > 600
    assert not bridge.helps

"""A map of stored vectors into a new model's space."""

import json

import numpy as np
import pytest

from holdfast.bridges import IndexMap
from holdfast.bridges.maps import ridge_by_leave_one_out
from holdfast.core.errors import HoldfastError
from holdfast.vectors import nearest
from holdfast.vectors.lengths import unit


def things(count: int, new_dim: int = 24, old_dim: int = 16, noise: float = 0.3, seed: int = 0):
    """The same things by a good new model and by an old one that sees less."""
    rng, draw = np.random.default_rng(0), np.random.default_rng(seed)
    turns = rng.standard_normal((12, new_dim)), rng.standard_normal((12, old_dim))
    seen = draw.standard_normal((count, 12))
    new = seen @ turns[0] + 0.1 * draw.standard_normal((count, new_dim))
    old = np.tanh(seen @ turns[1] / 3) + noise * draw.standard_normal((count, old_dim))
    return unit(new), unit(old)


@pytest.mark.parametrize(("count", "dim"), [(60, 8), (12, 20)])
def test_leave_one_out_is_that_of_so_many_fits(count, dim):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, dim)).astype(np.float32)
    y = (x @ rng.standard_normal((dim, 5)) + rng.standard_normal((count, 5))).astype(np.float32)
    fitted, strength, predicted = ridge_by_leave_one_out(x, y)
    penalty = strength * np.square(x - x.mean(0)).sum() / dim
    for row in range(count):
        others = np.arange(count) != row
        inputs, outputs = x[others].astype(np.float64), y[others].astype(np.float64)
        mean_x, mean_y = inputs.mean(0), outputs.mean(0)
        centred = inputs - mean_x
        weight = np.linalg.solve(centred.T @ centred + penalty * np.eye(dim), centred.T @ (outputs - mean_y))
        assert np.allclose(predicted[row], mean_y + (x[row] - mean_x) @ weight, atol=1e-4)
    assert fitted.weight.shape == (dim, 5)


def test_noise_asks_for_more_ridge():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((100, 30)).astype(np.float32)
    clean, noise = x @ rng.standard_normal((30, 4)), rng.standard_normal((100, 4))
    strengths = [ridge_by_leave_one_out(x, (clean + share * noise).astype(np.float32))[1] for share in (0.01, 5, 50)]
    assert strengths == sorted(strengths)
    assert strengths[0] < strengths[-1]


def test_a_converted_copy_is_searched_by_new_queries(tmp_path):
    new, old = things(1200)
    index_map = IndexMap.fit(new=new[:500], old=old[:500], models={"new": "b", "old": "a"})
    unseen, wanted = old[500:], nearest(new[500:], new[500:], 10).indices
    hits = nearest(new[500:], index_map.transform(unseen), 10).indices
    overlap = np.mean([len(set(row) & set(right)) / 10 for row, right in zip(hits.tolist(), wanted.tolist())])
    assert overlap > 0.3
    assert abs(overlap - index_map.evidence.chosen.value) < 0.15  # of other things, among as many
    assert np.allclose(np.linalg.norm(index_map(unseen), axis=1), 1, atol=1e-5)
    assert np.array_equal(index_map(np.zeros((1, 16))), np.zeros((1, 24)))
    assert "not judged: its overlap@10 (leave-one-out) is " in repr(index_map)
    index_map.save(tmp_path / "map")
    again = IndexMap.load(tmp_path / "map")
    assert np.array_equal(again(unseen), index_map(unseen))
    assert again.as_json() == index_map.as_json()
    assert again.as_json()["derived"] is True
    assert json.loads((tmp_path / "map" / "index_map.json").read_text())["side"] == "index"


def test_agreement_is_that_of_things_it_was_not_fitted_on():
    """Unrelated spaces agree by chance, although the map reproduces the pairs it was fitted on."""
    rng = np.random.default_rng(0)
    index_map = IndexMap.fit(new=rng.standard_normal((300, 24)), old=rng.standard_normal((300, 200)))
    assert index_map.evidence.chosen.value < 0.08


def test_scores_are_on_the_new_scale():
    new, old = things(900, noise=0.6)
    index_map = IndexMap.fit(new=new[:600], old=old[:600])
    best_new = nearest(new[600:], new[:600], 5).scores
    best = nearest(new[600:], index_map(old[:600]), 5).scores
    assert abs(index_map.scale(best).mean() - best_new.mean()) < 0.05


def test_near_pairs_are_used_where_they_help():
    """Things in tight groups that the old model places anew: a linear map cannot follow, near pairs can."""
    rng = np.random.default_rng(0)
    group = np.arange(800) % 80
    new, old = (rng.standard_normal((80, 24))[group] + 0.2 * rng.standard_normal((800, 24)) for _ in range(2))
    grouped = IndexMap.fit(new=new, old=old)
    assert grouped.near is not None
    assert grouped.evidence.chosen.value > 0.1
    assert IndexMap.fit(new=new[:12], old=old[:12]).near is None  # too few to measure


def test_refusals(tmp_path):
    new, old = things(60)
    with pytest.raises(HoldfastError, match="new has 59 rows and old 60"):
        IndexMap.fit(new=new[1:], old=old)
    index_map = IndexMap.fit(new=new, old=old)
    with pytest.raises(HoldfastError, match="this map takes N x 16"):
        index_map(new)
    with pytest.raises(HoldfastError, match="1 of 2 stored vectors hold NaN"):
        index_map(np.where(np.arange(32).reshape(2, 16) == 3, np.nan, 1.0))
    with pytest.raises(HoldfastError, match="no map of an index here"):
        IndexMap.load(tmp_path)
    index_map.save(tmp_path / "map")
    record = json.loads((tmp_path / "map" / "index_map.json").read_text())
    scale, evidence = ({**record[part], name: -1} for part, name in (("scale", "slope"), ("evidence", "pairs")))
    for change in ({"dims": [16, 23]}, {"evidence": evidence}, {"models": []}, {"scale": scale}):
        (tmp_path / "map" / "index_map.json").write_text(json.dumps({**record, **change}))
        with pytest.raises(HoldfastError, match="not a map of an index, or a damaged one"):
            IndexMap.load(tmp_path / "map")

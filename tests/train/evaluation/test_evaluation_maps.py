"""Galleries mapped by the maps of later models."""

import weakref

import numpy as np
import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.train.encoders import ModelFeatures, read_space_maps
from holdfast.train.evaluation import compatibility_matrix
from holdfast.train.space_map import SpaceMap
from papers.bridged_runs.mixed_gallery import mixed_gallery

LABELS = np.arange(40) % 4


def linear_map(matrix: np.ndarray) -> SpaceMap:
    """A SpaceMap that is exactly z -> matrix z: relu(x) - relu(-x) is x."""
    out, dim = matrix.shape
    exact = SpaceMap(dim, out, 2 * dim)
    with torch.no_grad():
        exact.enter.weight.copy_(torch.cat([torch.eye(dim), -torch.eye(dim)]))
        exact.enter.bias.zero_()
        weights = torch.from_numpy(matrix).float()
        exact.leave.weight.copy_(torch.cat([weights, -weights], 1))
        exact.leave.bias.zero_()
    return exact


def rotation(dim: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, dim)))[0]


def clustered(seed: int = 0, dim: int = 6) -> np.ndarray:
    rng = np.random.default_rng(seed)
    z = np.eye(dim)[LABELS] + 0.1 * rng.standard_normal((len(LABELS), dim))
    return (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)


def turned(features: np.ndarray, *turns: np.ndarray) -> np.ndarray:
    for turn in turns:
        features = features @ turn.T
    return features.astype(np.float32)


@pytest.mark.parametrize("protocol", ["template", "instance"])
def test_composition_undoes_what_the_models_did(protocol):
    """Each model turns the space; only the composed maps make an old gallery readable by a much newer model."""
    first, second = rotation(6, 1), rotation(6, 2)
    turns = [(), (first,), (first, second)]
    models = [ModelFeatures(turned(clustered(1), *t), turned(clustered(2), *t)) for t in turns]
    maps = [None, linear_map(first), linear_map(second)]
    lost = compatibility_matrix(models, LABELS, LABELS, protocol=protocol)
    found = compatibility_matrix(models, LABELS, LABELS, protocol=protocol, maps=maps)
    assert lost[1, 0] < 0.6
    assert np.allclose(found[np.tril_indices(3)], 1.0)
    assert np.array_equal(np.diagonal(found), np.diagonal(lost))


def test_images_are_carried_before_they_are_averaged():
    """A map that bends: the mean of mapped features is not the mapped mean."""
    torch.manual_seed(0)
    bend = SpaceMap(6, 6, 32)
    models = [ModelFeatures(clustered(1), clustered(2)), ModelFeatures(clustered(3), clustered(4))]
    found = compatibility_matrix(models, LABELS, LABELS, maps=[None, bend])[1, 0]
    carried = torch.nn.functional.normalize(bend(torch.from_numpy(models[0].gallery)), dim=1).detach().numpy()
    assert found == compatibility_matrix([(models[1].query, carried)], LABELS, LABELS)[0, 0]


def test_a_map_bridges_two_sizes_and_none_leaves_nan():
    wide = np.vstack([np.eye(6), np.zeros((2, 6))])
    models = [
        ModelFeatures(clustered(1), clustered(2)),
        ModelFeatures(turned(clustered(3), wide), turned(clustered(4), wide)),
    ]
    assert np.isnan(compatibility_matrix(models, LABELS, LABELS)[1, 0])
    assert compatibility_matrix(models, LABELS, LABELS, maps=[None, linear_map(wide)])[1, 0] == 1.0


def test_maps_are_read_from_the_run_folder(tmp_path):
    folder = RunFolder(tmp_path)
    linear_map(np.eye(3)).save(folder.space_map(2))
    maps = read_space_maps(folder, 3)
    assert [m is None for m in maps] == [True, False, True]
    z = torch.nn.functional.normalize(torch.randn(5, 3), dim=1)
    assert maps[1] is not None
    assert torch.allclose(maps[1](z), z, atol=1e-6)
    assert [m is None for m in maps[1:]] == [False, True]


def test_maps_in_files_are_held_one_at_a_time(tmp_path, monkeypatch):
    folder, count = RunFolder(tmp_path), 6
    held = [None, *(linear_map(rotation(6, seed)) for seed in range(1, count))]
    for number, one in enumerate(held, start=1):
        if one is not None:
            one.save(folder.space_map(number))
    models = [ModelFeatures(clustered(seed), clustered(seed + 20)) for seed in range(count)]
    load, alive, most = SpaceMap.load, weakref.WeakSet(), []

    def counted_load(path):
        most.append(len(alive))
        loaded = load(path)
        alive.add(loaded)
        return loaded

    monkeypatch.setattr(SpaceMap, "load", counted_load)
    maps = read_space_maps(folder, count)
    assert not most
    for judge in (compatibility_matrix, mixed_gallery):
        np.testing.assert_equal(judge(models, LABELS, LABELS, maps=maps), judge(models, LABELS, LABELS, maps=held))
    assert len(most) == 2 * (count - 1)
    assert max(most) == 1  # the one at hand while the next is read
    assert not alive


def test_a_broken_chain_stays_broken():
    """Sizes 6, 8, 6: the first gallery cannot reach the second space, so it must not be read in the third."""
    models = [ModelFeatures(clustered(s, d), clustered(s + 5, d)) for s, d in enumerate((6, 8, 6))]
    found = compatibility_matrix(models, LABELS, LABELS, maps=[None, None, linear_map(np.eye(6, 8))])
    assert np.isnan(found[1, 0])
    assert np.isnan(found[2, 0])
    assert np.isfinite(found[2, 1])


def test_identity_maps_change_nothing():
    models = [ModelFeatures(clustered(s), clustered(s + 9)) for s in range(3)]
    plain = compatibility_matrix(models, LABELS, LABELS)
    mapped = compatibility_matrix(models, LABELS, LABELS, maps=[None, linear_map(np.eye(6)), None])
    assert np.array_equal(plain, mapped, equal_nan=True)


def test_a_map_that_does_not_fit_leaves_nan():
    models = [ModelFeatures(clustered(1), clustered(2)), ModelFeatures(clustered(3, 8), clustered(4, 8))]
    found = compatibility_matrix(models, LABELS, LABELS, maps=[None, linear_map(np.eye(8))])
    assert np.isnan(found[1, 0])
    assert np.isfinite(found[1, 1])


def test_one_map_for_each_model():
    models = [ModelFeatures(clustered(1), clustered(2))] * 2
    with pytest.raises(HoldfastError, match="1 maps for 2 models"):
        compatibility_matrix(models, LABELS, LABELS, maps=[None])


def test_a_map_may_be_any_function():
    turn = rotation(6, seed=1).astype(np.float32)
    old = clustered()
    models = [ModelFeatures(old, old), ModelFeatures(old @ turn.T, old @ turn.T)]
    maps = [None, linear_map(turn)]
    functions = [None, lambda z: 3 * z @ torch.from_numpy(turn).T]
    for measured in (compatibility_matrix, mixed_gallery):
        wanted, found = (measured(models, LABELS, LABELS, maps=given) for given in (maps, functions))
        if measured is compatibility_matrix:
            np.testing.assert_allclose(found, wanted)
        else:
            assert found["accuracy"] == wanted["accuracy"]

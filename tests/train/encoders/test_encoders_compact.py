"""Compact features against full ones: cosines, rankings, whole matrices."""

import numpy as np
import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.data import canonical
from holdfast.train.encoders import (
    Encoder,
    FeatureStore,
    ModelFeatures,
    Preprocess,
    build_backbone,
    change_basis,
    compact_basis,
    extract,
    to_compact,
)
from holdfast.train.engine.model_slots import grown_encoder
from holdfast.train.evaluation import compatibility_matrix
from holdfast.train.scenarios import SlotRegistry
from holdfast.train.space_map import SpaceMap
from holdfast.vectors import nearest

SLOTS = 200


def encoder(width, slots=SLOTS, seed=0):
    torch.manual_seed(seed)
    preprocess = Preprocess(size=16, mean=(0.2,), std=(0.3,), colour="grey")
    return Encoder(build_backbone("small", width=width), slots - 1, preprocess=preprocess).eval()


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    return canonical(
        rng.integers(0, 256, (60, 16, 16, 1), dtype=np.uint8), np.arange(60) % 5, list("abcde"), source="random"
    )


@pytest.fixture(scope="module")
def models(images):
    """Two architectures, with full and with compact features of the same images."""
    made = [encoder(8, seed=1), encoder(12, seed=2)]
    bases = [compact_basis(one) for one in made]
    full = [torch.from_numpy(extract(one, images)) for one in made]
    small = [torch.from_numpy(extract(one, images, basis=basis)) for one, basis in zip(made, bases)]
    return full, small, bases


@pytest.mark.parametrize(("query", "gallery"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_cosines_and_ranking_across_models(models, query, gallery):
    full, small, bases = models
    expected = full[query] @ full[gallery].T
    carried = change_basis(small[query], bases[query], bases[gallery])
    torch.testing.assert_close(carried @ small[gallery].T, expected, atol=1e-5, rtol=0)
    found = torch.from_numpy(nearest(carried, small[gallery], 10).indices)
    best = torch.from_numpy(nearest(full[query], full[gallery], 10).scores)
    assert (expected.gather(1, found) - best).abs().max() <= 1e-5  # the same up to swaps between equal scores


def test_sizes(models):
    full, small, bases = models
    assert [z.shape[1] for z in full] == [199, 199]
    assert [u.shape[1] for u in small] == [32, 48]
    for u, basis in zip(small, bases):
        torch.testing.assert_close(u.norm(dim=1), torch.ones(len(u)), atol=1e-5, rtol=0)
        torch.testing.assert_close(basis.T @ basis, torch.eye(basis.shape[1]), atol=1e-6, rtol=0)


def test_small_simplexes_are_stored_as_they_are(images):
    assert compact_basis(encoder(8, slots=33)) is None  # 32 features of a backbone of 32: no projection
    narrow = encoder(8, slots=20)
    assert compact_basis(narrow) is None
    wide = encoder(4, slots=20, seed=3)  # 16 numbers of the backbone for 19 of the simplex
    basis = compact_basis(wide)
    full = torch.from_numpy(extract(narrow, images))
    small = torch.from_numpy(extract(wide, images, basis=basis))
    expected = full @ torch.from_numpy(extract(wide, images)).T
    torch.testing.assert_close(change_basis(full, None, basis) @ small.T, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(change_basis(small, basis, None) @ full.T, expected.T, atol=1e-5, rtol=0)


def test_a_grown_model_keeps_its_compact_vectors(images, tmp_path):
    before = encoder(8, seed=1)
    before.info = {"slots": SlotRegistry(SLOTS).to_json()}
    after = grown_encoder(before, tmp_path, 300)
    stored, again = (torch.from_numpy(extract(one, images, basis=compact_basis(one))) for one in (before, after))
    torch.testing.assert_close(stored, again, atol=1e-5, rtol=0)
    assert compact_basis(after).shape == (299, 32)


@pytest.mark.parametrize("protocol", ["template", "instance"])
@pytest.mark.parametrize("score", ["top1", "recall@3", "top5", "mAP", "auc", "tar@far=0.01"])
def test_the_matrix_is_the_same(models, images, protocol, score):
    full, small, bases = models
    plain = [ModelFeatures(z[:40].numpy(), z[40:].numpy()) for z in full]
    compact = [ModelFeatures(u[:40].numpy(), u[40:].numpy(), basis.numpy()) for u, basis in zip(small, bases)]
    for mixture in (compact, [plain[0], compact[1]], [compact[0], plain[1]]):
        found, expected = (
            compatibility_matrix(one, images.labels[:40], images.labels[40:], protocol=protocol, score=score)
            for one in (mixture, plain)
        )
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_zero_feature_stays_zero(models):
    _, _, (basis, _) = models
    assert to_compact(torch.zeros(2, 199), basis).abs().max() == 0


def test_sizes_of_simplexes_still_decide_what_can_be_compared(models, images):
    """Two models whose stored vectors have one size, but whose simplexes do not."""
    _, small, bases = models
    other = encoder(8, slots=150, seed=4)
    basis = compact_basis(other)
    u = extract(other, images, basis=basis)
    first = ModelFeatures(small[0][:40].numpy(), small[0][40:].numpy(), bases[0].numpy())
    second = ModelFeatures(u[:40], u[40:], basis.numpy())
    matrix = compatibility_matrix([first, second], images.labels[:40], images.labels[40:])
    assert np.isnan(matrix[1, 0])
    with pytest.raises(HoldfastError, match="full features, but these are compact"):
        compatibility_matrix([first, first], images.labels[:40], images.labels[40:], maps=[None, SpaceMap(32, 32, 4)])


def test_the_basis_is_stored(models, tmp_path):
    _, small, bases = models
    store = FeatureStore(tmp_path)
    store.write(1, ModelFeatures(small[0][:40].numpy(), small[0][40:].numpy(), bases[0].numpy()))
    found = store.read(1)
    assert found.full_dim == 199
    assert np.array_equal(found.basis, bases[0].numpy())

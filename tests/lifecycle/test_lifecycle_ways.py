"""The matrices behind the three ways, against closed forms and brute force; and how one way is chosen."""

import numpy as np
import pytest
import torch
from torch import Tensor

from holdfast.encoders import Encoder, VectorInput, build_backbone
from holdfast.errors import HoldfastError
from holdfast.evaluation.estimates import Estimate
from holdfast.geometry import DSimplex, unit
from holdfast.lifecycle.adopted_model import mapped_encoder
from holdfast.lifecycle.adoption_result import Later, Way, choose
from holdfast.lifecycle.adoption_trial import (
    aligned_isometry,
    fit_projection,
    means_head,
    procrustes_map,
    ridge_map,
    simplex_head,
)
from holdfast.lifecycle.stored_vectors import split_classes
from holdfast.losses import class_means, simplex_cross_entropy


def scattered(classes: int = 6, each: int = 20, dim: int = 8, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Unit vectors around random centres, and their classes."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(each)
    centres = torch.randn(classes, dim, generator=draw)
    return unit(centres[labels] + 0.5 * torch.randn(len(labels), dim, generator=draw)), labels


def test_the_isometry_keeps_every_cosine_and_no_other_is_nearer_to_the_vertices():
    vectors, labels = scattered()
    simplex = DSimplex(20)
    found = aligned_isometry(vectors, labels, simplex)
    assert found.shape == (19, 8)
    torch.testing.assert_close(found.T @ found, torch.eye(8), atol=1e-5, rtol=0)
    torch.testing.assert_close((vectors @ found.T) @ (vectors @ found.T).T, vectors @ vectors.T, atol=1e-5, rtol=0)
    means, vertices = class_means(vectors, labels, 6), simplex.prototypes(torch.arange(6))

    def nearness(matrix: Tensor) -> float:
        return float(((means @ matrix.T) * vertices).sum())

    draw = torch.Generator().manual_seed(1)
    others = [torch.linalg.qr(found + 0.1 * torch.randn(19, 8, generator=draw))[0] for _ in range(50)]
    others += [torch.linalg.qr(torch.randn(19, 8, generator=draw))[0] for _ in range(50)]
    assert all(nearness(found) > nearness(other) for other in others)


def test_a_small_simplex_gives_orthonormal_rows():
    vectors, labels = scattered(dim=16)
    found = aligned_isometry(vectors, labels, DSimplex(7))
    torch.testing.assert_close(found @ found.T, torch.eye(6), atol=1e-5, rtol=0)


def test_the_pull_holds_the_projection_to_the_isometry():
    vectors, labels = scattered()
    simplex = DSimplex(20)
    start = aligned_isometry(vectors, labels, simplex)
    assert torch.equal(fit_projection(vectors, labels, simplex, pull=float("inf"), seed=0), start)
    near, far = (fit_projection(vectors, labels, simplex, pull=pull, seed=0, steps=100) for pull in (10.0, 0.01))
    assert 0 < float((near - start).norm()) < float((far - start).norm())

    def loss(matrix: Tensor) -> float:
        return float(simplex_cross_entropy(10 * unit(vectors @ matrix.T), labels, simplex))

    assert loss(far) < loss(near) < loss(start)
    assert torch.equal(far, fit_projection(vectors, labels, simplex, pull=0.01, seed=0, steps=100))


def test_ridge_is_the_least_squares_solution():
    draw = np.random.default_rng(0)
    new, old = draw.normal(size=(50, 7)).astype(np.float32), draw.normal(size=(50, 4)).astype(np.float32)
    strength = 0.1 * np.trace(new.T @ new) / 7
    stacked = np.vstack([new, np.sqrt(strength) * np.eye(7)]), np.vstack([old, np.zeros((7, 4))])
    expected = np.linalg.lstsq(*stacked, rcond=None)[0].T
    found = ridge_map(torch.from_numpy(new), torch.from_numpy(old), 0.1)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_procrustes_finds_a_rotation():
    vectors, _ = scattered()
    turned, _ = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(3)))
    torch.testing.assert_close(procrustes_map(vectors @ turned.T, vectors), turned.T, atol=1e-5, rtol=0)


@pytest.mark.parametrize("head", ["means", "simplex"])
def test_heads_lead_new_features_to_the_old_ones(head):
    vectors, labels = scattered()
    turned, _ = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(3)))
    new = vectors @ turned.T
    if head == "means":
        old = vectors
        weight = means_head(new, old, labels, lambda_=0.1, seed=0, steps=50)
    else:
        simplex = DSimplex(12)
        old = unit(vectors @ aligned_isometry(vectors, labels, simplex).T)
        weight = simplex_head(new, old, labels, simplex, lambda_=0.1, seed=0, steps=50)
    assert float((unit(new @ weight.T) * old).sum(1).mean()) > 0.9


def test_a_mapped_model_gives_mapped_features():
    torch.manual_seed(0)
    model = Encoder(build_backbone("mlp", in_channels=6, width=5), 7, preprocess=VectorInput(6)).eval()
    matrix, vectors = torch.randn(4, 7), torch.randn(9, 6)
    expected = unit(model.encode(vectors) @ matrix.T)
    torch.testing.assert_close(mapped_encoder(model, matrix).encode(vectors), expected, atol=1e-5, rtol=0)
    with pytest.raises(HoldfastError, match="takes features of 3 numbers, this model gives 7"):
        mapped_encoder(model, torch.randn(4, 3))
    with pytest.raises(HoldfastError, match="no room for a map"):
        mapped_encoder(model, torch.randn(5, 7))


def test_no_class_is_in_two_parts_and_queries_find_their_class():
    labels = np.repeat(np.arange(21), [1] + [5] * 20)
    split = split_classes(labels, held_out=0.3, seed=0, name="x")
    held, chosen, fitted = (
        set(labels[rows])
        for rows in (split.queries, split.choose_queries, split.fit)
    )  # fmt: skip
    assert len(held) == 6
    assert not held & chosen
    assert not fitted & (held | chosen)
    assert held | chosen | fitted == set(range(21))
    assert held == set(labels[split.gallery])
    parts = (split.fit, split.choose_queries, split.choose_gallery, split.queries, split.gallery)
    assert sorted(np.concatenate(parts)) == list(range(101))


def way(name: str, gain: float | None, low: float = -1.0, stored: float | None = None) -> Way:
    estimate = Estimate(gain or 0.0, low, 1.0)
    verdict = "compatible" if low > 0 else "not shown"
    later = None if gain is None else Later(estimate, estimate, verdict, "")
    return Way(name, {}, stored_gain=None if stored is None else Estimate(stored, stored, stored), later=later)


@pytest.mark.parametrize(
    ("ways", "wanted", "chosen", "good"),
    [
        ([way("projection", None, stored=0.1), way("means", None)], None, "projection", None),
        ([way("projection", None, stored=-0.1), way("means", None)], None, "means", None),
        ([way("projection", None, stored=-0.1), way("means", None)], "projection", "projection", None),
        ([way("projection", 0.1), way("means", 0.2, 0.1), way("map", 0.0)], None, "means", True),
        ([way("projection", 0.1), way("means", 0.0), way("map", -0.1)], None, "projection", False),
        ([way("projection", 0.1), way("means", 0.2, 0.1), way("map", 0.0)], "map", "map", False),
        ([way("projection", 0.3), way("means", 0.2, 0.1), way("map", 0.0)], None, "means", True),
        ([way("projection", 0.1), way("means", 0.1), way("map", 0.1)], None, "means", False),
    ],
)
def test_what_is_offered(ways, wanted, chosen, good):
    name, reason, enough = choose(ways, wanted)
    assert (name, enough) == (chosen, good)
    assert ("none of the ways is good enough" in reason) == (good is False and wanted is None)

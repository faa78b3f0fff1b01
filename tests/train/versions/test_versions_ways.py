"""The matrices behind the ways, against closed forms and brute force; splits; and how one way is chosen."""

import numpy as np
import pytest
import torch
from torch import Tensor

from holdfast.checks.estimates import Estimate
from holdfast.train.geometry import DSimplex, unit
from holdfast.train.losses import class_means, simplex_cross_entropy
from holdfast.train.versions.adoption_result import Later, Way, choose, choose_without_classes
from holdfast.train.versions.adoption_trial import (
    Descent,
    _each_on_one_thread,
    aligned_isometry,
    fit_projection,
    means_head,
    ridge_map,
    simplex_head,
)
from holdfast.train.versions.stored_vectors import split_classes, split_items


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
    fitted = (vectors, labels, simplex, start)
    descent = Descent(0, 100)
    assert torch.equal(fit_projection(*fitted, pull=float("inf"), descent=descent), start)
    near, far = (fit_projection(*fitted, pull=pull, descent=descent) for pull in (10.0, 0.01))
    assert 0 < float((near - start).norm()) < float((far - start).norm())

    def loss(matrix: Tensor) -> float:
        return float(simplex_cross_entropy(10 * unit(vectors @ matrix.T), labels, simplex))

    assert loss(far) < loss(near) < loss(start)
    assert torch.equal(far, fit_projection(*fitted, pull=0.01, descent=descent))


def test_ridge_is_the_least_squares_solution():
    draw = np.random.default_rng(0)
    new, old = draw.normal(size=(50, 7)).astype(np.float32), draw.normal(size=(50, 4)).astype(np.float32)
    strength = 0.01 * np.trace(new.T @ new) / 7
    stacked = np.vstack([new, np.sqrt(strength) * np.eye(7)]), np.vstack([old, np.zeros((7, 4))])
    expected = np.linalg.lstsq(*stacked, rcond=None)[0].T
    found = ridge_map(torch.from_numpy(new), torch.from_numpy(old))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("head", ["means", "simplex"])
def test_heads_lead_new_features_to_the_old_ones(head):
    vectors, labels = scattered()
    turned, _ = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(3)))
    new = vectors @ turned.T
    descent = Descent(0, 50)
    if head == "means":
        old = vectors
        weight = means_head(ridge_map(new, old), new, old, labels, lambda_=0.1, descent=descent)
    else:
        simplex = DSimplex(12)
        old = unit(vectors @ aligned_isometry(vectors, labels, simplex).T)
        start = ridge_map(new, old)
        weight = simplex_head(start, new, old, labels, simplex, lambda_=0.1, descent=descent)
    assert float((unit(new @ weight.T) * old).sum(1).mean()) > 0.9


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


def test_unseen_items_have_their_class_in_the_gallery():
    labels = np.repeat(np.arange(21), [1, 2] + [10] * 19)
    split = split_items(labels, held_out=0.3, seed=0)
    assert split is not None
    assert len(split.queries) == 1 + 19 * 3  # the class of one item cannot be asked for
    assert not set(split.queries) & set(split.gallery)
    assert sorted([*split.queries, *split.gallery]) == list(range(len(labels)))
    assert set(labels[split.queries]) <= set(labels[split.gallery])
    assert set(labels[split.choose_queries]) <= set(labels[split.choose_gallery])
    assert not set(split.choose_queries) & set(split.fit)
    assert split.pairs.tolist() == split.gallery.tolist()  # a bridge is fitted to all that it is not asked for
    assert split_items(np.arange(20), held_out=0.3, seed=0) is None


def way(name: str, gain: float | None, low: float = -1.0, stored: float | None = None) -> Way:
    estimate = Estimate(gain or 0.0, low, 1.0)
    verdict = "compatible" if low > 0 else "not shown"
    later = None if gain is None else Later(estimate, estimate, verdict, "")
    return Way(name, {}, stored_gain=None if stored is None else Estimate(stored, stored, stored), same_classes=later)


@pytest.mark.parametrize(
    ("ways", "wanted", "chosen", "good"),
    [
        ([way("projection", None, stored=0.1), way("means", None)], None, "projection", None),
        ([way("projection", None, stored=-0.1), way("means", None)], None, "means", None),
        ([way("projection", None, stored=-0.1), way("means", None)], "projection", "projection", None),
        ([way("projection", 0.1), way("means", 0.2, 0.1), way("bridge", 0.0)], None, "means", True),
        ([way("projection", 0.1), way("means", 0.0), way("bridge", -0.1)], None, "projection", False),
        ([way("projection", 0.1), way("means", 0.2, 0.1), way("bridge", 0.0)], "bridge", "bridge", False),
        ([way("projection", 0.3), way("means", 0.2, 0.1), way("bridge", 0.0)], None, "means", True),
        ([way("projection", 0.1), way("means", 0.1), way("bridge", 0.1)], None, "means", False),
    ],
)
def test_what_is_offered(ways, wanted, chosen, good):
    name, reason, enough = choose(ways, wanted)
    assert (name, enough) == (chosen, good)
    assert ("none of the ways is good enough" in reason) == (good is False and wanted is None)


def test_unseen_items_decide_and_unseen_classes_only_where_nothing_else_is_known():
    shown, lost = (Later(Estimate(0, 0, 0), Estimate(0, 0, 0), verdict, "") for verdict in ("compatible", "not shown"))
    assert choose([Way("bridge", {}, same_classes=shown, other_classes=lost)], None)[2] is True
    assert choose([Way("bridge", {}, same_classes=lost, other_classes=shown)], None)[2] is False
    assert choose([Way("bridge", {}, other_classes=shown)], None)[2] is True


@pytest.mark.parametrize(
    ("wanted", "helps", "chosen", "good"),
    [
        (None, None, "unchanged", None),
        (None, True, "bridge", None),
        (None, False, "unchanged", False),
        ("bridge", False, "bridge", False),
        ("unchanged", None, "unchanged", None),
    ],
)
def test_what_is_offered_without_classes(wanted, helps, chosen, good):
    name, reason, enough = choose_without_classes(wanted, helps)
    assert (name, enough) == (chosen, good)
    assert ("no bridge helps" in reason) == (helps is False)


def test_fits_are_the_same_on_one_thread_and_on_two():
    vectors, labels = scattered()
    simplex = DSimplex(20)
    start = aligned_isometry(vectors, labels, simplex)

    def fitted(number: int) -> Tensor:
        pull = (1.0, 0.1, 0.01)[number]
        return fit_projection(vectors, labels, simplex, start, pull=pull, descent=Descent(0, 20))

    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(_each_on_one_thread(fitted, 3))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert not torch.equal(found[0][0], found[0][2])

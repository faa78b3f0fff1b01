"""CVS's triplet: loop in float64, points by hand, properties."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_losses_references import batches

from holdfast.train.losses import neighbour_triplet


def loop_unit(row):
    length = math.sqrt(sum(x * x for x in row))
    return [x / length for x in row]


def loop_triplet(z, z_old, labels, margin):
    new, old = [loop_unit(row) for row in z], [loop_unit(row) for row in z_old]
    terms = []
    for i, anchor in enumerate(new):
        others = [math.dist(anchor, old[j]) for j in range(len(old)) if labels[j] != labels[i]]
        if others:
            terms.append(max(0.0, math.dist(anchor, old[i]) - min(others) + margin))
    return sum(terms) / len(terms) if terms else 0.0


@settings(deadline=None)
@given(batches(), st.sampled_from([0.0, 0.1, 1.0]))
def test_against_loops(batch, margin):
    z, z_old, labels = batch
    expected = loop_triplet(z.tolist(), z_old.tolist(), labels.tolist(), margin)
    assert neighbour_triplet(z, z_old, labels, margin=margin).item() == pytest.approx(expected)


AXES = torch.eye(2, dtype=torch.float64)


def test_by_hand():
    # Both anchors sit on the other's old feature: sqrt(2) - 0 + 0.1 each.
    found = neighbour_triplet(AXES, AXES.flip(0), torch.tensor([0, 1]))
    assert found.item() == pytest.approx(math.sqrt(2) + 0.1)
    # Both sit on their own old feature, sqrt(2) from the other: 0 - sqrt(2) + 0.1 is below zero, with margin 2 not.
    assert neighbour_triplet(AXES, AXES, torch.tensor([0, 1])).item() == 0
    assert neighbour_triplet(AXES, AXES, torch.tensor([0, 1]), margin=2.0).item() == pytest.approx(2 - math.sqrt(2))


def test_the_nearest_negative_is_the_one_that_counts():
    # Anchor (1, 0), its own old feature the same; the others are at 60 degrees (distance 1) and 180 degrees.
    z = torch.tensor([[1.0, 0.0], [0.5, math.sqrt(0.75)], [-1.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([0, 1, 1])
    # Image 0: 0 - 1 + 1.5 = 0.5; image 1 the same; image 2: its only negative is at distance 2, 0 - 2 + 1.5 < 0.
    assert neighbour_triplet(z, z, labels, margin=1.5).item() == pytest.approx((0.5 + 0.5 + 0) / 3)


@pytest.mark.parametrize("size", [0, 1, 4])
def test_without_a_negative_it_is_zero_with_a_finite_gradient(size):
    z = torch.randn(size, 3, requires_grad=True)
    value = neighbour_triplet(z, torch.randn(size, 3), torch.full((size,), 2))
    value.backward()
    assert value.item() == 0
    assert torch.equal(z.grad, torch.zeros_like(z))


def test_images_of_the_same_class_are_no_negatives():
    """The old feature of a class mate may lie anywhere."""
    z, z_old, labels = torch.randn(3, 4), torch.randn(3, 4), torch.tensor([0, 0, 1])
    z_old[1] = z[0]
    before = neighbour_triplet(z[[0, 2]], z_old[[0, 2]], labels[[0, 2]], margin=5.0)
    only_two = 3 * neighbour_triplet(z, z_old, labels, margin=5.0)
    distance = (torch.nn.functional.normalize(z, dim=1) - torch.nn.functional.normalize(z_old, dim=1)).norm(dim=1)
    negative = (torch.nn.functional.normalize(z[1], dim=0) - torch.nn.functional.normalize(z_old[2], dim=0)).norm()
    # Image 2 has now a second candidate, the mate's old feature; images 0 and 1 keep image 2 as their only negative.
    nearest = (torch.nn.functional.normalize(z[2], dim=0) - torch.nn.functional.normalize(z_old[:2], dim=1)).norm(dim=1)
    gained = nearest[0] - nearest.min()
    expected = 2 * before + gained + distance[1] - negative + 5
    assert only_two.item() == pytest.approx(expected.item(), rel=1e-5)


def test_gradient_through_new_features_only_and_no_scale():
    z, z_old = torch.randn(6, 4, requires_grad=True), torch.randn(6, 4, requires_grad=True)
    labels = torch.arange(6) % 3
    value = neighbour_triplet(z, z_old, labels, margin=1.0)
    value.backward()
    assert z_old.grad is None
    assert z.grad.norm() > 0
    assert neighbour_triplet(8 * z, 0.3 * z_old, labels, margin=1.0).item() == pytest.approx(value.item(), rel=1e-5)


def test_features_that_have_not_moved_give_a_finite_gradient():
    z = torch.randn(4, 3, requires_grad=True)
    neighbour_triplet(z, z.detach(), torch.tensor([0, 1, 0, 1]), margin=2.0).backward()
    assert z.grad.isfinite().all()

"""Logits that are cosines: loops in float64, points by hand, properties."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_losses_references import batches, loop_cosine

from holdfast.train.losses import cosine_logits, margin_cosine_logits


def loop_margin(cosine, margin):
    """cos(theta + m) up to theta = pi - m, ArcFace's straight line beyond. The sine of theta is at least 3e-4."""
    if margin == 0:
        return cosine
    sine = max(math.sin(math.acos(max(-1.0, min(1.0, cosine)))), math.sqrt(1e-7))
    inside = cosine > -math.cos(margin)
    return cosine * math.cos(margin) - sine * math.sin(margin) if inside else cosine - margin * math.sin(margin)


@settings(deadline=None, max_examples=50)
@given(batches(), st.sampled_from([1.0, 16.0, 20.0]), st.sampled_from([0.0, 0.1, 0.5]))
def test_against_loops(batch, scale, margin):
    z, rows, labels = batch
    rows = torch.cat([rows, rows.flip(0)])[: int(labels.max()) + 2]
    cosines = [[loop_cosine(a, b) for b in rows.tolist()] for a in z.tolist()]
    expected = [
        [scale * (loop_margin(c, margin) if j == y else c) for j, c in enumerate(line)]
        for line, y in zip(cosines, labels.tolist())
    ]
    plain = torch.tensor(cosines, dtype=torch.float64) * scale
    torch.testing.assert_close(cosine_logits(z, rows, scale=scale), plain)
    found = margin_cosine_logits(z, rows, labels, scale=scale, margin=margin)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_by_hand():
    # z points along (1, 1): 45 degrees from (1, 0), 45 from (0, 1), 135 from (-1, 0).
    z, rows = torch.tensor([[5.0, 5.0]]), torch.tensor([[2.0, 0.0], [0.0, 0.1], [-3.0, 0.0]])
    half = math.sqrt(0.5)
    assert cosine_logits(z, rows, scale=20.0).tolist()[0] == pytest.approx([20 * half, 20 * half, -20 * half])
    # A margin of 45 degrees puts the true class at 90 degrees, cosine 0.
    found = margin_cosine_logits(z, rows, torch.tensor([1]), scale=20.0, margin=math.pi / 4)
    assert found.tolist()[0] == pytest.approx([20 * half, 0, -20 * half], abs=1e-5)


def test_margin_zero_is_the_plain_cosine():
    z, rows, labels = torch.randn(6, 4), torch.randn(3, 4), torch.arange(6) % 3
    found = margin_cosine_logits(z, rows, labels, scale=16.0, margin=0.0)
    assert torch.equal(found, cosine_logits(z, rows, scale=16.0))


@settings(deadline=None, max_examples=30)
@given(batches(), st.sampled_from([0.01, 0.1, 0.5]))
def test_a_margin_lowers_the_true_logit_and_no_other(batch, margin):
    """As far as the angle with the margin stays below a half turn: opposite to its row a feature has nowhere to go."""
    z, _, labels = batch
    rows = torch.eye(z.shape[1], dtype=torch.float64)
    plain = cosine_logits(z, rows, scale=16.0)
    harder = margin_cosine_logits(z, rows, labels, scale=16.0, margin=margin)
    true = torch.nn.functional.one_hot(labels, len(rows)).bool()
    assert torch.equal(harder[~true], plain[~true])
    room = (plain / 16).acos() < math.pi - margin
    assert (harder < plain)[true & room].all()


def test_lengths_do_not_matter():
    z, rows, labels = torch.randn(6, 4), torch.randn(3, 4), torch.arange(6) % 3
    found = margin_cosine_logits(9 * z, 0.1 * rows, labels, scale=16.0, margin=0.2)
    torch.testing.assert_close(found, margin_cosine_logits(z, rows, labels, scale=16.0, margin=0.2))


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_a_feature_on_its_row_or_opposite_has_a_finite_gradient(side):
    rows = torch.eye(3)
    z = (side * rows).requires_grad_()
    margin_cosine_logits(z, rows, torch.arange(3), scale=16.0, margin=0.1).sum().backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()

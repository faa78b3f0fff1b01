"""Anchors, the view contrast's gradient and the squared distillation against loops and hand-worked points."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_losses_references import loop_cosine

from holdfast.train.losses import (
    anchor_contrast,
    anchor_distillation,
    earliest_anchors,
    info_nce,
    known_anchors,
    squared_distillation,
)


@st.composite
def anchored(draw):
    """z (N x d), kept (R x M x d, unit or zero; once known, known ever after), labels."""
    replayed, more, dim, models = (draw(st.integers(1, 5)) for _ in range(4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    z = torch.randn(replayed + more, dim + 1, generator=generator, dtype=torch.float64)
    kept = torch.randn(replayed, models, dim + 1, generator=generator, dtype=torch.float64)
    kept = torch.nn.functional.normalize(kept, dim=-1)
    since = torch.randint(0, models + 1, (replayed,), generator=generator)
    kept[torch.arange(models) < since[:, None]] = 0
    return z, kept, since, torch.randint(0, 3, (len(z),), generator=generator)


@settings(deadline=None)
@given(anchored())
def test_anchors_against_loops(batch):
    z, kept, since, labels = batch
    known, earliest = known_anchors(kept), earliest_anchors(kept)
    rows = range(len(kept))
    pairs = [(i, m) for i in rows for m in range(kept.shape[1]) if m >= since[i]]
    assert known.nonzero().tolist() == [list(pair) for pair in pairs]
    assert earliest.nonzero().tolist() == [[i, int(since[i])] for i in rows if since[i] < kept.shape[1]]
    distances = [1 - loop_cosine(z[i].tolist(), kept[i, m].tolist()) for i, m in pairs]
    expected = sum(distances) / max(len(pairs), 1)
    assert anchor_distillation(z, kept, known).item() == pytest.approx(expected, abs=1e-12)
    total = 0.0
    for i, m in pairs:
        cosines = [loop_cosine(kept[i, m].tolist(), row) for row in z.tolist()]
        d = sum(1.0 if labels[i] == labels[j] else math.exp(5 * cosines[j]) for j in range(len(z)))
        total += math.log(d) - 5 * cosines[i]
    found = anchor_contrast(z, kept, known, labels, rho=5.0).item()
    assert found == pytest.approx(total / max(len(pairs), 1), abs=1e-12)


def test_one_anchor_for_each_image_is_info_nce():
    z, old = torch.randn(2, 6, 4, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 0, 1, 3])
    kept = torch.nn.functional.normalize(old, dim=1)[:, None]
    found = anchor_contrast(z, kept, known_anchors(kept), labels, rho=5.0)
    torch.testing.assert_close(found, info_nce(z, old, labels, rho=5.0))


@pytest.mark.parametrize("term", [anchor_distillation, lambda *a: anchor_contrast(*a, torch.arange(4), rho=5.0)])
def test_images_without_an_anchor_get_no_pull_and_no_nan(term):
    z = torch.randn(4, 3, requires_grad=True)
    kept = torch.zeros(2, 2, 3)
    term(z, kept, known_anchors(kept)).backward()
    assert torch.equal(z.grad, torch.zeros_like(z))
    kept[1, 1, 0] = 1.0
    z.grad = None
    anchor_distillation(z, kept, known_anchors(kept)).backward()
    assert z.grad[[0, 2, 3]].abs().sum() == 0
    assert z.grad[1].norm() > 0


@pytest.mark.parametrize("term", [anchor_distillation, lambda *a: anchor_contrast(*a, torch.arange(4), rho=5.0)])
def test_the_gradient_goes_through_the_new_features_only(term):
    z, kept = torch.randn(4, 3, requires_grad=True), torch.randn(2, 2, 3, requires_grad=True)
    term(z, kept, known_anchors(kept)).backward()
    assert z.grad.norm() > 0
    assert kept.grad is None


def test_anchors_stay_in_float32_under_autocast():
    z, labels = torch.randn(4, 8).bfloat16(), torch.arange(4)
    kept = torch.nn.functional.normalize(torch.randn(2, 3, 8), dim=-1)
    counts = known_anchors(kept)
    outside = [anchor_distillation(z, kept, counts), anchor_contrast(z, kept, counts, labels, rho=5.0)]
    with torch.autocast("cpu", torch.bfloat16):
        inside = [anchor_distillation(z, kept, counts), anchor_contrast(z, kept, counts, labels, rho=5.0)]
    assert [t.dtype for t in inside] == [torch.float32] * 2
    assert inside == outside


@pytest.mark.parametrize("negatives", ["authors", "paper", "masked"])
def test_the_gradient_through_both_views(negatives):
    """Checked by finite differences; without the keyword the second side gets none and the value is the same."""
    z, view = (torch.randn(5, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    labels = torch.tensor([0, 1, 0, 2, 1])

    def both(a, b):
        return info_nce(a, b, labels, rho=5.0, negatives=negatives, through_both=True)

    assert torch.autograd.gradcheck(both, (z, view))
    one = info_nce(z, view, labels, rho=5.0, negatives=negatives)
    assert torch.equal(one, both(z, view))
    assert torch.autograd.grad(one, view, allow_unused=True)[0] is None
    assert torch.autograd.grad(both(z, view), view)[0].norm() > 0


def test_squared_distillation_by_hand():
    z, z_old = torch.tensor([[1.0, 2.0], [0.0, -1.0]], requires_grad=True), torch.tensor([[0.0, 0.0], [0.0, 2.0]])
    loss = squared_distillation(z, z_old)
    assert loss.item() == pytest.approx((1 + 4 + 0 + 9) / 4)
    loss.backward()
    torch.testing.assert_close(z.grad, (z - z_old).detach() / 2)
    assert squared_distillation(z[:0], z_old[:0]).item() == 0
    assert squared_distillation(z.bfloat16(), z_old).dtype == torch.float32

"""Every loss of old and new classes computes in float32 under autocast and keeps float64."""

import pytest
import torch

from holdfast.train.geometry import unit
from holdfast.train.losses import (
    align_both_ways,
    align_rows,
    boundary_hinge,
    centre_pull,
    class_means,
    cosine_logits,
    discrimination,
    elastic_limit,
    elastic_radii,
    largest_radii,
    least_cosines,
    margin_cosine_logits,
    neighbour_triplet,
    old_class_cross_entropy,
    softened_distillation,
)

Y = torch.arange(16) % 5


def known(z):
    """Unit centres of four classes, of the dtype of z but never half."""
    return unit(z[:4].detach().flip(1))


def margin(z, old):
    return margin_cosine_logits(z, old[:5], Y, scale=16.0, margin=0.1)


def radii(z, old):
    return elastic_radii(known(z).norm(dim=1) / 2, known(z)[:, 0], 1.0)


LOSSES = {
    "class_means": lambda z, old: class_means(z, Y, 5),
    "least_cosines": lambda z, old: least_cosines(z, Y % 4, known(z)),
    "largest_radii": lambda z, old: largest_radii(z, Y % 4, known(z)),
    "cosine_logits": lambda z, old: cosine_logits(z, old[:5], scale=20.0),
    "margin_cosine_logits": margin,
    "old_class_cross_entropy": lambda z, old: old_class_cross_entropy(z, Y),
    "boundary_hinge": lambda z, old: boundary_hinge(z, Y, known(z), known(z)[:, 0].abs()),
    "elastic_limit": lambda z, old: elastic_limit(z, Y, known(z), known(z)[:, 0].abs()),
    "centre_pull": lambda z, old: centre_pull(z, Y, known(z)),
    "align_rows": lambda z, old: align_rows(z[4:8], known(z)),
    "align_both_ways": lambda z, old: align_both_ways(z[4:8], known(z), z[8:12], old[:4]),
    "neighbour_triplet": lambda z, old: neighbour_triplet(z, old, Y, margin=0.5),
    "discrimination": lambda z, old: discrimination(z[:, :2], old[:, :2]),
    "elastic_radii": radii,
    "softened_distillation": lambda z, old: softened_distillation(z, old),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_autocast_changes_nothing(loss):
    z, old = torch.randn(16, 6), torch.randn(16, 6)
    outside = loss(z, old)
    with torch.autocast("cpu", torch.bfloat16):
        inside = loss(z, old)
    assert inside.dtype == outside.dtype == torch.float32
    assert torch.equal(inside, outside)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_half_precision_is_widened_first(loss):
    z, old = torch.randn(16, 6).bfloat16(), torch.randn(16, 6).bfloat16()
    found = loss(z, old)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, loss(z.float(), old.float()))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_double_precision_is_kept(loss):
    z, old = torch.randn(16, 6, dtype=torch.float64), torch.randn(16, 6, dtype=torch.float64)
    found = loss(z, old)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found.float(), loss(z.float(), old.float()), rtol=1e-4, atol=1e-5)

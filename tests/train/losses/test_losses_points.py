"""Points worked out by hand, and properties."""

import math

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.geometry import DSimplex
from holdfast.train.losses import cross_entropy, feature_distillation, hoc_loss, info_nce, simplex_cross_entropy

# Two images, orthogonal features: cos(old_i, new_j) is 1 on the diagonal and 0 off it.
AXES = torch.eye(2, dtype=torch.float64)
OTHER_CLASSES, ONE_CLASS = torch.tensor([0, 1]), torch.tensor([0, 0])


def test_cross_entropy_by_hand():
    # softmax of (log 3, 0) is (3/4, 1/4)
    assert cross_entropy(torch.tensor([[math.log(3.0), 0.0]]), torch.tensor([1])).item() == pytest.approx(math.log(4))


def test_simplex_cross_entropy_by_hand():
    # K = 2: prototypes +1 and -1; z = log(2)/2 gives logits +-log(2)/2 and softmax (2/3, 1/3).
    z = torch.tensor([[math.log(2) / 2]], dtype=torch.float64)
    assert simplex_cross_entropy(z, torch.tensor([0]), DSimplex(2)).item() == pytest.approx(math.log(1.5))


@pytest.mark.parametrize(
    ("negatives", "labels", "expected"),
    [
        ("paper", OTHER_CLASSES, 0 - 5),  # D = exp(0)
        ("authors", OTHER_CLASSES, math.log(2) - 5),  # D = exp(0) for the negative + exp(0) for itself
        ("masked", OTHER_CLASSES, 0 - 5),
        ("paper", ONE_CLASS, 0 - 5),  # label-blind
        ("authors", ONE_CLASS, math.log(2) - 5),  # both same-class pairs count exp(0)
        ("masked", ONE_CLASS, 0),  # no negative is left: nothing to contrast with
    ],
)
def test_info_nce_by_hand(negatives, labels, expected):
    found = info_nce(AXES, AXES, labels, rho=5.0, negatives=negatives)
    assert found.item() == pytest.approx(expected)


def test_hoc_by_hand():
    # K = 3, z = 0-free: at z = prototypes the logits are 1 and -1/2, so CE = log(1 + 2 exp(-3/2)).
    simplex = DSimplex(3)
    z = simplex.dense()[:2]
    ce = math.log(1 + 2 * math.exp(-1.5))
    nce = math.log(math.exp(5 * -0.5) + 1) - 5
    found = hoc_loss(z, z, torch.tensor([0, 1]), simplex, lambda_=0.1, rho=5.0)
    assert found.item() == pytest.approx(0.1 * ce + 0.9 * nce)


def test_hoc_at_a_given_length_by_hand():
    # K = 2: prototypes +1 and -1. The feature 7 is seen as log(2)/2: softmax (2/3, 1/3).
    z = torch.tensor([[7.0]])
    found = hoc_loss(z, z, torch.tensor([0]), DSimplex(2), lambda_=1.0, length=math.log(2) / 2)
    assert found.item() == pytest.approx(math.log(1.5))


def test_distillation_by_hand():
    z = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    old = torch.tensor([[7.0, 0.0], [5.0, 0.0], [-1.0, 0.0]])  # same, orthogonal, opposite
    assert feature_distillation(z, old).item() == pytest.approx((0 + 1 + 2) / 3)


def test_empty_distillation_is_zero_with_a_gradient():
    z = torch.zeros(0, 3, requires_grad=True)
    loss = feature_distillation(z, torch.zeros(0, 3))
    loss.backward()
    assert loss.item() == 0


@pytest.mark.parametrize("negatives", ["authors", "paper", "masked"])
def test_info_nce_does_not_see_the_scale_of_features(negatives):
    z, z_old, labels = torch.randn(8, 5), torch.randn(8, 5), torch.randint(0, 3, (8,))
    once = info_nce(z, z_old, labels, rho=5.0, negatives=negatives)
    scaled = info_nce(13 * z, 0.2 * z_old, labels, rho=5.0, negatives=negatives)
    assert scaled.item() == pytest.approx(once.item(), rel=1e-5)


@pytest.mark.parametrize("negatives", ["authors", "masked"])
def test_same_class_images_do_not_repel(negatives):
    """Moving the new feature of one image of a class leaves the other images' terms of that class as they were."""
    z = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    z_old = torch.randn(4, 5, dtype=torch.float64)
    labels = torch.tensor([0, 0, 0, 0])
    info_nce(z, z_old, labels, rho=5.0, negatives=negatives).backward()
    assert z.grad is not None
    moved = z.detach().clone()
    moved[1] = torch.randn(5, dtype=torch.float64)
    first = info_nce(moved[:1], z_old[:1], labels[:1], rho=5.0, negatives=negatives)
    assert first.item() == pytest.approx(info_nce(z[:1], z_old[:1], labels[:1], rho=5.0, negatives=negatives).item())
    if negatives == "masked":
        assert torch.equal(z.grad, torch.zeros_like(z))


def test_gradient_flows_to_the_new_model_only():
    z, z_old = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 3])
    (hoc_loss(z, z_old, labels, DSimplex(4)) + feature_distillation(z, z_old)).backward()
    assert z.grad is not None
    assert z_old.grad is None


def test_no_negative_gives_no_nan_in_the_gradient():
    z = torch.randn(3, 2, requires_grad=True)
    info_nce(z, torch.randn(3, 2), torch.tensor([1, 1, 1]), rho=5.0, negatives="masked").backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()
    one = torch.randn(1, 2, requires_grad=True)
    info_nce(one, torch.randn(1, 2), torch.tensor([0]), rho=5.0, negatives="paper").backward()
    assert one.grad is not None
    assert one.grad.isfinite().all()


def test_losses_are_float32_under_autocast():
    z, z_old, labels = torch.randn(16, 9), torch.randn(16, 9), torch.randint(0, 9, (16,))
    simplex = DSimplex(10)
    outside = [
        hoc_loss(z, z_old, labels, simplex),
        cross_entropy(z, labels),
        feature_distillation(z, z_old),
    ]
    with torch.autocast("cpu", torch.bfloat16):
        inside = [
            hoc_loss(z, z_old, labels, simplex),
            cross_entropy(z, labels),
            feature_distillation(z, z_old),
        ]
    for a, b in zip(inside, outside):
        assert a.dtype == torch.float32
        assert torch.equal(a, b)


def test_large_logits_stay_finite():
    assert simplex_cross_entropy(1e4 * torch.randn(4, 9), torch.tensor([0, 1, 2, 3]), DSimplex(10)).isfinite()


def test_unknown_negatives_list_the_known():
    with pytest.raises(HoldfastError, match="authors, paper, masked"):
        info_nce(AXES, AXES, ONE_CLASS, rho=1.0, negatives="none")  # type: ignore[arg-type]

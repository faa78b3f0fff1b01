"""Loss modules give what their functions give, value and gradient; every module has a doctest that runs."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import holdfast
from holdfast.core.errors import HoldfastError
from holdfast.train import losses
from holdfast.train.geometry import DSimplex

SIMPLEX = DSimplex(5)
LABELS = torch.tensor([0, 1, 1, 4, 2, 0])
HOC = {"lambda_": 0.4, "rho": 3.0, "negatives": "paper", "length": 2.0}
NCE = {"rho": 2.0, "negatives": "masked", "through_both": True}

# Module, function, and the call of each with (z, z_old); options differ from the defaults.
CASES = {
    "HOCLoss": (
        lambda z, old: losses.HOCLoss(SIMPLEX, **HOC)(z, old, LABELS),
        lambda z, old: losses.hoc_loss(z, old, LABELS, SIMPLEX, **HOC),
    ),
    "CompatibilityLoss": (
        lambda z, old: losses.CompatibilityLoss(torch.nn.Identity(), weight=2.0, rho=3.0)(z, old, LABELS),
        lambda z, old: 2.0 * losses.compatibility_contrast(z, old, LABELS, rho=3.0),
    ),
    "InfoNCELoss": (
        lambda z, old: losses.InfoNCELoss(**NCE)(z, old, LABELS),
        lambda z, old: losses.info_nce(z, old, LABELS, **NCE),
    ),
    "SimplexCrossEntropyLoss": (
        lambda z, old: losses.SimplexCrossEntropyLoss(SIMPLEX)(z, LABELS),
        lambda z, old: losses.simplex_cross_entropy(z, LABELS, SIMPLEX),
    ),
    "FeatureDistillationLoss": (
        lambda z, old: losses.FeatureDistillationLoss()(z, old),
        lambda z, old: losses.feature_distillation(z, old),
    ),
    "SquaredDistillationLoss": (
        lambda z, old: losses.SquaredDistillationLoss()(z, old),
        lambda z, old: losses.squared_distillation(z, old),
    ),
    "SoftenedDistillationLoss": (
        lambda z, old: losses.SoftenedDistillationLoss(temperature=3.0)(z, old),
        lambda z, old: losses.softened_distillation(z, old, temperature=3.0),
    ),
    "NeighbourTripletLoss": (
        lambda z, old: losses.NeighbourTripletLoss(margin=0.7)(z, old, LABELS),
        lambda z, old: losses.neighbour_triplet(z, old, LABELS, margin=0.7),
    ),
    "OldClassCrossEntropyLoss": (
        lambda z, old: losses.OldClassCrossEntropyLoss()(z[:, :3], LABELS),
        lambda z, old: losses.old_class_cross_entropy(z[:, :3], LABELS),
    ),
}


def value_and_gradients(call):
    generator = torch.Generator().manual_seed(0)
    z, old = (torch.randn(6, 4, generator=generator).requires_grad_() for _ in range(2))
    value = call(z, old)
    value.backward()
    return value.detach(), z.grad, old.grad


@pytest.mark.parametrize("name", CASES)
def test_module_equals_function(name):
    by_module, by_function = (value_and_gradients(call) for call in CASES[name])
    for ours, wanted in zip(by_module, by_function, strict=True):
        assert (ours is None and wanted is None) or torch.equal(ours, wanted)
    assert by_module[1].any()


def test_every_module_is_compared():
    assert set(CASES) == {name for name in losses.__all__ if name.endswith("Loss")}


def test_public_modules():
    names = {"CompatibilityLoss", "HOCLoss", "InfoNCELoss", "SimplexCrossEntropyLoss", "FeatureDistillationLoss"}
    assert names <= set(holdfast.__all__)
    assert all(getattr(holdfast, name) is getattr(losses, name) for name in names)


def test_hoc_loss_uses_its_options():
    plain = value_and_gradients(lambda z, old: losses.HOCLoss(SIMPLEX)(z, old, LABELS))[0]
    for name, value in HOC.items():
        changed = value_and_gradients(lambda z, old, n=name, v=value: losses.HOCLoss(SIMPLEX, **{n: v})(z, old, LABELS))
        assert not torch.equal(changed[0], plain), name


@pytest.mark.parametrize("name", [found.name for found in pkgutil.iter_modules(losses.__path__)])
def test_doctests(name):
    assert doctest.testmod(importlib.import_module(f"holdfast.train.losses.{name}")).failed == 0


@pytest.mark.parametrize("name", CASES)
def test_every_module_has_an_example(name):
    assert ">>>" in getattr(losses, name).__doc__


def test_the_weight_of_hoc_is_a_share():
    with pytest.raises(HoldfastError, match="lambda_ must lie between 0 and 1, got 5"):
        losses.HOCLoss(DSimplex(3), lambda_=5)

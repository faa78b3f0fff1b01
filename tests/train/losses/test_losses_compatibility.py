"""The label-free term equals a plain loop, and the old model inside the module cannot change."""

import copy
import math

import pytest
import torch
from torch import nn

from holdfast import CompatibilityLoss
from holdfast.core.errors import HoldfastError
from holdfast.train.losses import compatibility_contrast, info_nce


def features(count=6, dim=4):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(count, dim, generator=generator) for _ in range(2)]


def by_loop(z, z_old, groups, rho):
    total = 0.0
    for i in range(len(z)):
        scores = [rho * float(nn.functional.cosine_similarity(z_old[i], z[j], dim=0)) for j in range(len(z))]
        denominator = sum(1.0 if groups[i] == groups[j] else math.exp(scores[j]) for j in range(len(z)))
        total += -scores[i] + math.log(denominator)
    return total / len(z)


@pytest.mark.parametrize("groups", [None, [0, 1, 2, 0, 1, 2], [3, 3, 3, 3, 3, 3]])
def test_equals_a_loop(groups):
    z, z_old = features()
    given = None if groups is None else torch.tensor(groups)
    wanted = by_loop(z, z_old, groups or range(6), 3.0)
    assert compatibility_contrast(z, z_old, given, rho=3.0).item() == pytest.approx(wanted, abs=1e-5)


def test_is_the_contrast_of_hoc_with_every_item_its_own_class():
    z, z_old = features()
    assert torch.equal(compatibility_contrast(z, z_old), info_nce(z, z_old, torch.arange(6)))


def test_the_old_model_is_a_frozen_copy():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).train()
    before = copy.deepcopy(model).eval()
    loss = CompatibilityLoss(model, weight=2.0)
    optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=0.5)
    x = torch.randn(8, 3)
    loss.train()
    for _ in range(3):
        optimizer.zero_grad()
        loss(model(x), x).backward()
        optimizer.step()
    assert not torch.equal(model[0].weight, before[0].weight)
    assert torch.equal(loss.old_features(x), before(x))
    assert not loss.old_features(x).requires_grad
    assert not list(loss.parameters())
    assert not loss.state_dict()
    assert model[0].weight.requires_grad
    assert model.training


def test_engine_with_the_term_stays_nearer_to_the_old_model():
    """A loss that turns the space is held back by the term."""
    drift = {}
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(0))
    target = torch.randn(32, 8, generator=torch.Generator().manual_seed(5))
    for weight in (0.0, 4.0):
        torch.manual_seed(0)
        model = nn.Linear(8, 8)
        old = copy.deepcopy(model)
        loss = CompatibilityLoss(model, weight=weight)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(50):
            optimizer.zero_grad()
            z = model(x)
            (nn.functional.mse_loss(z, target) + loss(z, x)).backward()
            optimizer.step()
        with torch.no_grad():
            drift[weight] = 1 - nn.functional.cosine_similarity(model(x), old(x)).mean().item()
    assert drift[4.0] < 0.7 * drift[0.0]


def test_functions_and_stored_vectors():
    z, z_old = features()
    assert torch.equal(
        CompatibilityLoss(nn.Identity())(z, z_old), CompatibilityLoss(lambda inputs: inputs["old"])(z, {"old": z_old})
    )
    none = compatibility_contrast(torch.empty(0, 4, requires_grad=True), torch.empty(0, 4))
    assert none.item() == 0
    none.backward()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda z, old: CompatibilityLoss(nn.Identity())(z, old[:, :3]), "4 numbers per item and the old one 3"),
        (lambda z, old: CompatibilityLoss(nn.Identity())(z, old[:3]), "of the same N items"),
        (lambda z, old: compatibility_contrast(z, old, torch.zeros(3)), "groups: one number per item"),
        (lambda z, old: compatibility_contrast(z, old, list("aabbcc")), "groups: must be numbers, one per item"),
        (lambda z, old: info_nce(z, old[:, :3], torch.arange(6)), "4 numbers per item and the old one 3"),
        (lambda z, old: CompatibilityLoss(lambda x: {"a": x})(z, old), "returned dict, not a tensor"),
        (lambda z, old: CompatibilityLoss(3), "must be a module or a function, got int"),
        (lambda z, old: CompatibilityLoss(nn.Identity(), weight=-1.0), "weight must be a number of at least 0"),
        (lambda z, old: CompatibilityLoss(nn.Identity(), rho=float("nan")), "rho must be a number of at least 0"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(HoldfastError, match=message):
        call(*features())


def test_stored_vectors_in_double_precision_and_groups_as_a_list():
    torch.manual_seed(0)
    z, old = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3)
    expected = compatibility_contrast(z, old, torch.tensor([0, 0, 1, 2]))
    found = compatibility_contrast(z, old.double(), [0, 0, 1, 2])
    found.backward()
    assert float(found) == pytest.approx(float(expected), abs=1e-6)
    assert z.grad.dtype == torch.float32

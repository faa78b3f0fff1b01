"""AdvBCT's adversary and elastic radii: loops in float64, points by hand, properties."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_losses_references import loop_cross_entropy

from holdfast.train.losses import (
    discrimination,
    elastic_limit,
    elastic_radii,
    epoch_weight,
    reversal_coefficient,
    reversed_gradient,
)


def loop_radius(measured, v, tau):
    """The two cases of the original."""
    share = abs(measured - tau) / (1 + math.exp(-v))
    return measured + share if measured < tau else measured - share


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 2), st.floats(-8, 8)), min_size=1, max_size=6), st.floats(0.1, 1.5))
def test_radii_against_loops_lie_between_the_measured_and_tau(drawn, tau):
    measured = torch.tensor([r for r, _ in drawn], dtype=torch.float64)
    found = elastic_radii(measured, torch.tensor([v for _, v in drawn], dtype=torch.float64), tau).tolist()
    assert found == pytest.approx([loop_radius(r, v, tau) for r, v in drawn])
    for radius, (r, _) in zip(found, drawn):
        assert min(r, tau) - 1e-12 <= radius <= max(r, tau) + 1e-12


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 7))
def test_discrimination_against_loops(seed, size):
    generator = torch.Generator().manual_seed(seed)
    new, old = torch.randn(2, size, 2, generator=generator, dtype=torch.float64)
    expected = loop_cross_entropy(new.tolist(), [0] * size) + loop_cross_entropy(old.tolist(), [1] * size)
    assert discrimination(new, old).item() == pytest.approx(expected)


@settings(deadline=None, max_examples=30)
@given(st.floats(0, 1), st.integers(1, 90), st.data())
def test_schedules_against_scalars(fraction, epochs, data):
    epoch = data.draw(st.integers(0, epochs - 1))
    p = torch.tensor(fraction, dtype=torch.float64)
    assert reversal_coefficient(p).item() == pytest.approx(2 / (1 + math.exp(-10 * fraction)) - 1, abs=1e-15)
    assert epoch_weight(torch.tensor(float(epoch)), epochs).item() == pytest.approx((epochs - epoch + 1) / epochs)


def test_radii_by_hand():
    # sigmoid(log 3) = 3/4: 0.2 goes three quarters of the way up to 1, 1.4 three quarters of the way down.
    v = torch.full((2,), math.log(3.0))
    assert elastic_radii(torch.tensor([0.2, 1.4]), v, 1.0).tolist() == pytest.approx([0.8, 1.1])


def test_discrimination_by_hand():
    # An adversary that knows nothing says (1/2, 1/2) of both: 2 log 2. One that gives 3/4 to the truth: 2 log(4/3).
    nothing = torch.zeros(3, 2)
    assert discrimination(nothing, nothing).item() == pytest.approx(2 * math.log(2))
    sure = torch.tensor([[math.log(3.0), 0.0]])
    assert discrimination(sure, sure.flip(1)).item() == pytest.approx(2 * math.log(4 / 3))


def test_reversal_grows_from_zero_to_nearly_one():
    fractions = torch.linspace(0, 1, 101, dtype=torch.float64)
    coefficients = reversal_coefficient(fractions)
    assert coefficients[0].item() == 0
    # p = 0.1: 2 / (1 + 1/e) - 1 = (e - 1) / (e + 1)
    assert coefficients[10].item() == pytest.approx((math.e - 1) / (math.e + 1))
    assert 0.999 < coefficients[-1].item() < 1
    assert (coefficients.diff() > 0).all()


@pytest.mark.parametrize("epochs", [1, 5, 70])
def test_weight_falls_with_the_epoch(epochs):
    weights = [epoch_weight(torch.tensor(float(e)), epochs).item() for e in range(epochs)]
    assert weights[0] == pytest.approx((epochs + 1) / epochs)
    assert weights[-1] == pytest.approx(2 / epochs)
    assert all(a > b for a, b in itertools.pairwise(weights))


@pytest.mark.parametrize("coefficient", [0.0, 0.3, 1.0])
def test_reversal_keeps_the_value_and_turns_the_gradient(coefficient):
    z, slope = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3)
    out = reversed_gradient(z, torch.tensor(coefficient))
    assert torch.equal(out, z)
    (out * slope).sum().backward()
    torch.testing.assert_close(z.grad, -coefficient * slope)


def test_reversal_keeps_half_precision():
    z = torch.randn(4, 3, dtype=torch.bfloat16, requires_grad=True)
    reversed_gradient(z, torch.tensor(0.5)).sum().backward()
    assert z.grad.dtype == torch.bfloat16
    assert torch.equal(z.grad, torch.full_like(z, -0.5))


def test_features_learn_to_fool_what_the_adversary_learns_to_tell():
    """One loss, two directions: down for the adversary, up for the features."""
    z, z_old = torch.randn(8, 3, requires_grad=True), torch.randn(8, 3)
    adversary = torch.nn.Linear(3, 2)
    discrimination(adversary(reversed_gradient(z, torch.tensor(1.0))), adversary(z_old)).backward()
    value = discrimination(adversary(z), adversary(z_old)).item()
    fooling = z.detach() - 0.1 * z.grad
    assert discrimination(adversary(fooling), adversary(z_old)).item() > value
    with torch.no_grad():
        for parameter in adversary.parameters():
            parameter -= 0.01 * parameter.grad
    assert discrimination(adversary(z), adversary(z_old)).item() < value


def test_a_class_without_a_radius_has_no_limit_and_no_gradient():
    measured = torch.tensor([torch.nan, 0.3])
    v = torch.zeros(2, requires_grad=True)
    radii = elastic_radii(measured, v, 1.0)
    assert radii.tolist() == [math.inf, pytest.approx(0.65)]
    z = torch.tensor([[0.0, 1.0], [0.0, 1.0]], requires_grad=True)
    value = elastic_limit(z, torch.tensor([0, 1]), torch.tensor([[1.0, 0.0], [1.0, 0.0]]), radii)
    value.backward()
    # Only class 1 counts: sqrt(2) - 0.65, and its v moves by -(1 - 0.3) / 4.
    assert value.item() == pytest.approx(math.sqrt(2) - 0.65)
    assert v.grad.tolist() == pytest.approx([0, -0.175])
    assert torch.equal(z.grad[0], torch.zeros(2))
    assert z.grad.isfinite().all()

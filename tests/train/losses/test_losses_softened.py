"""Distillation of softened logits: loop in float64, a point by hand, properties."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_losses_references import batches

from holdfast.train.losses import softened_distillation


def loop_softmax(row, temperature):
    powers = [math.exp(value / temperature) for value in row]
    return [power / sum(powers) for power in powers]


@settings(deadline=None, max_examples=50)
@given(batches(), st.sampled_from([0.5, 1.0, 2.0, 4.0]))
def test_against_loops(batch, temperature):
    new, old, _ = batch
    total = 0.0
    for a, b in zip(new.tolist(), old.tolist()):
        said = loop_softmax(a, temperature)
        total -= sum(target * math.log(p) for target, p in zip(loop_softmax(b, temperature), said))
    found = softened_distillation(new, old, temperature=temperature)
    assert found.item() == pytest.approx(total / len(new))


def test_by_hand():
    # T = 2: old logits (2 log 3, 0) soften to (3/4, 1/4), new logits (0, 0) to (1/2, 1/2): cross-entropy log 2.
    old = torch.tensor([[2 * math.log(3.0), 0.0]])
    assert softened_distillation(torch.zeros(1, 2), old).item() == pytest.approx(math.log(2))
    # The other way round: -(log(3/4) + log(1/4)) / 2 = log(16/3) / 2.
    assert softened_distillation(old, torch.zeros(1, 2)).item() == pytest.approx(math.log(16 / 3) / 2)


def test_least_where_the_logits_agree():
    old = torch.randn(5, 4, dtype=torch.float64)
    new = old.clone().requires_grad_()
    value = softened_distillation(new, old)
    value.backward()
    torch.testing.assert_close(new.grad, torch.zeros_like(old))
    for _ in range(20):
        assert softened_distillation(old + 0.3 * torch.randn_like(old), old) > value


def test_gradient_through_new_logits_only():
    new, old = torch.randn(5, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    softened_distillation(new, old).backward()
    assert old.grad is None
    assert new.grad.norm() > 0


def test_an_offset_of_all_logits_changes_nothing():
    new, old = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    assert softened_distillation(new + 3, old - 7).item() == pytest.approx(softened_distillation(new, old).item())


def test_an_empty_batch_gives_zero():
    new = torch.zeros(0, 4, requires_grad=True)
    value = softened_distillation(new, torch.zeros(0, 4))
    value.backward()
    assert value.item() == 0
    assert new.grad.shape == (0, 4)

"""State of every method written out and brought back into a fresh one, though what grows has grown."""

import pytest
import torch
from test_methods_losses import FIRST, SECOND
from test_methods_others import DIM, PROGRESS, THIRD, FakeSurvey, batch_of

from holdfast.train.methods import METHODS

SIMPLEX = ("simplex_fd", "simplex_hoc", "simplex_hoc_views")
OPTIONS = {**{name: {"slots": 10} for name in SIMPLEX}, "bct": {"synthesise": True}, "lce": {"transformations": True}}
TASKS = {1: [FIRST], 2: [FIRST, SECOND], 3: [FIRST, SECOND, THIRD]}


def lived(name, tasks):
    method = METHODS[name](**OPTIONS.get(name, {}))
    for task in tasks:
        survey = FakeSurvey(task, has_old=task.number > 1)
        method.begin(task, DIM)
        method.prepare(task, survey)
        method.finish(task, survey)
    return method


@pytest.mark.parametrize("number", TASKS)
@pytest.mark.parametrize("name", METHODS)
def test_restore_reproduces_the_state(name, number):
    method = lived(name, TASKS[number])
    state = {key: tensor.clone() for key, tensor in method.state_dict().items()}
    fresh = METHODS[name](**OPTIONS.get(name, {}))
    fresh.begin(TASKS[number][-1], DIM)
    fresh.restore(state)
    again = fresh.state_dict()
    assert list(again) == list(state)
    for key, tensor in state.items():
        torch.testing.assert_close(again[key], tensor, rtol=0, atol=0, equal_nan=True)
    assert {key for key, _ in fresh.named_parameters()} == {key for key, _ in method.named_parameters()}
    assert all(parameter.requires_grad for parameter in fresh.parameters())


@pytest.mark.parametrize("name", METHODS)
def test_a_restored_method_goes_on_like_the_one_that_lived(name):
    """What task 2 computes does not tell whether task 1 was lived through or read from a file."""
    method = lived(name, [FIRST])
    fresh = METHODS[name](**OPTIONS.get(name, {}))
    fresh.begin(FIRST, DIM)
    fresh.restore({key: tensor.clone() for key, tensor in method.state_dict().items()})
    survey = FakeSurvey(SECOND)
    z, z_old = torch.randn(2, 12, method.feature_dim(DIM))
    batch, found = batch_of(12, 6, 12), []
    for one in (method, fresh):
        torch.manual_seed(0)
        one.begin(SECOND, DIM)
        one.prepare(SECOND, survey)
        found.append({k: t.item() for k, t in one.loss(z, batch, z_old=z_old, progress=PROGRESS).items()})
    assert len(found[0]) > (name != "er")
    assert found[0] == found[1]


@pytest.mark.parametrize("name", METHODS)
def test_a_restored_state_is_a_copy(name):
    method = lived(name, [FIRST])
    state = method.state_dict()
    before = {key: tensor.clone() for key, tensor in state.items()}
    fresh = METHODS[name](**OPTIONS.get(name, {}))
    fresh.begin(FIRST, DIM)
    fresh.restore(state)
    for tensor in fresh.state_dict().values():
        tensor.zero_()
    for key, tensor in method.state_dict().items():
        assert torch.equal(tensor.nan_to_num(), before[key].nan_to_num())

"""What a run will take of a GPU, as far as it can be told without one."""

import inspect

import numpy as np
import pytest
import torch

from holdfast.methods import FAN, METHODS
from holdfast.recipes.memory import bytes_on_features
from holdfast.scenarios import cl2r

LABELS = np.repeat(np.arange(6), 4)


def scenario(tasks: int):
    first = 6 if tasks == 1 else 2
    return cl2r(LABELS, [str(label) for label in range(6)], initial=first, tasks=tasks, buffer_per_class=1)


def test_the_map_of_fan_is_counted():
    enter, leave = 8 * 24 + 24, 24 * 8 + 8
    state = torch.random.get_rng_state()
    assert bytes_on_features(FAN(widening=3), scenario(3), 8) == 4 * (enter + leave)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert bytes_on_features(FAN(widening=3), scenario(1), 8) == 0  # there is no model to map from


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"fan"}))
def test_the_others_train_nothing_on_features(name):
    takes = inspect.signature(METHODS[name]).parameters
    method = METHODS[name](**({"slots": 6} if "slots" in takes else {}))
    assert bytes_on_features(method, scenario(3), 5) == 0

"""Rates worked by hand, the optimiser, and options that make no sense."""

import pytest
import torch
from torch import nn

from holdfast.core.errors import HoldfastError
from holdfast.train.engine import FitOptions
from holdfast.train.engine.schedule import learning_rate, make_optimizer, parameter_groups, set_rate


def rates(**options):
    chosen = FitOptions(**options)
    return [learning_rate(chosen, epoch) for epoch in range(chosen.epochs)]


def test_step_schedule_of_the_paper():
    """Rate 0.1, a tenth of it from epoch 50 of 70, a hundredth from 64."""
    found = rates(epochs=70, lr=0.1)
    assert found == pytest.approx([0.1] * 50 + [0.01] * 14 + [0.001] * 6)


def test_cosine_and_constant():
    # The cosine at 0, 45, 90 and 135 degrees: 1, sqrt(1/2), 0, -sqrt(1/2).
    half = 2**-0.5
    expected = [1.0, 0.1 + 0.9 * (1 + half) / 2, 0.55, 0.1 + 0.9 * (1 - half) / 2]
    assert rates(epochs=4, lr=1.0, final_lr=0.1, schedule="cosine") == pytest.approx(expected)
    assert rates(epochs=3, lr=0.2, schedule="constant") == [0.2] * 3


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_weight_decay_on_every_parameter(kind):
    """With no gradient but decay, every parameter shrinks: biases and normalisation too."""
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    for parameter in network.parameters():
        nn.init.ones_(parameter)
        parameter.grad = torch.zeros_like(parameter)
    options = FitOptions(optimizer=kind, lr=0.5, weight_decay=0.2)
    make_optimizer(parameter_groups(network, nn.Identity(), options), options, torch.device("cpu")).step()
    for parameter in network.parameters():
        torch.testing.assert_close(parameter.detach(), torch.full_like(parameter, 0.9))  # 1 - 0.5 * 0.2


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_weight_decay_on_weights_alone(kind):
    """Biases and normalisation stay; rates by group still hold, whether what they are for decays or not."""
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    for parameter in network.parameters():
        nn.init.ones_(parameter)
        parameter.grad = torch.zeros_like(parameter)
    options = FitOptions(optimizer=kind, lr=0.5, weight_decay=0.2, decay_norms=False, lr_groups={"1": 0.1})
    optimizer = make_optimizer(parameter_groups(network, nn.Identity(), options), options, torch.device("cpu"))
    optimizer.step()
    left = {name: parameter.detach().flatten()[0].item() for name, parameter in network.named_parameters()}
    assert left == pytest.approx({"0.weight": 0.9, "0.bias": 1, "1.weight": 1, "1.bias": 1})
    assert sorted((group["lr"], group["weight_decay"]) for group in optimizer.param_groups) == [
        (0.05, 0.0),
        (0.5, 0.0),
        (0.5, 0.2),
    ]


def test_frozen_parameters_are_left_out():
    network = nn.Linear(2, 2)
    network.bias.requires_grad_(False)
    (group,) = parameter_groups(network, nn.Identity(), FitOptions())
    assert [parameter.shape for parameter in group["params"]] == [(2, 2)]
    network.requires_grad_(False)
    with pytest.raises(HoldfastError, match="nothing trains"):
        parameter_groups(network, nn.Identity(), FitOptions())


def test_rates_by_group_follow_the_schedule():
    """The longest prefix counts, a prefix is a whole path, and a method keeps the plain rate."""
    network = nn.ModuleDict(
        {"part": nn.ModuleDict({"one": nn.Linear(1, 1), "on": nn.Linear(1, 1)}), "p": nn.Linear(1, 1)}
    )
    method = nn.Linear(1, 1)
    options = FitOptions(lr=1.0, lr_groups={"part": 0.5, "part.on": 0.1})
    optimizer = make_optimizer(parameter_groups(network, method, options), options, torch.device("cpu"))
    for rate in (1.0, 0.2):
        set_rate(optimizer, rate)
        rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
        assert rates[id(network["part"]["on"].weight)] == pytest.approx(0.1 * rate)
        assert rates[id(network["part"]["one"].bias)] == pytest.approx(0.5 * rate)
        assert rates[id(network["p"].weight)] == rates[id(method.weight)] == rate


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("optimizer", "adam"),
        ("schedule", "linear"),
        ("precision", "fp16"),
        ("draw", "random"),
        ("epochs", 0),
        ("batch_size", 1),
        ("crop_padding", -1),
        ("lr", 0.0),
        ("lr", float("nan")),
        ("decay", 0.0),
        ("momentum", -0.1),
        ("weight_decay", -1.0),
        ("final_lr", -1e-5),
    ],
)
def test_options_that_make_no_sense(name, value):
    with pytest.raises(HoldfastError, match=rf"^{name} must be .*, got"):
        FitOptions(**{name: value})


def test_milestones_move_with_the_epochs():
    # 50/70 and 64/70 of 7 epochs are 5 and 6.4.
    assert rates(epochs=7, lr=1.0) == pytest.approx([1] * 5 + [0.1, 0.01])
    assert rates(epochs=4, lr=1.0, milestones=(0.5,), decay=0.25) == pytest.approx([1, 1, 0.25, 0.25])


def test_an_unknown_group_is_refused():
    with pytest.raises(HoldfastError, match=r"^lr_groups: the encoder has no parameters 'wei'; known: weight, bias"):
        parameter_groups(nn.Linear(1, 1), nn.Identity(), FitOptions(lr_groups={"wei": 0.1}))
    with pytest.raises(HoldfastError, match="factor above 0"):
        FitOptions(lr_groups={"weight": 0.0})

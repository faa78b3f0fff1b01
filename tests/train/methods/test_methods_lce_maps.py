"""LCE with transformations: the maps, its terms, training of the maps, and galleries that pass through them."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_methods_golden import CLASSES, OPTIONS, images, make_encoder
from test_methods_losses import FIRST, SECOND, Toy
from test_methods_others import BATCH, DIM, PROGRESS, THIRD, taken_through, values
from torch import nn

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.train import losses
from holdfast.train.encoders import ModelFeatures, read_space_maps
from holdfast.train.engine import FitOptions, RunControl, ScenarioSetup, train_scenario
from holdfast.train.engine.schedule import parameter_groups
from holdfast.train.evaluation import compatibility_matrix
from holdfast.train.geometry import unit
from holdfast.train.methods import LCE
from holdfast.train.scenarios import cl2r
from holdfast.train.space_map import PATHS, ResidualBlock, SpaceMap, map_features
from holdfast.train.tensor_files import read_torch, write_torch

HIDDEN = 3


def trained_map(dim=DIM, blocks=2):
    """A map of residual blocks that is not the identity, and with running statistics."""
    made = SpaceMap(dim, dim, HIDDEN, blocks=blocks)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    made(torch.randn(16, dim))
    return made


@pytest.fixture
def z():
    return torch.randn(12, DIM, requires_grad=True)


def test_a_block_adds_four_bottlenecks():
    block = ResidualBlock(DIM, HIDDEN)
    for parameter in block.parameters():
        nn.init.normal_(parameter)
    z = torch.randn(7, DIM)
    expected = z.clone()
    for path in range(PATHS):
        inner, outer = slice(path * HIDDEN, (path + 1) * HIDDEN), slice(path * DIM, (path + 1) * DIM)
        layers = []
        for weight, norm, activation, part in (
            (block.enter.weight[inner].T, block.enter_norm, block.enter_activation, inner),
            (block.middle.weight[path], block.middle_norm, block.middle_activation, inner),
            (block.leave.weight[path], block.leave_norm, block.leave_activation, outer),
        ):
            layers.append((weight, norm.weight[part], norm.bias[part], activation.weight[part]))
        inside = z
        for weight, scale, shift, slope in layers:
            inside = inside @ weight
            inside = (inside - inside.mean(0)) / (inside.var(0, correction=0) + 2e-5).sqrt() * scale + shift
            inside = inside.where(inside > 0, slope * inside)
        expected = expected + inside
    torch.testing.assert_close(block(z), expected)


def test_a_map_of_blocks_begins_as_the_identity_on_unit_features(z):
    made = SpaceMap(DIM, DIM, HIDDEN, blocks=4)
    torch.testing.assert_close(made(z), unit(z))
    made(z).square().sum().backward()
    last = made.blocks[-1].leave_norm
    assert last.weight.grad.norm() > 0  # it does not stay there


def test_a_saved_map_of_blocks_applies_its_running_statistics(tmp_path):
    made, z = trained_map(), torch.randn(6, DIM)
    expected = copy.deepcopy(made).eval()(z)
    made.save(tmp_path / "map.safetensors")
    loaded = SpaceMap.load(tmp_path / "map.safetensors")
    assert not loaded.training
    assert torch.equal(loaded(z), expected)
    assert not torch.allclose(loaded(z), made(z))  # in training mode: statistics of the batch
    assert torch.equal(loaded(z), SpaceMap.load(tmp_path / "map.safetensors")(z))  # and they do not change
    assert loaded.in_features == DIM
    one_by_one = torch.cat([map_features(row[None], [loaded]) for row in z])
    torch.testing.assert_close(one_by_one, map_features(z, [loaded]))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(loaded(z.bfloat16()), loaded(z.bfloat16().float()))


def test_without_the_option_nothing_is_added(z):
    method = LCE()
    taken_through(method, FIRST, SECOND)
    assert list(method.state_dict()) == ["centres", "bounds", "classifier.weight"]
    assert method.space_map() is None
    terms = method.loss(z, BATCH, progress=PROGRESS)
    rows = method.classifier.weight[:4]
    assert torch.equal(terms["align"], 100.0 * losses.align_rows(rows, method.centres))
    assert torch.equal(terms["bound"], losses.boundary_hinge(z, BATCH.labels, method.centres, method.bounds))


def test_the_first_step_is_that_of_the_identity(z):
    found = []
    for transformations in (False, True):
        torch.manual_seed(3)
        method = LCE(transformations=transformations)
        taken_through(method, FIRST)
        torch.manual_seed(4)
        taken_through(method, SECOND)
        found.append(values(method.loss(z, BATCH, progress=PROGRESS)))
    assert found[1] == pytest.approx(found[0])


def test_terms_with_transformations(z):
    method = LCE(align=7.0, bound=3.0, transformations=True)
    taken_through(method, FIRST, SECOND)
    for made in (method.forward_map, method.backward_map):
        for parameter in made.parameters():
            nn.init.normal_(parameter, std=0.3)
    rows, centres = unit(method.classifier.weight[:4]), method.centres
    forward, backward = copy.deepcopy(method.forward_map), copy.deepcopy(method.backward_map)
    align = ((forward(centres) - rows).square().mean() + (backward(rows) - centres).square().mean()) / 2
    old = BATCH.labels < 4
    mapped = unit(backward(unit(z)))
    cosines = (mapped[old] * centres[BATCH.labels[old]]).sum(1)
    bound = (method.bounds[BATCH.labels[old]] - cosines).clamp(min=0).mean()
    found = values(method.loss(z, BATCH, progress=PROGRESS))
    assert found.keys() == {"ce", "align", "bound"}
    assert found["align"] == pytest.approx(7 * align.item(), rel=1e-5)
    assert found["bound"] == pytest.approx(3 * bound.item(), rel=1e-5)


def test_both_maps_are_trained_with_the_network(z):
    method = LCE(bound=5.0, transformations=True)
    taken_through(method, FIRST, SECOND)
    groups = parameter_groups(nn.Linear(2, 2), method, FitOptions())
    trained = {id(parameter) for group in groups for parameter in group["params"]}
    maps = [*method.forward_map.named_parameters(), *method.backward_map.named_parameters()]
    assert {id(parameter) for _, parameter in maps} <= trained
    before = [parameter.detach().clone() for _, parameter in maps]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    method.bounds.fill_(1.0)  # every image is outside its boundary
    for _ in range(2):  # the last batch norms begin at 0 and pass no gradient on at the first step
        optimizer.zero_grad()
        sum(method.loss(z, BATCH, progress=PROGRESS).values()).backward()
        optimizer.step()
    assert not [name for (name, parameter), old in zip(maps, before) if torch.equal(parameter, old)]


def test_maps_are_new_in_each_task_and_only_from_the_previous_model():
    method = LCE(transformations=True)
    surveys = taken_through(method, FIRST)
    assert method.space_map() is None
    method.finish(FIRST, surveys[0])
    (survey,) = taken_through(method, SECOND)
    second = method.space_map()
    assert second.training
    method.finish(SECOND, survey)
    assert not second.training
    taken_through(method, THIRD)
    assert method.space_map() is not second
    taken_through(method, Toy(3, 2, 8, loaded=True))
    assert method.space_map() is None
    assert method.backward_map is None


class Stopped(Exception):  # noqa: N818
    """Ends training in the middle of a task."""


def run(folder, stop_in=None):
    """Three tasks of two classes with transformations. ``stop_in``: stops in this task, after a checkpoint."""

    def log(event):
        if event.kind == "epoch" and (event.task, event.epoch) == (stop_in, 2):
            raise Stopped

    train_scenario(
        cl2r(images().labels.numpy(), CLASSES, num_slots=None, initial=2, tasks=3, buffer_per_class=6),
        images(),
        RunFolder(folder),
        ScenarioSetup(
            make_encoder=lambda: make_encoder("lce", {}, 1),
            make_method=lambda: LCE(transformations=True),
            options=replace(OPTIONS, checkpoint_minutes=0),
            load_model=lambda model: make_encoder("lce", {}, int(model)),
        ),
        control=RunControl(log),
    )
    return RunFolder(folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole"))


def test_a_resumed_run_gives_the_same_models_and_maps(finished, tmp_path):
    with pytest.raises(Stopped):
        run(tmp_path, stop_in=2)
    assert not RunFolder(tmp_path).model(2).exists()
    resumed = run(tmp_path)
    for path in ("models/02/method.safetensors", "models/03/method.safetensors", "models/03/space_map.safetensors"):
        one, other = read_torch(finished.path / path)[0], read_torch(resumed.path / path)[0]
        assert list(one) == list(other)
        assert all(torch.equal(tensor, other[name]) for name, tensor in one.items()), path


def test_the_forward_map_is_saved_with_the_model_and_used_for_galleries(finished):
    maps = read_space_maps(finished, 3)
    assert [one is None for one in maps] == [True, False, False]
    state = read_torch(finished.method(3))[0]
    saved = read_torch(finished.space_map(3))[0]
    assert saved.keys() == {n.removeprefix("forward_map.") for n in state if n.startswith("forward_map.")}
    assert all(torch.equal(tensor, state[f"forward_map.{name}"]) for name, tensor in saved.items())
    assert saved["blocks.0.enter_norm.num_batches_tracked"].item() == OPTIONS.epochs
    rng = np.random.default_rng(0)
    models = [ModelFeatures(*unit(torch.tensor(rng.normal(size=(2, 30, 16)))).float().numpy()) for _ in range(3)]
    labels = np.arange(30) % 5
    found = compatibility_matrix(models, labels, labels, protocol="instance", maps=maps)
    gallery = map_features(torch.tensor(models[0].gallery), [maps[1], maps[2]])
    nearest = (torch.tensor(models[2].query) @ gallery.T).argmax(1).numpy()
    assert found[2][0] == pytest.approx((labels[nearest] == labels).mean())


def test_blocks_cannot_change_the_size():
    with pytest.raises(HoldfastError, match="cannot map 4 numbers to 5"):
        SpaceMap(4, 5, 3, blocks=1)


def test_a_file_with_a_block_of_another_shape_is_refused(tmp_path):
    state = trained_map().state_dict()
    for name, tensor in (("blocks.1.middle.weight", torch.zeros(2)), ("blocks.0.enter.weight", torch.zeros(3))):
        write_torch(tmp_path / "map.safetensors", {**state, name: tensor})
        with pytest.raises(HoldfastError, match="not a map between feature spaces"):
            SpaceMap.load(tmp_path / "map.safetensors")


def test_a_single_old_class_is_refused():
    with pytest.raises(HoldfastError, match="at least two old classes"):
        taken_through(LCE(transformations=True), Toy(2, 2, 3))
    LCE(transformations=True).begin(Toy(2, 3, 3), DIM)  # restoring begins a task in which all classes count as new

"""Simplexes that turn, from task to task: what is saved, grown, replaced and refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.train.data import ImageSet
from holdfast.train.data.device_images import DeviceImages
from holdfast.train.encoders import Encoder, VectorInput, build_backbone
from holdfast.train.engine import FitOptions, ScenarioSetup, train_scenario
from holdfast.train.engine.checkpoint import restore_method
from holdfast.train.engine.fit import prepare_step
from holdfast.train.engine.model_slots import grow_models
from holdfast.train.geometry import paired_cosine
from holdfast.train.methods import METHODS
from holdfast.train.scenarios import SlotRegistry, cl2r
from holdfast.train.scenarios.slots_of_runs import refuse_incompatible_slots_in_run
from holdfast.train.tensor_files import read_torch

CLASSES, DIM, SLOTS = tuple("abcdefgh"), 12, 13
OPTIONS = FitOptions(epochs=1, batch_size=16, lr=0.01, crop_padding=0, flip=False)


def vectors(stretch: float = 1.0) -> DeviceImages:
    """Positive vectors around one direction for each class, far from the vertices of a simplex.

    stretch: factor of the last number of each vector.
    """
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(8), 10)
    centres = np.abs(random.standard_normal((8, DIM)))
    items = (centres[labels] + 0.1 * random.standard_normal((80, DIM))).astype(np.float32)
    items[:, -1] *= stretch
    return DeviceImages(ImageSet(items[:, None, None], labels, CLASSES, "turned"))


def rows_of(images: DeviceImages) -> torch.Tensor:
    return images[torch.arange(len(images))].reshape(len(images), DIM).float()


def scenario(slots=SLOTS):
    labels = vectors().labels.numpy()
    return cl2r(labels, CLASSES, num_slots=slots, initial=4, tasks=3, buffer_per_class=4)


def setup(name="simplex_hoc", slots=SLOTS, **options):
    given = {"slots": slots, "placing": "means", "layer": "identity", **options}

    def encoder():
        backbone = build_backbone("identity", in_channels=DIM)
        return Encoder.for_method(METHODS[name](**given), backbone=backbone, preprocess=VectorInput(DIM))

    return ScenarioSetup(encoder, lambda: METHODS[name](**given), OPTIONS)


@pytest.fixture(scope="module", params=["simplex_hoc", "simplex_fd"])
def run(request, tmp_path_factory):
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    train_scenario(scenario(), vectors(), folder, setup(request.param))
    return folder, request.param


def method_after(run, number):
    folder, name = run
    method = setup(name).make_method()
    restore_method(method, scenario().tasks[number - 1], DIM, folder.method(number))
    return method


def test_vertices_of_old_classes_stay_from_version_to_version(run):
    rows = [method_after(run, number).simplex.prototypes(torch.arange(8)) for number in (1, 2, 3)]
    assert (rows[1][:4] - rows[0][:4]).norm(dim=1).max() < 1e-6
    assert (rows[2][:6] - rows[1][:6]).norm(dim=1).max() < 1e-6
    assert (rows[1][4:6] - rows[0][4:6]).norm(dim=1).min() > 1e-2  # the new ones went somewhere


def test_the_first_version_begins_with_classes_next_to_their_vertices(run):
    _, name = run
    step, _ = prepare_step(setup(name).make_encoder(), setup(name).make_method(), scenario().tasks[0], vectors(),
                           old=None, options=OPTIONS)  # fmt: skip
    task = scenario().tasks[0]
    rows = torch.from_numpy(task.new_indices)
    z = step.encoder.eval()(rows_of(vectors())[rows])
    assert z.mean(0).abs().max() < 1e-5  # the layer centres
    vertices = step.method.simplex.prototypes(torch.from_numpy(vectors().labels.numpy()[task.new_indices]))
    assert paired_cosine(z, vertices).mean() > 0.8


def test_what_the_model_records(run):
    folder, _ = run
    records = [Encoder.from_pretrained(folder.model(number)).info["slots"] for number in (1, 2, 3)]
    kept = [[turn["kept"] for turn in record["turns"]] for record in records]
    assert kept == [[[]], [[], [0, 1, 2, 3]], [[], [0, 1, 2, 3], [4, 5]]]
    assert records[2]["turns"][:2] == records[1]["turns"]
    refuse_incompatible_slots_in_run(folder, 3)
    registries = [SlotRegistry.from_json(record) for record in records]
    assert registries[0].merge(registries[2]) == registries[2]


def test_the_layer_is_saved(run):
    folder, _ = run
    first, second = (Encoder.from_pretrained(folder.model(number)) for number in (1, 2))
    assert first.layer == "identity"
    assert bool(first.projection.begun)
    assert torch.equal(first.projection.centre, second.projection.centre)  # set once
    assert not torch.equal(first.projection.weight, torch.eye(DIM))  # trained


def test_a_resumed_run_is_the_same(run, tmp_path):
    folder, name = run
    again = RunFolder(tmp_path)
    train_scenario(replace(scenario(), tasks=scenario().tasks[:1]), vectors(), again, setup(name))
    train_scenario(scenario(), vectors(), again, setup(name))
    states = [read_torch(one.method(3))[0] for one in (folder, again)]
    assert states[0].keys() == states[1].keys()
    for key in states[0]:
        assert torch.equal(torch.as_tensor(states[0][key]), torch.as_tensor(states[1][key])), key


def test_a_grown_model_has_its_classes_at_the_same_places(run, tmp_path):
    folder, name = run
    before = method_after(run, 2)
    grown = grow_models([folder.model(1), folder.model(2)], 30, tmp_path)
    assert [change.after for change in grown] == [30, 30]
    method = setup(name, slots=30).make_method()
    restore_method(method, scenario(30).tasks[1], 29, tmp_path / folder.model(2).name / folder.method(2).name)
    model = Encoder.from_pretrained(tmp_path / folder.model(2).name)
    old = Encoder.from_pretrained(folder.model(2))
    items = rows_of(vectors())
    was = old(items) @ before.simplex.prototypes(torch.arange(6)).T
    now = model(items) @ method.simplex.prototypes(torch.arange(6)).T
    torch.testing.assert_close(now / now.norm(), was / was.norm(), atol=2e-2, rtol=0)
    assert method.turns == before.turns
    first, second = (Encoder.from_pretrained(tmp_path / folder.model(n).name).info["slots"] for n in (1, 2))
    SlotRegistry.from_json(first).merge(SlotRegistry.from_json(second))


def test_slots_taken_from_a_turned_model_are_refused_without_its_turns(run):
    """As in pre-training with slots_from: the names and slots alone do not say where the vertices lie."""
    folder, name = run
    record = Encoder.from_pretrained(folder.model(2)).info["slots"]
    task = replace(scenario().tasks[1], registry=SlotRegistry.from_json(record), start="scratch", reference="none")
    with pytest.raises(HoldfastError, match="task 2: its classes have their slots from a model with a turned simplex"):
        prepare_step(setup(name).make_encoder(), setup(name).make_method(), task, vectors(), old=None, options=OPTIONS)


def test_models_that_were_turned_apart_are_refused(run, tmp_path):
    """The same classes, trained from a version 1 of their own: their turns differ."""
    folder, name = run
    train_scenario(scenario(), vectors(stretch=3.0), RunFolder(tmp_path), setup(name))
    other, mine = (Encoder.from_pretrained(one.model(2)).info["slots"] for one in (RunFolder(tmp_path), folder))
    with pytest.raises(HoldfastError, match="turned in different ways"):
        SlotRegistry.from_json(mine).merge(SlotRegistry.from_json(other))


def test_a_class_without_images_keeps_its_vertex():
    task = scenario().tasks[0]
    labels = vectors().labels.numpy()[task.new_indices]
    task = replace(task, new_indices=task.new_indices[labels != 2])
    step, _ = prepare_step(setup().make_encoder(), setup().make_method(), task, vectors(), old=None, options=OPTIONS)
    assert step.method.turns[0][1] == (2,)
    simplex = step.method.simplex
    assert torch.allclose(simplex.prototypes(torch.tensor(2)), step.method.built_simplex.prototypes(torch.tensor(2)))


def test_a_replacement_begins_in_the_old_space(run):
    """A network whose features are those of the old one, turned and shifted, begins with the old one's features."""
    folder, _ = run
    old = Encoder.from_pretrained(folder.model(2))
    rotation = torch.linalg.qr(torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(1)))[0]

    class Other(torch.nn.Module):
        feature_dim = DIM

        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, x):
            return self.scale * old(x).detach() @ rotation + 3.0

    task = replace(scenario().tasks[2], start="loaded", model="other")
    method = method_after(run, 2)
    kept = method.simplex.prototypes(torch.arange(6))
    encoder = Encoder.for_method(method, backbone=Other(), preprocess=VectorInput(DIM))
    step, _ = prepare_step(encoder, method, task, vectors(), old=old, options=OPTIONS)
    items = rows_of(vectors())
    torch.testing.assert_close(step.encoder.eval()(items), old(items), atol=1e-4, rtol=1e-4)
    assert (step.method.simplex.prototypes(torch.arange(6)) - kept).norm(dim=1).max() < 1e-6


def test_vertices_of_other_models_stay_too():
    """Two-sided slots: pre-training owns slots on the left that no task has seen."""
    task = scenario().tasks[0]
    registry = SlotRegistry(SLOTS).take_left(["pre/0", "pre/1"]).take_right(CLASSES[:4])
    task = replace(task, registry=registry, slots=tuple(registry.slot(name) for name in CLASSES[:4]))
    step, _ = prepare_step(setup().make_encoder(), setup().make_method(), task, vectors(), old=None, options=OPTIONS)
    left = torch.tensor([0, 1])
    assert step.method.turns[0][1] == (0, 1)
    moved = step.method.simplex.prototypes(left) - step.method.built_simplex.prototypes(left)
    assert moved.norm(dim=1).max() < 1e-6


def test_a_state_of_another_number_of_slots_is_refused(run):
    folder, name = run
    method = setup(name, slots=40).make_method()
    restore_method(method, scenario(40).tasks[0], 39, folder.method(1))
    with pytest.raises(HoldfastError, match="turned with 13 slots, and this method has 40"):
        method.begin(scenario(40).tasks[1], 39)


def test_a_method_without_the_state_of_its_model_is_refused(run):
    folder, name = run
    model, old = (Encoder.from_pretrained(folder.model(1)) for _ in range(2))
    with pytest.raises(HoldfastError, match="task 2, the network to train: class 'a' lies elsewhere"):
        prepare_step(model, setup(name).make_method(), scenario().tasks[1], vectors(), old=old, options=OPTIONS)
    fixed = setup(name, placing="sequence").make_method()
    with pytest.raises(HoldfastError, match="task 2, the network to train: class 'a' lies elsewhere"):
        prepare_step(model, fixed, scenario().tasks[1], vectors(), old=old, options=OPTIONS)


def test_more_slots_than_the_network_has_features(tmp_path):
    train_scenario(scenario(60), vectors(), RunFolder(tmp_path), setup(slots=60))
    model = Encoder.from_pretrained(RunFolder(tmp_path).model(3))
    assert model.dim == 59
    assert len(model.info["slots"]["turns"]) == 3
    with pytest.raises(HoldfastError, match="cannot make 8 numbers of 12; set slots to 13 or more"):
        setup(slots=9).make_encoder()

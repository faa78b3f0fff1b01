"""What every method, scenario and backbone must stand: task after task, save, load, resume."""

import inspect
import json
import math
import sys

import numpy as np
import pytest
import torch

import papers.networks  # noqa: F401  SENet-18 and RegNetY-400MF
from holdfast.core.run_folder import RunFolder
from holdfast.train.data import ImageSet, canonical
from holdfast.train.data.device_images import DeviceImages
from holdfast.train.encoders import BACKBONES, Encoder, Preprocess, build_backbone
from holdfast.train.engine import FitOptions, RunControl, ScenarioSetup, train_scenario
from holdfast.train.methods import METHODS, Batch, Progress
from holdfast.train.scenarios import SCENARIOS, ModelSpace, Scenario, SlotRegistry
from holdfast.train.tensor_files import read_torch

OPTIONS = FitOptions(epochs=2, batch_size=8, lr=0.01, crop_padding=1, flip=False, checkpoint_minutes=0)


@pytest.fixture(autouse=True)
def pulse_at_every_step(monkeypatch):
    monkeypatch.setattr(sys.modules["holdfast.train.engine.fit"], "PULSE_SECONDS", -1.0)


class Stopped(Exception):  # noqa: N818
    """Ends training in the middle of a task."""


class TrainedScenario:
    """One scenario trained_scenario with one method and one backbone, and all that was seen on the way."""

    def __init__(self, folder, images, scenario, *, stop_in=None, **arguments):
        method, size, colour = arguments["method"], arguments["size"], arguments["colour"]
        backbone, backbone_options = arguments["backbone"], arguments["backbone_options"]
        self.folder = RunFolder(folder)
        self.scenario = scenario
        self.make_method = lambda: make_method(method, images.num_classes)
        channels = images.images.shape[-1]
        preprocess = Preprocess(size=size, mean=(0.3,) * channels, std=(0.3,) * channels, colour=colour)

        def make_encoder():
            network = build_backbone(backbone, **backbone_options)
            dim = self.make_method().feature_dim(network.feature_dim)
            self.made.append(Encoder(network, dim, preprocess=preprocess))
            return self.made[-1]

        def load_model(name):
            self.made.append(Encoder.from_pretrained(name))
            return self.made[-1]

        self.make_encoder, self.load_model = make_encoder, load_model
        self.made = []
        self.all_images, self.arguments = images, arguments
        self.images = DeviceImages(images)
        self.events = []
        self.encoders = {}
        if stop_in is None:
            self.train()
        else:
            with pytest.raises(Stopped):
                self.train(stop_in)

    def stopped_within(self, task):
        """The same, stopped in the middle of a task, behind a checkpoint."""
        folder = self.folder.path.parent / f"{self.folder.path.name}-stopped"
        return TrainedScenario(folder, self.all_images, self.scenario, stop_in=task, **self.arguments)

    def train(self, stop_in=None):
        def log(event):
            self.events.append(event)
            if event.kind in ("pulse", "epoch") and event.task == stop_in and event.step >= 2:
                raise Stopped

        train_scenario(
            self.scenario,
            self.images,
            self.folder,
            ScenarioSetup(
                make_encoder=self.make_encoder,
                make_method=self.make_method,
                options=OPTIONS,
                load_model=self.load_model,
            ),
            control=RunControl(log),
            after_task=lambda task, encoder: self.encoders.__setitem__(task.number, encoder),
        )


class ThirdTask:
    """Two more classes after the six of the first two tasks."""

    number, num_new, num_seen, slots = 3, 2, 8, range(8)
    start = reference = "previous"


def make_method(name, num_classes):
    takes_slots = "slots" in inspect.signature(METHODS[name]).parameters
    return METHODS[name](**({"slots": num_classes + 2} if takes_slots else {}))


def first_tasks(name, images, num_slots, count, folder=None, dim=None):
    brought_in = {}
    if name == "iam_cl2r":
        models = [saved_model(folder / str(seed), dim, num_slots, seed) for seed in (1, 2)]
        cards = {path: ModelSpace(dim or 32, registry) for path, registry in models}
        first, second = cards
        brought_in = {"models": cards, "model": first, "replace_at": (3,), "replace_with": (second,)}
    scenario = SCENARIOS[name](
        images.labels,
        images.class_names,
        num_slots=num_slots,
        seed=0,
        initial=2,
        increment=2,
        buffer_per_class=2,
        **brought_in,
    )
    assert len(scenario) >= count
    return Scenario(scenario.name, scenario.tasks[:count])


def saved_model(folder, dim, num_slots, seed):
    """An untrained model in a folder, and its slots: one class of pre-training where there is a simplex."""
    torch.manual_seed(seed)
    registry = None if num_slots is None else SlotRegistry(num_slots).take_left(["pre-trained"])
    preprocess = Preprocess(size=16, mean=(0.3,), std=(0.3,), colour="grey")
    info = {} if registry is None else {"slots": registry.to_json()}
    Encoder(build_backbone("small", width=8), dim, preprocess=preprocess, info=info).save_pretrained(folder)
    return str(folder), registry


def holds(trained_scenario: TrainedScenario, test_images: np.ndarray, snapshot) -> None:
    """The contract itself."""
    epochs = [event for event in trained_scenario.events if event.kind == "epoch"]
    numbers = [task.number for task in trained_scenario.scenario.tasks]
    assert list(dict.fromkeys(event.task for event in epochs)) == numbers
    assert all(math.isfinite(value) for event in epochs for value in event.terms.values())
    features = {}
    for number in numbers:
        loaded = Encoder.from_pretrained(trained_scenario.folder.model(number))
        features[number] = loaded.encode(test_images)
        assert features[number].shape == (len(test_images), loaded.dim)
        torch.testing.assert_close(features[number].norm(dim=1), torch.ones(len(test_images)))
        assert torch.equal(features[number], trained_scenario.encoders[number].encode(test_images))
        task = trained_scenario.scenario.tasks[number - 1]
        assert loaded.info["slots"] == task.registry.to_json()
        assert len(task.slots) == task.num_seen
    assert torch.equal(features[1], trained_scenario.made[0].encode(test_images))  # the very object that was trained
    assert not torch.equal(features[1], features[2])
    stopped = trained_scenario.stopped_within(2)
    stopped.train()
    for number in numbers:
        for file in sorted(trained_scenario.folder.model(number).iterdir()):
            assert file.read_bytes() == (stopped.folder.model(number) / file.name).read_bytes(), file
    before, seen = snapshot(trained_scenario.folder.path), len(trained_scenario.events)
    trained_scenario.train()
    assert snapshot(trained_scenario.folder.path) == before
    assert len(trained_scenario.events) == seen


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("method", METHODS)
def test_method_in_scenario(method, scenario, tmp_path, glyph_images, test_images, snapshot):
    made = make_method(method, glyph_images.num_classes)
    # The third starts from what the second kept, or from a replacement.
    tasks = first_tasks(scenario, glyph_images, made.num_slots, 3, tmp_path / "models", made.feature_dim(32))
    trained_scenario = TrainedScenario(
        tmp_path / "run",
        glyph_images,
        tasks,
        backbone="small",
        backbone_options={"width": 8},
        method=method,
        size=16,
        colour="grey",
    )
    holds(trained_scenario, test_images.images, snapshot)


@pytest.mark.parametrize("method", METHODS)
def test_what_a_method_keeps_gives_the_same_loss_again(method, tmp_path, glyph_images, two_tasks, make_small):
    """A fresh method, begun and loaded from the folder, stands where the trained one stood."""
    folder = RunFolder(tmp_path)
    dim = make_method(method, 6).feature_dim(32)
    seen = []

    def kept_method():
        seen.append(make_method(method, 6))
        return seen[-1]

    train_scenario(
        two_tasks,
        DeviceImages(glyph_images),
        folder,
        ScenarioSetup(
            make_encoder=lambda: make_small(dim),
            make_method=kept_method,
            options=OPTIONS,
        ),
    )
    trained = seen[-1]
    fresh = make_method(method, 6)
    torch.manual_seed(1)  # what begin draws anew must be replaced by what was saved
    fresh.begin(two_tasks.tasks[1], dim)
    fresh.restore(read_torch(folder.method(2))[0])
    for one in (trained, fresh):
        torch.manual_seed(2)
        one.begin(ThirdTask(), dim)
    z, z_old = torch.randn(8, dim), torch.randn(8, dim)
    z_old = {"none": None, "replayed": z_old[:3], "all": z_old}[trained.old_features]
    zero, z_kept = torch.zeros(()), torch.nn.functional.normalize(torch.randn(3, 2, dim), dim=-1)
    arguments = {"z_old": z_old, "z_view": z.flip(1), "z_kept": z_kept, "progress": Progress(zero, zero, 1)}
    batch = Batch(torch.tensor([0, 1, 2, 3, 4, 5, 6, 7]), 3)
    expected, found = (one.loss(z, batch, **arguments) for one in (trained, fresh))
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.fixture(scope="module")
def colour_images() -> ImageSet:
    """Four classes of four random 32 x 32 RGB images."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
    return canonical(images, np.repeat(np.arange(4), 4), ["a", "b", "c", "d"], source="random")


@pytest.fixture(scope="module")
def quarter_images(colour_images) -> ImageSet:
    """The same, a quarter of each: for networks that take any size and much time."""
    corners = np.ascontiguousarray(colour_images.images[:, :16, :16])
    return canonical(corners, colour_images.labels, colour_images.class_names, source="random")


def test_backbone(backbone_of_table, tmp_path, colour_images, quarter_images, snapshot):
    name, options = backbone_of_table
    images = quarter_images if name in HEAVY else colour_images
    trained_scenario = TrainedScenario(
        tmp_path,
        images,
        first_tasks("cl2r", images, images.num_classes + 2, 2),
        backbone=name,
        backbone_options=options,
        method="simplex_hoc",
        size=images.images.shape[1],
        colour="rgb",
    )
    holds(trained_scenario, images.images[::4], snapshot)


HEAVY = ("senet18", "regnety_400mf", "resnet18", "resnet50")
OF_IMAGES = [name for name in BACKBONES if name not in ("identity", "linear", "mlp", "residual")]  # those take vectors


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.slow] if name in HEAVY else []) for name in OF_IMAGES])
def backbone_of_table(request):
    builder = BACKBONES[request.param]
    takes_channels = "in_channels" in inspect.signature(builder).parameters
    return request.param, {"in_channels": 3} if takes_channels else {}


def test_transformers_backbone(tmp_path, colour_images, snapshot):
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=16,
    )
    (tmp_path / "vit").mkdir()
    (tmp_path / "vit" / "config.json").write_text(json.dumps(config.to_dict()))
    trained_scenario = TrainedScenario(
        tmp_path / "run",
        colour_images,
        first_tasks("cl2r", colour_images, colour_images.num_classes + 2, 2),
        backbone=f"hf:{tmp_path / 'vit'}",
        backbone_options={},
        method="simplex_hoc",
        size=32,
        colour="rgb",
    )
    holds(trained_scenario, colour_images.images[::4], snapshot)

"""What a run will take of a GPU, as far as it can be known without one."""

import inspect

import numpy as np
import pytest
import torch

from holdfast.train.data.device_images import DeviceImages
from holdfast.train.data.images import canonical
from holdfast.train.encoders import Encoder, build_backbone
from holdfast.train.engine.kept_features import BufferFeatures, KeptFeatures
from holdfast.train.experiments.assemble import assemble
from holdfast.train.experiments.load import read_recipe
from holdfast.train.experiments.schema import check_recipe
from holdfast.train.methods import FAN, METHODS, SimplexHOCViews
from holdfast.train.scenarios import cl2r
from papers.sweeps import gpu_memory
from papers.sweeps.gpu_memory import feature_phase_bytes, kept_feature_bytes, matrix_feature_bytes

LABELS = np.repeat(np.arange(6), 4)


def scenario(tasks: int):
    first = 6 if tasks == 1 else 2
    return cl2r(LABELS, [str(label) for label in range(6)], initial=first, tasks=tasks, buffer_per_class=1)


def test_the_map_of_fan_is_counted():
    enter, leave = 8 * 24 + 24, 24 * 8 + 8
    state = torch.random.get_rng_state()
    assert feature_phase_bytes(FAN(widening=3), scenario(3), 8) == 4 * (enter + leave)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert feature_phase_bytes(FAN(widening=3), scenario(1), 8) == 0  # there is no model to map from


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"fan"}))
def test_the_others_train_nothing_on_features(name):
    takes = inspect.signature(METHODS[name]).parameters
    method = METHODS[name](**({"slots": 6} if "slots" in takes else {}))
    assert feature_phase_bytes(method, scenario(3), 5) == 0


@pytest.mark.parametrize(
    ("slots", "compact", "size", "bases"),
    [(33, False, 32, 0), (33, True, 32, 0), (101, False, 100, 0), (101, True, 64, 3 * 100 * 64)],
)
def test_compact_vectors_have_the_backbones_size(slots, compact, size, bases):
    """Queries of one model and galleries of three, as the matrix holds them; compact ones beside their bases."""
    encoder = Encoder(build_backbone("resnet32"), dim=slots - 1)
    assert encoder.feature_dim == 64
    assert matrix_feature_bytes(encoder, 7, 11, 3, compact=compact) == 4 * ((7 + 3 * 11) * size + bases)


def test_what_the_buffer_remembers_is_counted():
    tasks = scenario(3).tasks
    pixels = np.random.default_rng(0).integers(0, 255, (len(LABELS), 4, 4, 3), np.uint8)
    images = DeviceImages(canonical(pixels, LABELS, [str(label) for label in range(6)], source="made up"))
    last = tasks[-1]
    past = [
        BufferFeatures(torch.from_numpy(task.buffer_indices), torch.ones(len(task.buffer_indices), 5))
        for task in tasks[1:]
    ]
    table = KeptFeatures(last, images, past).table
    assert kept_feature_bytes(SimplexHOCViews(slots=6), scenario(3), 5) == table.nbytes == 4 * 4 * 2 * 5
    assert kept_feature_bytes(SimplexHOCViews(slots=6, anchor_weight=0), scenario(3), 5) == 0
    assert kept_feature_bytes(SimplexHOCViews(slots=6), scenario(1), 5) == 0  # nothing is past


def test_a_run_is_told_both(tiny_recipe, monkeypatch):
    """All but what only a GPU can tell, for a simplex larger than the backbone's features."""
    monkeypatch.setattr(gpu_memory, "_peak", lambda *args: 0)
    own = ["method.name=simplex_hoc_views", "method.slots=500", "evaluation.compact=true"]

    def predicted_for(*settings, compact):
        experiment = assemble(check_recipe(read_recipe(str(tiny_recipe), [*own, *settings])))
        images = DeviceImages(experiment.data.train)
        return experiment, gpu_memory.bytes_per_run(experiment, images, compact=compact)

    experiment, full = predicted_for(compact=False)
    _, compact = predicted_for(compact=True)
    data, count, encoder = experiment.data, len(experiment.scenario), experiment.make_encoder()
    sizes = (len(data.query), len(data.gallery), count)
    by_hand = [matrix_feature_bytes(encoder, *sizes, compact=way) for way in (True, False)]
    assert compact - full == by_hand[0] - by_hand[1] != 0
    _, backbone = predicted_for("evaluation.readout=backbone", compact=False)
    encoder.readout = "backbone"
    assert full - backbone == by_hand[1] - matrix_feature_bytes(encoder, *sizes, compact=False) > 0
    assert predicted_for("evaluation.readout=backbone", compact=True)[1] == backbone  # nothing to make smaller
    _, without = predicted_for("method.anchor_weight=0.0", compact=False)
    assert full - without == kept_feature_bytes(experiment.make_method(), experiment.scenario, encoder.dim) > 0

"""What a run will take of a GPU, as far as it can be known without one."""

import inspect

import numpy as np
import pytest
import torch

from holdfast.train.data.device_images import DeviceImages
from holdfast.train.data.images import canonical
from holdfast.train.encoders import Encoder, build_backbone
from holdfast.train.engine.kept_features import BufferFeatures, KeptFeatures
from holdfast.train.methods import METHODS, SimplexHOCViews
from holdfast.train.scenarios import cl2r
from papers.sweeps.gpu_memory import feature_phase_bytes, kept_feature_bytes, matrix_feature_bytes

LABELS = np.repeat(np.arange(6), 4)


def scenario(tasks: int):
    first = 6 if tasks == 1 else 2
    return cl2r(LABELS, [str(label) for label in range(6)], initial=first, tasks=tasks, buffer_per_class=1)


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

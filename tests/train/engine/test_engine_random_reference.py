"""``FitOptions.random_reference``: the first model is compared with a network of random weights."""

import pytest
import torch

from holdfast.core.run_folder import RunFolder
from holdfast.train.engine import FitOptions, ScenarioSetup, train_scenario
from holdfast.train.methods import ER, SimplexHOC
from holdfast.train.scenarios import cl2r
from holdfast.train.tensor_files import read_torch


def trained(folder, glyph_images, device_images, make_small, make_method, **options):
    """The terms of each task's loss, and the weights of the first model."""
    scenario = cl2r(glyph_images.labels, glyph_images.class_names, initial=2, tasks=2, buffer_per_class=2)
    terms = []

    class Watched(make_method):
        def loss(self, z, batch, **inputs):
            found = super().loss(z, batch, **inputs)
            terms.append(sorted(found))
            return found

    setup = ScenarioSetup(
        make_encoder=lambda: make_small(5),
        make_method=lambda: Watched(**({"slots": 6} if make_method is SimplexHOC else {})),
        options=FitOptions(epochs=1, batch_size=8, lr=0.01, crop_padding=1, flip=False, **options),
    )
    train_scenario(scenario, device_images, RunFolder(folder), setup)
    return terms, read_torch(RunFolder(folder).model(1) / "model.safetensors")[0]


@pytest.fixture
def train(glyph_images, device_images, make_small):
    return lambda folder, method, **options: trained(folder, glyph_images, device_images, make_small, method, **options)


def test_the_first_task_has_a_contrast_only_with_a_random_reference(train, tmp_path):
    plain, _ = train(tmp_path / "plain", SimplexHOC)
    compared, _ = train(tmp_path / "compared", SimplexHOC, random_reference=True)
    assert plain[0] == ["ce"]
    assert compared[0] == ["ce", "nce"]
    assert plain[-1] == compared[-1] == ["ce", "nce"]


def test_methods_without_an_old_model_do_not_change(train, tmp_path):
    (_, one), (_, other) = train(tmp_path / "one", ER), train(tmp_path / "other", ER, random_reference=True)
    assert all(torch.equal(one[name], other[name]) for name in one)

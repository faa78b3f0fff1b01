"""What a method sees when it looks at the data, and the training on features that may follow a task."""

import pytest
import torch
from torch import nn

from holdfast.core.errors import HoldfastError
from holdfast.train.data.device_images import DeviceImages
from holdfast.train.engine.feature_phase import train_on_features
from holdfast.train.engine.fit import arrival_labels
from holdfast.train.engine.survey import TaskFeatures
from holdfast.train.methods import ER, FeaturePhase, Method


@pytest.fixture
def survey_of(glyph_images, two_tasks, make_small):
    def make(*, flips=False, old=None):
        images, task = DeviceImages(glyph_images), two_tasks.tasks[1]
        encoder = make_small(5, seed=1).train()
        labels = arrival_labels(task, images)
        return TaskFeatures(encoder, encoder.preprocess, old, images, labels, task, flips=flips)

    return make


def test_new_and_buffered_images_in_eval_mode(survey_of, glyph_images):
    survey = survey_of()
    z, labels = survey.new()
    rows = [*survey.task.new_indices, *survey.task.buffer_indices]
    assert survey.encoder.training  # as it was
    expected = survey.encoder.eval()(survey.encoder.preprocess(glyph_images.images[rows])).detach()
    assert torch.allclose(z, expected, atol=1e-6)
    assert not z.requires_grad
    arrival = {label: i for i, label in enumerate(survey.task.seen_classes)}
    assert labels.tolist() == [arrival[label] for label in glyph_images.labels[rows].tolist()]


def test_the_previous_model_or_none(survey_of, make_small):
    assert survey_of().old() is None
    old = make_small(5, seed=2).eval()
    found = survey_of(old=old).old()
    assert found is not None
    assert not torch.allclose(found[0], survey_of().new()[0], atol=1e-3)


class Mapped(Method):
    """A toy with nothing but a linear map to learn on features."""

    def __init__(self, target=None):
        super().__init__()
        self.map = nn.Linear(5, 5, bias=False)
        self.target = target

    def feature_dim(self, backbone_dim):
        return backbone_dim

    def begin(self, task, dim):
        pass

    def loss(self, z, batch, *, z_old=None, z_view=None, z_kept=None, progress):
        return {"none": z.sum() * 0}

    def feature_phase(self):
        return FeaturePhase([self.map.weight], self.map_loss, epochs=60, batch_size=8, lr=0.05)

    def map_loss(self, z_old, z, labels):
        wanted = z if self.target is None else self.target
        return {"map": (self.map(z_old) - wanted).square().mean()}


def test_a_map_is_learned(survey_of, make_small):
    survey = survey_of(old=make_small(5, seed=2).eval())
    method = Mapped()
    z_old, z = survey.old()[0], survey.new()[0]
    before = (method.map(z_old) - z).square().mean().item()
    weights = [p.detach().clone() for p in survey.encoder.parameters()]
    train_on_features(method, survey, seed=0, task=2)
    assert (method.map(z_old) - z).square().mean().item() < 0.5 * before
    assert all(torch.equal(a, b) for a, b in zip(weights, survey.encoder.parameters()))


def test_the_same_seed_learns_the_same_map(survey_of, make_small):
    survey = survey_of(old=make_small(5, seed=2).eval())
    maps = []
    for seed in (0, 0, 1):
        torch.manual_seed(3)
        method = Mapped()
        train_on_features(method, survey, seed=seed, task=2)
        maps.append(method.map.weight.detach())
    assert torch.equal(maps[0], maps[1])
    assert not torch.equal(maps[0], maps[2])


def test_a_map_that_becomes_nan_is_refused(survey_of, make_small):
    survey = survey_of(old=make_small(5, seed=2).eval())
    with pytest.raises(HoldfastError, match="map learned after task 2"):
        train_on_features(Mapped(target=torch.tensor(float("nan"))), survey, seed=0, task=2)


def test_mirrored_where_training_flips(survey_of):
    plain, _ = survey_of().new()
    both, labels = survey_of(flips=True).new(mirrored=True)
    assert len(survey_of(flips=False).new(mirrored=True)[0]) == len(survey_of(flips=True).new()[0]) == len(plain)
    assert len(both) == len(labels) == 2 * len(plain)
    assert torch.allclose(both[: len(plain)], plain, atol=1e-6)
    assert not torch.allclose(both[len(plain) :], plain, atol=1e-3)


def test_nothing_happens_without_a_phase_or_a_previous_model(survey_of):
    method = Mapped()
    before = method.map.weight.detach().clone()
    train_on_features(method, survey_of(), seed=0, task=1)
    train_on_features(ER(), survey_of(), seed=0, task=1)
    assert torch.equal(method.map.weight, before)

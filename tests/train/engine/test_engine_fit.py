"""The loop: what it gives a method, what it leaves alone, and that the same call gives the same weights."""

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import nn

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.engine import FitOptions, fit
from holdfast.train.engine.fit import arrival_labels, use_channels_last
from holdfast.train.engine.model_slots import read_slots
from holdfast.train.events import StepsDone, TaskBegan
from holdfast.train.methods import ER, Method, SimplexFD, SimplexHOC
from holdfast.train.randomness import derived_seed
from holdfast.train.scenarios import cl2r

OPTIONS = FitOptions(epochs=2, batch_size=8, lr=0.05, crop_padding=1)


class Probe(Method):
    """Minimises |z|^2 and writes down everything it was given."""

    reads_view: ClassVar[bool] = True

    def __init__(self):
        super().__init__()
        self.calls = []

    def feature_dim(self, backbone_dim):
        return backbone_dim

    def begin(self, task, dim):
        self.calls.clear()

    def loss(self, z, batch, *, z_old=None, z_view=None, z_kept=None, progress):
        seen = {"z": z.detach(), "z_view": z_view, "z_old": z_old, "labels": batch.labels, "replayed": batch.replayed}
        seen |= {"fraction": progress.fraction.item(), "epoch": progress.epoch.item(), "epochs": progress.epochs}
        self.calls.append(seen)
        return {"size": z.square().mean()}


class Counting(nn.Module):
    """An old model that counts the rows it is asked for."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.rows = []

    def forward(self, x):
        assert not torch.is_grad_enabled()
        self.rows.append(len(x))
        return self.encoder(x)


def same(first, second):
    first, second = first.state_dict(), second.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture
def second_task(two_tasks):
    return two_tasks.tasks[1]


def test_same_call_same_weights(make_small, second_task, device_images):
    results = []
    for disturbance in (1, 2):
        encoder, method = make_small(5), SimplexHOC(slots=6)
        torch.manual_seed(disturbance)  # what the caller's generator did before has no say
        fit(encoder, method, second_task, device_images, old=make_small(5, seed=9), options=OPTIONS)
        results.append((encoder, method))
    assert same(results[0][0], results[1][0])
    assert same(results[0][1], results[1][1])
    assert not same(results[0][0], make_small(5))


def test_another_seed_other_weights(make_small, second_task, device_images):
    encoders = []
    for seed in (0, 1):
        encoders.append(make_small())
        fit(encoders[-1], ER(), second_task, device_images, options=FitOptions(epochs=1, batch_size=8, seed=seed))
    assert not same(*encoders)


def test_seeds_differ_by_task_and_purpose():
    seeds = {derived_seed(s, t, purpose) for s in (0, 1) for t in (1, 2) for purpose in ("weights", "augment")}
    assert len(seeds) == 8


def test_old_model_is_left_as_it_was(make_small, second_task, device_images):
    old = make_small(5, seed=9)
    fit(make_small(5), SimplexHOC(slots=6), second_task, device_images, old=old.train(), options=OPTIONS)
    assert same(old, make_small(5, seed=9))  # batch norm's running means included
    assert not any(module.training for module in old.modules())
    assert not any(parameter.requires_grad for parameter in old.parameters())


@pytest.mark.parametrize(
    ("method", "dim", "rows"), [(ER(), None, None), (SimplexFD(slots=6), 5, 4), (SimplexHOC(slots=6), 5, 8)]
)
def test_old_features_only_of_the_images_asked_for(method, dim, rows, make_small, second_task, device_images):
    old = Counting(make_small(dim))
    fit(make_small(dim), method, second_task, device_images, old=old, options=OPTIONS)
    steps = 2 * ((24 + 6) // 8)  # two epochs of 24 new and 6 kept images
    assert old.rows == ([] if rows is None else [rows] * steps)


def test_second_view(make_small, second_task, device_images):
    probe = Probe()
    fit(make_small(), probe, second_task, device_images, options=OPTIONS)
    for call in probe.calls:
        assert call["z_view"].shape == call["z"].shape
        assert call["z_view"].requires_grad
        assert not torch.equal(call["z_view"], call["z"])
        assert call["z_old"] is None
    probe.reads_view = False
    fit(make_small(), probe, second_task, device_images, options=OPTIONS)
    assert all(call["z_view"] is None for call in probe.calls)


def test_labels_are_numbered_by_arrival(glyph_images, device_images):
    task = cl2r(glyph_images.labels, glyph_images.class_names, initial=3, tasks=2, order_seed=3).tasks[0]
    labels = arrival_labels(task, device_images)
    for position, label in enumerate(task.seen_classes):
        assert set(labels[device_images.labels == label].tolist()) == {position}
    assert (labels == -1).sum() == 24


def test_events(make_small, second_task, device_images):
    events = []
    fit(make_small(), Probe(), second_task, device_images, options=OPTIONS, on_event=events.append)
    begin, *rest = [event for event in events if not isinstance(event, StepsDone)]
    assert begin == TaskBegan(task=2, step=0, steps=6, classes=6, executor="eager")
    expected = {"event": "begin", "task": 2, "step": 0, "steps": 6, "classes": 6, "executor": "eager"}
    assert begin.to_json() == expected
    assert [(e.kind, e.epoch, e.step) for e in rest] == [("epoch", 1, 3), ("epoch", 2, 6)]
    for event in rest:
        assert event.loss == event.terms["size"] > 0


def test_logged_terms_are_means_over_the_epoch(make_small, second_task, device_images):
    probe, events = Probe(), []
    fit(make_small(), probe, second_task, device_images, options=OPTIONS, on_event=events.append)
    losses = [call["z"].square().mean().item() for call in probe.calls]
    means = [event.loss for event in events if event.kind == "epoch"]
    assert means == pytest.approx([sum(losses[:3]) / 3, sum(losses[3:]) / 3])


def test_bf16_reaches_the_features_and_not_the_loss(make_small, second_task, device_images):
    probe = Probe()
    fit(make_small(5), probe, second_task, device_images, options=FitOptions(epochs=1, batch_size=8, precision="bf16"))
    assert {call["z"].dtype for call in probe.calls} == {torch.bfloat16}
    hoc, dtypes = SimplexHOC(slots=6), set()
    plain = hoc.loss

    def watched(*args, **kwargs):
        terms = plain(*args, **kwargs)
        dtypes.update(term.dtype for term in terms.values())
        return terms

    hoc.loss = watched
    options = FitOptions(epochs=1, batch_size=8, precision="bf16")
    fit(make_small(5), hoc, second_task, device_images, old=make_small(5, seed=9), options=options)
    assert dtypes == {torch.float32}


def test_the_slots_of_the_classes_are_recorded(make_small, second_task, device_images):
    encoder, old = make_small(5), make_small(5, seed=9)
    encoder.info = {"mine": 1, "slots": "of an earlier training"}
    fit(encoder, SimplexHOC(slots=6), second_task, device_images, old=old, options=OPTIONS)
    assert encoder.info == {"mine": 1, "slots": second_task.registry.to_json()}
    assert read_slots(encoder, Path("here")).owners == second_task.registry.owners


def test_the_simplex_has_more_slots_than_the_scenario_was_told_of(make_small, second_task, device_images):
    encoder, old = make_small(29), make_small(29, seed=9)
    fit(encoder, SimplexHOC(slots=30), second_task, device_images, old=old, options=OPTIONS)
    assert second_task.registry.num_slots == 6
    assert read_slots(encoder, Path("here")) == replace(second_task.registry, num_slots=30)


def test_a_method_without_a_simplex_leaves_no_slots(make_small, second_task, device_images):
    encoder = make_small()
    encoder.info = {"mine": 1, "slots": second_task.registry.to_json()}
    fit(encoder, ER(), second_task, device_images, options=OPTIONS)
    assert encoder.info == {"mine": 1}


class UsesView(nn.Module):
    """A network whose code does not allow features that are channels-last."""

    feature_dim = 4 * 8 * 8

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x):
        return self.conv(x).view(len(x), -1)


@pytest.mark.parametrize("backbone", [UsesView(), build_backbone("small", in_channels=3, width=4)])
def test_channels_last_is_used_where_the_network_allows_it(backbone):
    encoder = Encoder(backbone, 5, preprocess=Preprocess(8, (0.5,) * 3, (0.5,) * 3)).train()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    use_channels_last(encoder, encoder.preprocess, torch.device("cpu"))
    weight = next(value for value in encoder.parameters() if value.ndim == 4)
    assert weight.is_contiguous(memory_format=torch.channels_last) != isinstance(backbone, UsesView)
    assert encoder.training
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    encoder(torch.zeros(2, 3, 8, 8)).sum().backward()


def test_progress_and_batches(make_small, second_task, device_images):
    probe = Probe()
    fit(make_small(), probe, second_task, device_images, options=OPTIONS)
    assert [call["fraction"] for call in probe.calls] == pytest.approx([i / 6 for i in range(6)])
    assert [call["epoch"] for call in probe.calls] == [0, 0, 0, 1, 1, 1]
    for call in probe.calls:
        assert call["epochs"] == 2
        assert call["replayed"] == 4
        assert call["labels"][:4].max() <= 2  # classes of the first task, then those of the second
        assert set(call["labels"][4:].tolist()) <= {3, 4, 5}


@pytest.mark.parametrize(
    "options", [{"optimizer": "adamw", "lr": 1e-3}, {"precision": "bf16"}, {"draw": "independent"}]
)
def test_other_ways_to_train(options, make_small, second_task, device_images):
    encoder, events = make_small(5), []
    chosen = FitOptions(epochs=2, batch_size=8, **options)
    old = make_small(5, seed=9)
    fit(encoder, SimplexHOC(slots=6), second_task, device_images, old=old, options=chosen, on_event=events.append)
    terms = [value for e in events if e.kind == "epoch" for value in e.terms.values()]
    assert len(terms) == 4
    assert torch.isfinite(torch.tensor(terms)).all()
    assert all(p.dtype == torch.float32 and p.isfinite().all() for p in encoder.parameters())


def test_encoder_without_preprocess_is_refused(second_task, device_images):
    with pytest.raises(HoldfastError, match="no preprocess"):
        fit(Encoder(build_backbone("small", width=8)), ER(), second_task, device_images)

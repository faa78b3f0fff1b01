"""Executors on a CPU: what can run here does the same, what cannot is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from holdfast.backbones import Encoder, Preprocess, build_backbone
from holdfast.data import ImageSet
from holdfast.data.device import DeviceImages
from holdfast.data.stream import StreamedImages
from holdfast.engine import FitOptions
from holdfast.engine.executors import _why_not_fused, kind_of, make_executor
from holdfast.engine.fit import prepare_step
from holdfast.errors import HoldfastError
from holdfast.methods import SimplexHOC, SimplexHOCViews
from holdfast.scenarios import cl2r


@pytest.fixture
def step_of(glyph_images, two_tasks, make_small):
    def make():
        method = SimplexHOC(slots=8)
        options = FitOptions(epochs=4, batch_size=8, lr=0.01, flip=False)
        images = DeviceImages(glyph_images)
        step, _ = prepare_step(make_small(7), method, two_tasks.tasks[1], images, old=make_small(7, 1), options=options)
        return step

    return make


def test_auto_is_eager_on_a_cpu(step_of):
    step = step_of()
    assert make_executor("auto", step) is step


def test_a_graph_needs_a_gpu(step_of):
    with pytest.raises(HoldfastError, match="needs a GPU"):
        make_executor("graph", step_of())


def test_a_step_walks_through_its_epoch(step_of):
    """The step finds its own batch: the same images as the plan says, epoch after epoch."""
    step, seen = step_of(), []
    step.images.__class__.__getitem__, real = (
        lambda self, indices: seen.append(indices.tolist()) or real(self, indices),
        step.images.__class__.__getitem__,
    )
    try:
        for _ in range(2 * len(step.batches)):
            step()
    finally:
        step.images.__class__.__getitem__ = real
    assert seen == 2 * step.batches.tolist()
    assert int(step.done) == 2 * len(step.batches)


def test_a_neighbour_that_empties_the_cast_weights_changes_nothing(glyph_images, two_tasks, make_small):
    """The cache of weights cast to bf16 belongs to the whole process; leaving a step of another thread empties it."""

    def trained(disturbed):
        method = SimplexHOCViews(slots=8, anchor_weight=0.0)
        options = FitOptions(epochs=4, batch_size=8, lr=0.1, flip=False, precision="bf16")
        images, encoder = DeviceImages(glyph_images), make_small(7)
        step, _ = prepare_step(encoder, method, two_tasks.tasks[1], images, old=make_small(7, 1), options=options)
        if disturbed:
            encoder.register_forward_hook(lambda *_: torch.clear_autocast_cache())
        for _ in range(4):
            step()
        return torch.cat([p.detach().flatten() for p in encoder.parameters()])

    assert torch.equal(trained(True), trained(False))


@pytest.mark.slow
def test_compiled_agrees_with_eager(step_of):
    eager, compiled = step_of(), step_of()
    run_eager, run_compiled = make_executor("eager", eager), make_executor("compiled", compiled)
    for _ in range(4):
        run_eager()
        run_compiled()
    torch.testing.assert_close(compiled.tally.sums, eager.tally.sums, rtol=1e-4, atol=1e-6)
    for a, b in zip(eager.encoder.parameters(), compiled.encoder.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    assert "_orig_mod" not in "".join(compiled.encoder.state_dict())


@pytest.fixture
def resnet_step():
    """A bf16 step of ResNet-32 as a GPU would have it, on images of some size."""

    def make(height, width, placed=DeviceImages, backbone="resnet32", **options):
        labels = np.repeat(np.arange(4), 4)
        images = ImageSet(np.zeros((16, height, width, 3), np.uint8), labels, tuple("abcd"), "zeros")
        size = options.get("resized_crop") or (height, width)
        preprocess = Preprocess(size=size, mean=(0.5,) * 3, std=(0.25,) * 3)
        encoder = Encoder(build_backbone(backbone), 3, preprocess=preprocess).to(memory_format=torch.channels_last)
        task = cl2r(labels, tuple("abcd"), initial=2, tasks=2).tasks[0]
        chosen = FitOptions(batch_size=8, precision="bf16", **options)
        step, _ = prepare_step(encoder, SimplexHOC(slots=4), task, placed(images), old=None, options=chosen)
        return step

    return make


@pytest.mark.parametrize("placed", [DeviceImages, StreamedImages])
def test_kernels_are_not_used_on_sides_they_cannot_halve_twice(resnet_step, placed):
    pytest.importorskip("triton")
    assert not _why_not_fused(resnet_step(32, 32, placed))
    assert "36 x 30" in _why_not_fused(resnet_step(36, 30, placed))
    assert not _why_not_fused(resnet_step(37, 37, placed, crop_padding=0, resized_crop=28))
    assert "30 x 30" in _why_not_fused(resnet_step(32, 32, placed, crop_padding=0, resized_crop=30))


def test_kernels_are_used_for_other_networks_too(resnet_step):
    pytest.importorskip("triton")
    assert not _why_not_fused(resnet_step(32, 32, backbone="regnety_400mf"))
    assert "30 x 32" in _why_not_fused(resnet_step(30, 32, backbone="regnety_400mf"))
    assert not _why_not_fused(resnet_step(30, 33, backbone="resnet18"))
    assert not _why_not_fused(resnet_step(30, 33, backbone="senet18"))
    assert "no kernels for" in _why_not_fused(resnet_step(32, 32, backbone="small"))


def test_steps_of_one_kind_call_the_same_kernels(step_of, resnet_step):
    step = step_of()
    assert kind_of(step) == kind_of(step_of())
    assert kind_of(step) == kind_of(replace(step, options=replace(step.options, seed=5)))
    assert kind_of(step) != kind_of(replace(step, old=None))
    assert kind_of(step) != kind_of(replace(step, options=replace(step.options, optimizer="adamw")))
    assert kind_of(step) != kind_of(resnet_step(32, 32))
    assert kind_of(replace(step, compiled=torch.compile)) is None
    from_recipe = replace(step, options=replace(step.options, milestones=[0.5, 0.9]))
    assert kind_of(from_recipe) in {kind_of(from_recipe)}

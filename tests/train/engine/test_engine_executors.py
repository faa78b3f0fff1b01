"""Executors on a CPU: what can run here does the same, what cannot is refused."""

import contextlib
import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.data import ImageSet
from holdfast.train.data.device_images import DeviceImages, StreamedImages
from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.engine import FitOptions, executors
from holdfast.train.engine.executors import capture, chosen_executor, kernel_signature, make_executor
from holdfast.train.engine.fit import prepare_step
from holdfast.train.engine.step import OldModelStream
from holdfast.train.methods import SimplexHOC, SimplexHOCViews
from holdfast.train.scenarios import cl2r
from papers.kernels import fused_network, why_not_fused


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
    assert chosen_executor("auto", step) == "eager"
    assert chosen_executor("compiled", step) == "compiled"


@pytest.mark.parametrize("name", ["graph", "fused"])
def test_a_graph_needs_a_gpu(step_of, name):
    with pytest.raises(HoldfastError, match=f"^executor '{name}' needs a GPU, and this run is on cpu; set it to auto"):
        make_executor(name, step_of())


def test_auto_is_the_graph_on_a_gpu_and_fused_only_by_name(resnet_step, monkeypatch):
    pytest.importorskip("triton")
    step = resnet_step(32, 32)
    assert not why_not_fused(step)  # the kernels could carry it out
    on_gpu = SimpleNamespace(device=torch.device("cuda"), height_width=step.images.height_width)
    step = replace(step, images=on_gpu)
    monkeypatch.setattr(executors, "GraphedStep", lambda step: ("graph of", step))
    assert chosen_executor("auto", step) == "graph"
    assert make_executor("auto", step) == ("graph of", step)  # of the very step that eager calls
    assert chosen_executor("fused", step) == "fused"
    assert make_executor("fused", step)[1].compiled is fused_network


def test_fused_says_why_it_cannot_be_used(resnet_step):
    step = resnet_step(32, 32, backbone="small")
    step = replace(step, images=SimpleNamespace(device=torch.device("cuda"), height_width=(32, 32)))
    with pytest.raises(HoldfastError, match="cannot be used here: there are no kernels for SmallNet; set it to auto"):
        make_executor("fused", step)


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


def test_what_is_done_beside_is_joined_before_it_is_used(step_of, stream_log):
    step = step_of()
    step.old_stream = OldModelStream(SimpleNamespace(stream=NamedStream("beside", stream_log)))
    watch_calls(step.encoder, "forward", "new", stream_log)
    watch_calls(step.old, "forward", "old", stream_log)
    watch_calls(step.method, "loss", "loss", stream_log)
    step()
    assert stream_log == ["beside waits for main", "old", "new", "main waits for beside", "loss"]


def test_a_step_that_fails_leaves_no_branch_open(step_of, stream_log):
    """A graph with an open branch cannot be ended, and that error would hide the one that matters."""
    step = step_of()
    step.old_stream = OldModelStream(SimpleNamespace(stream=NamedStream("beside", stream_log)))
    step._new = lambda x: [][0]
    with pytest.raises(IndexError):
        step()
    assert stream_log == ["beside waits for main", "main waits for beside"]


@pytest.mark.parametrize("ends", [True, False])
def test_a_capture_that_fails_says_why(monkeypatch, stream_log, ends):
    class Graph:
        def capture_begin(self, pool, capture_error_mode):
            stream_log.append("begin")

        def capture_end(self):
            stream_log.append("end")
            if not ends:
                raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    with pytest.raises(ZeroDivisionError):
        capture(lambda: 1 / 0, torch.device("cuda"))
    assert stream_log == ["begin", "end"]


class NamedStream:
    device = torch.device("cuda", 0)

    def __init__(self, name, log):
        self.name, self.log = name, log

    def wait_stream(self, other):
        self.log.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def stream_log(monkeypatch):
    """What a make-believe GPU's streams wait for, in order."""
    log = []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: NamedStream("main", log))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    return log


def watch_calls(owner, function, name, log):
    real = getattr(owner, function)
    setattr(owner, function, lambda *args, **kwargs: log.append(name) or real(*args, **kwargs))


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
    torch.testing.assert_close(compiled.loss_sums.sums, eager.loss_sums.sums, rtol=1e-4, atol=1e-6)
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
    assert not why_not_fused(resnet_step(32, 32, placed))
    assert "36 x 30" in why_not_fused(resnet_step(36, 30, placed))
    assert not why_not_fused(resnet_step(37, 37, placed, crop_padding=0, resized_crop=28))
    assert "30 x 30" in why_not_fused(resnet_step(32, 32, placed, crop_padding=0, resized_crop=30))


def test_kernels_are_used_for_other_networks_too(resnet_step):
    pytest.importorskip("triton")
    assert not why_not_fused(resnet_step(32, 32, backbone="regnety_400mf"))
    assert "30 x 32" in why_not_fused(resnet_step(30, 32, backbone="regnety_400mf"))
    assert not why_not_fused(resnet_step(30, 33, backbone="resnet18"))
    assert not why_not_fused(resnet_step(30, 33, backbone="senet18"))
    assert "no kernels for" in why_not_fused(resnet_step(32, 32, backbone="small"))


def test_the_reason_against_kernels_is_the_real_one(resnet_step):
    pytest.importorskip("triton")
    step = resnet_step(32, 32)
    step.encoder.freeze(["layer1"])
    assert why_not_fused(step) == "the kernels do not support frozen parts, and CifarResNet has some: layer1"
    step.encoder.freeze([])
    old = Encoder(build_backbone("resnet32"), 3)
    assert "channels-last" in why_not_fused(replace(step, old=old))
    assert not why_not_fused(replace(step, old=old.to(memory_format=torch.channels_last)))


def test_steps_of_one_kind_call_the_same_kernels(step_of, resnet_step):
    step = step_of()
    assert kernel_signature(step) == kernel_signature(step_of())
    assert kernel_signature(step) == kernel_signature(replace(step, options=replace(step.options, seed=5)))
    assert kernel_signature(step) != kernel_signature(replace(step, old=None))
    assert kernel_signature(step) != kernel_signature(replace(step, old=Encoder(build_backbone("resnet32"))))
    assert kernel_signature(step) != kernel_signature(replace(step, options=replace(step.options, optimizer="adamw")))
    assert kernel_signature(step) != kernel_signature(resnet_step(32, 32))
    with_networks = copy.deepcopy(step.method)
    with_networks.added = torch.nn.Linear(2, 2)
    assert kernel_signature(step) != kernel_signature(replace(step, method=with_networks))
    assert kernel_signature(replace(step, compiled=torch.compile)) is None
    from_recipe = replace(step, options=replace(step.options, milestones=[0.5, 0.9]))
    assert kernel_signature(from_recipe) in {kernel_signature(from_recipe)}

"""On a GPU: streamed batches arrive in time and are never overrun, eagerly and under a graph."""

import numpy as np
import pytest
import torch

from holdfast.train.data import ImageSet
from holdfast.train.data.device_images import place_images
from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.engine import FitOptions
from holdfast.train.engine.executors import make_executor
from holdfast.train.engine.fit import prepare_step
from holdfast.train.engine.step import old_model_stream
from holdfast.train.methods import SimplexHOC
from holdfast.train.scenarios import cl2r

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
STEPS = 60


@pytest.fixture(autouse=True)
def deterministic(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def after(placement: str, executor: str) -> dict[str, torch.Tensor]:
    pixels = np.random.default_rng(0).integers(0, 256, (600, 32, 32, 3), dtype=np.uint8)
    images = ImageSet(pixels, np.repeat(np.arange(12), 50), tuple("abcdefghijkl"), "random")
    torch.manual_seed(0)
    tasks = cl2r(images.labels, images.class_names, initial=6, tasks=2).tasks
    method = SimplexHOC(slots=12)
    preprocess = Preprocess(size=32, mean=(0.5,) * 3, std=(0.25,) * 3)
    new, old = (Encoder(build_backbone("resnet32"), 11, preprocess=preprocess) for _ in range(2))
    options = FitOptions(epochs=50, batch_size=64, lr=0.01, images=placement)
    placed = place_images(images, torch.device("cuda"), placement)
    step, _ = prepare_step(new, method, tasks[1], placed, old=old, options=options)
    rows = (row for _ in range(50) for row in step.batches.cpu().numpy())
    run = step.source.prefetched(make_executor(executor, step), rows, 0)
    for _ in range(STEPS):
        run()
    torch.cuda.synchronize()
    return {**step.encoder.state_dict(), "sums": step.loss_sums.sums}


@pytest.mark.parametrize("executor", ["eager", "graph"])
def test_streamed_is_resident_bit_for_bit(executor):
    resident, streamed = after("device", executor), after("stream", executor)
    for name, expected in resident.items():
        assert torch.equal(streamed[name], expected), name


def test_no_batch_is_copied_on_a_stream_that_steps_are_captured_on():
    """Task after task asks for a stream, and torch has 32 of one priority that it hands out in turn."""
    images = ImageSet(np.zeros((4, 8, 8, 3), np.uint8), np.arange(4), tuple("abcd"), "blank")
    device = torch.device("cuda")
    captured = old_model_stream(device)._stream.cuda_stream
    streamed = place_images(images, device, "stream")
    assert all(streamed.batch_source(2)._stream.cuda_stream != captured for _ in range(100))

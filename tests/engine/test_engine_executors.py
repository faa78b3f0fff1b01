"""Executors on a CPU: what can run here does the same, what cannot is refused."""

import pytest
import torch

from holdfast.data.device import DeviceImages
from holdfast.engine import FitOptions
from holdfast.engine.executors import make_executor
from holdfast.engine.fit import prepare_step
from holdfast.errors import HoldfastError
from holdfast.methods import SimplexHOC


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

"""A second, short training on stored features, for methods that learn a map between models."""

import torch
from torch import Tensor

from holdfast.core.errors import DivergedError
from holdfast.train.engine.executors import capture, on_stream_to_capture
from holdfast.train.methods import FeaturePhase, Method, Survey

WARM_UP = 3
"""Eager steps before one is captured: the first allocates the optimiser's state."""


def train_on_features(method: Method, survey: Survey, *, seed: int, task: int) -> None:
    """Train the parameters in ``method.feature_phase``, if any, on features of both models, which are computed once.

    survey: gives the features of the task's images.
    seed: of the order of the batches.
    task: number of the task, for error messages.
    """
    phase = method.feature_phase()
    before = survey.old(mirrored=True) if phase is not None else None
    if phase is None or before is None:
        return
    z_old, labels = before
    z, _ = survey.new(mirrored=True)
    step = FeatureStep(phase, z_old, z, labels)
    run = ReplayedFeatureStep(step, phase.batch_size) if z.device.type == "cuda" else step
    generator = torch.Generator(z.device).manual_seed(seed)
    with on_stream_to_capture(z.device):
        for _ in range(phase.epochs):
            for rows in torch.randperm(len(z), generator=generator, device=z.device).split(phase.batch_size):
                run(rows)
    if not bool(step.worst.isfinite()):
        raise DivergedError(
            f"the map learned after task {task} became NaN or infinite; try a lower learning rate for it"
        )


class FeatureStep:
    """One step of Adam on the features of some images; ``worst`` is the largest loss so far, or NaN after a NaN."""

    def __init__(self, phase: FeaturePhase, z_old: Tensor, z: Tensor, labels: Tensor) -> None:
        self._phase = phase
        self._data = (z_old, z, labels)
        self._optimizer = torch.optim.Adam(phase.parameters, lr=phase.lr, capturable=z.device.type == "cuda")
        self.worst = torch.zeros((), device=z.device)

    def __call__(self, rows: Tensor) -> None:
        """rows: of the images in this batch."""
        terms = self._phase.loss(*(values[rows] for values in self._data))
        loss = torch.stack(list(terms.values())).sum()
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        torch.maximum(self.worst, loss.detach(), out=self.worst)


class ReplayedFeatureStep:
    """The same step as a CUDA graph; the first batches and those of another size are eager."""

    def __init__(self, step: FeatureStep, batch_size: int) -> None:
        self._step = step
        self._batch = torch.zeros(batch_size, dtype=torch.long, device=step.worst.device)
        self._eager_left = WARM_UP
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, rows: Tensor) -> None:
        if self._eager_left or len(rows) != len(self._batch):
            self._eager_left = max(0, self._eager_left - 1)
            self._step(rows)
            return
        self._batch.copy_(rows)
        if self._graph is None:
            self._graph = capture(lambda: self._step(self._batch), self._batch.device)
        self._graph.replay()

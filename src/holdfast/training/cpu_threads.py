"""The number of CPU threads of a training step."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from holdfast.training.step import TrainingStep

SMALL_STEP = 2**28
"""Multiply-adds of one forward pass below which a step on vectors runs on one thread."""


@contextmanager
def threads_of_step(step: TrainingStep) -> Iterator[None]:
    """Run steps on vectors on one CPU thread inside the block if they are small.

    A small step is a chain of short operations, and several threads wait for each other after every one. While other
    programs use the cores, that wait is longer than the work: 50 ms instead of 4 ms per step, for an ``mlp`` on batches
    of 32 vectors, two threads and two busy cores. Networks for images have more work per operation and keep all
    threads. The rule depends on sizes alone, so the same call gives the same weights.
    """
    threads = torch.get_num_threads()
    if threads == 1 or not _is_small(step):
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _is_small(step: TrainingStep) -> bool:
    if step.images.device.type != "cpu" or not step.preprocess.takes_vectors:
        return False
    # A network for vectors uses each weight once per vector.
    weights = sum(parameter.numel() for parameter in step.encoder.parameters())
    return weights * step.shard.size <= SMALL_STEP

"""The batches of an epoch: half of each batch from the replay buffer, half new images.

The batches are a pure function of (pools, seed, task, epoch), so a resumed run gets the same ones.
"""

from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

Draw = Literal["walk", "independent"]


class EpochBatches(NamedTuple):
    """The batches of one epoch.

    indices: steps x batch size, rows of the training set.
    replayed: the first so many columns come from the buffer.
    """

    indices: Tensor
    replayed: int


def steps_per_epoch(num_new: int, num_buffer: int, batch_size: int) -> int:
    """All images divided by the batch size, rounded down, at least 1, as in the authors' code."""
    return max(1, (num_new + num_buffer) // batch_size)


def batch_shares(num_new: int, num_buffer: int, batch_size: int) -> tuple[int, int]:
    """Number of replayed and of new images in a batch. A pool smaller than its share is used whole."""
    if num_buffer == 0:
        return 0, min(batch_size, num_new)
    half = batch_size // 2
    return min(half, num_buffer), min(batch_size - half, num_new)


def epoch_batches(
    new: np.ndarray,
    buffer: np.ndarray,
    batch_size: int,
    *,
    seed: int,
    task: int,
    epoch: int,
    draw: Draw = "walk",
) -> EpochBatches:
    """The batches of one epoch, each half from the buffer and half new.

    new: rows of the new images.
    buffer: rows of the buffered images. If empty, batches are a shuffle of ``new`` without a last short batch.
    batch_size: images in a batch; fewer if a pool is smaller than its share.
    seed, task, epoch: seed of the random numbers.
    draw: "walk" takes each half from permutations of its pool, so that no image repeats before all were used once.
        "independent" draws the half of each batch without replacement within the batch, as the authors do.

    The steps are those of both pools together, so the smaller pool is seen several times and the larger in part.
    """
    generator = np.random.default_rng([seed, task, epoch])
    steps = steps_per_epoch(len(new), len(buffer), batch_size)
    replayed, fresh = batch_shares(len(new), len(buffer), batch_size)
    if len(buffer) == 0:
        return EpochBatches(torch.from_numpy(_permutations(new, steps, fresh, generator)), 0)
    pick = _permutations if draw == "walk" else _independent
    columns = [pick(buffer, steps, replayed, generator), pick(new, steps, fresh, generator)]
    return EpochBatches(torch.from_numpy(np.concatenate(columns, axis=1)), replayed)


def _permutations(pool: np.ndarray, steps: int, share: int, generator: np.random.Generator) -> np.ndarray:
    rounds = -(-steps * share // len(pool))
    rows = np.concatenate([generator.permutation(pool) for _ in range(rounds)])
    return rows[: steps * share].reshape(steps, share)


def _independent(pool: np.ndarray, steps: int, share: int, generator: np.random.Generator) -> np.ndarray:
    return np.stack([generator.choice(pool, size=share, replace=False) for _ in range(steps)])

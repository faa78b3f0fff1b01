"""The batches of an epoch: half of each batch from the replay buffer and half new images, or both in proportion.

The batches are a pure function of (pools, seed, task, epoch), so a resumed run gets the same ones.
"""

from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

Draw = Literal["walk", "independent", "mixed"]


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


def batch_shares(num_new: int, num_buffer: int, batch_size: int, draw: Draw = "walk") -> tuple[int, int]:
    """Number of replayed and of new images in a batch. A pool smaller than its share is used whole.

    draw: "mixed" divides a batch in proportion to the pools, with at least one image of each; the others in halves.
    """
    if num_buffer == 0:
        return 0, min(batch_size, num_new)
    replayed = batch_size // 2
    if draw == "mixed":
        in_proportion = round(batch_size * num_buffer / (num_new + num_buffer))
        replayed = min(max(1, in_proportion), batch_size - 1)
    return min(replayed, num_buffer), min(batch_size - replayed, num_new)


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
    """The batches of one epoch.

    new: rows of the new images.
    buffer: rows of the buffered images. If empty, batches are a shuffle of ``new`` without a last short batch.
    batch_size: images in a batch; fewer if a pool is smaller than its share.
    seed, task, epoch: seed of the random numbers.
    draw: "walk" takes half of a batch from each pool, from permutations of it, so that no image repeats before all were
        used once. "independent" draws these halves without replacement within the batch, as the authors do. "mixed"
        takes images from both pools in proportion to their sizes, from permutations of each pool.

    The steps are those of both pools together. With halves, the smaller pool is seen several times and the larger in
    part; with "mixed", every image is seen about once.
    """
    generator = np.random.default_rng([seed, task, epoch])
    steps = steps_per_epoch(len(new), len(buffer), batch_size)
    replayed, fresh = batch_shares(len(new), len(buffer), batch_size, draw)
    if len(buffer) == 0:
        return EpochBatches(torch.from_numpy(_permutations(new, steps, fresh, generator)), 0)
    pick = _independent if draw == "independent" else _permutations
    columns = [pick(buffer, steps, replayed, generator), pick(new, steps, fresh, generator)]
    return EpochBatches(torch.from_numpy(np.concatenate(columns, axis=1)), replayed)


def _permutations(pool: np.ndarray, steps: int, share: int, generator: np.random.Generator) -> np.ndarray:
    rounds = -(-steps * share // len(pool))
    rows = np.concatenate([generator.permutation(pool) for _ in range(rounds)])
    return rows[: steps * share].reshape(steps, share)


def _independent(pool: np.ndarray, steps: int, share: int, generator: np.random.Generator) -> np.ndarray:
    return np.stack([generator.choice(pool, size=share, replace=False) for _ in range(steps)])

"""Which images make a batch: half from the buffer, half new, drawn anew for every epoch.

An epoch's batches are a pure function of (pools, seed, task, epoch): a resumed run asks again and gets the same.
"""

from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

Draw = Literal["walk", "independent"]


class EpochBatches(NamedTuple):
    """indices: steps x batch rows of the training set; the first ``replayed`` columns come from the buffer."""

    indices: Tensor
    replayed: int


def steps_per_epoch(num_new: int, num_buffer: int, batch_size: int) -> int:
    """Floor of all images over the batch size, at least 1: the epoch length of the authors' code."""
    return max(1, (num_new + num_buffer) // batch_size)


def halves(num_new: int, num_buffer: int, batch_size: int) -> tuple[int, int]:
    """How many images of a batch are replayed and how many are new; a pool below its share gives what it has."""
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
    """The batches of one epoch, each half buffer and half new (all new where there is no buffer).

    Without a buffer this is a plain shuffle whose last short batch is dropped. With one, the epoch has as many steps
    as buffer and new images together would fill; the small pool is therefore seen many times, the large one in part.
    draw: "walk" lets each half walk through permutations of its pool, so that no image comes twice before all have
    come once; "independent" draws each batch's half anew, without replacement inside the batch, as the authors do.
    A batch never has more images than there are: for a pool below its share the share becomes the pool.
    """
    generator = np.random.default_rng([seed, task, epoch])
    steps = steps_per_epoch(len(new), len(buffer), batch_size)
    replayed, fresh = halves(len(new), len(buffer), batch_size)
    if len(buffer) == 0:
        return EpochBatches(torch.from_numpy(_walk(new, steps, fresh, generator)), 0)
    pick = _walk if draw == "walk" else _independent
    columns = [pick(buffer, steps, replayed, generator), pick(new, steps, fresh, generator)]
    return EpochBatches(torch.from_numpy(np.concatenate(columns, axis=1)), replayed)


def _walk(pool: np.ndarray, steps: int, share: int, generator: np.random.Generator) -> np.ndarray:
    rounds = -(-steps * share // len(pool))
    walk = np.concatenate([generator.permutation(pool) for _ in range(rounds)])
    return walk[: steps * share].reshape(steps, share)


def _independent(pool: np.ndarray, steps: int, share: int, generator: np.random.Generator) -> np.ndarray:
    return np.stack([generator.choice(pool, size=share, replace=False) for _ in range(steps)])

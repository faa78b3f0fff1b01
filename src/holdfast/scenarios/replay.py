"""The replay buffer: a few images of every class, chosen once and for ever."""

from collections.abc import Iterable

import numpy as np


def buffer_indices(labels: np.ndarray, classes: Iterable[int], per_class: int, seed: int) -> np.ndarray:
    """``per_class`` random rows of each class (all of them where there are fewer), class after class.

    A class's choice depends on the seed and the class alone: it is the same for every method and every number of
    tasks, and it never changes once made.
    """
    chosen = [np.empty(0, dtype=np.int64)]
    for label in classes:
        rows = np.flatnonzero(labels == label)
        generator = np.random.default_rng([seed, label])
        chosen.append(np.sort(generator.choice(rows, size=min(per_class, len(rows)), replace=False)))
    return np.concatenate(chosen)

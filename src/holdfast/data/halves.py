"""One set made into queries and a gallery: a seeded half of each class's images is query, the other half gallery."""

from typing import Literal, get_args

import numpy as np

from holdfast.errors import unknown_name

Part = Literal["query", "gallery"]


def half(labels: np.ndarray, part: str, seed: int) -> np.ndarray:
    """Which images are of ``part``: true for half of each label's, rounded up for the gallery.

    So a class with a single image is in the gallery and never queried. Each label draws for itself: which other
    classes there are changes nothing.

    >>> half(np.array([0, 0, 0, 1]), "gallery", seed=0).sum()
    3
    """
    if part not in get_args(Part):
        raise unknown_name("part", part, get_args(Part))
    query = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        drawn = np.random.default_rng([seed, int(label)]).permutation(rows)
        query[drawn[: len(rows) // 2]] = True
    return query if part == "query" else ~query

"""The pairs that a bridge is fitted on: items that both models embedded, read from files or arrays."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import HoldfastError
from holdfast.vectors.feature_set import FeatureSet
from holdfast.vectors.pairing import Source, open_features, pair_queries
from holdfast.vectors.search import VectorProblems, float32


@dataclass(frozen=True)
class Pairs:
    """Items that both models embedded, the arguments of ``Bridge.fit``.

    new: N x d_new and old: N x d_old; row i of both is the same item.
    labels: the class of each item; None without labels.
    models: names of the two models ("new", "old"), where the files have them.
    found: number of items that both files have; N of them are used.
    only_old, only_new: number of items that only one of the two has.
    """

    new: NDArray[np.float32]
    old: NDArray[np.float32]
    labels: np.ndarray | None
    models: dict[str, str]
    found: int
    only_old: int
    only_new: int

    def __len__(self) -> int:
        return len(self.new)


def read_pairs(old: Source, new: Source, *, most: int | None = None, with_labels: bool = True, seed: int = 0) -> Pairs:
    """The items that both models embedded: paired by id if both have ids, else row by row.

    old, new: vectors of each model: a file (npz, npy, parquet), a ``FeatureSet``, or arrays (features, labels, ids).
    most: at most so many pairs, drawn at random; None takes all. Only these rows are read.
    with_labels: False ignores labels.
    seed: of the draw.
    Refused: no common id, labels that differ, vectors that are zero or not finite.

    >>> import numpy as np
    >>> from holdfast.bridges import read_pairs
    >>> old = (np.eye(4), None, np.array(["a", "b", "c", "d"]))  # vectors, labels, ids
    >>> new = (np.eye(3), None, np.array(["c", "a", "x"]))
    >>> pairs = read_pairs(old, new)
    >>> len(pairs), pairs.only_old, pairs.only_new
    (2, 2, 1)
    """
    if most is not None and most < 1:
        raise HoldfastError(f"pairs: the number of pairs must be at least 1, got {most}")
    before, after = open_features(old, "old", "gallery"), open_features(new, "new", "gallery")
    if not with_labels:
        before, after = replace(before, labels=None), replace(after, labels=None)
    pairing = pair_queries(before, after, "item")
    chosen = np.arange(len(pairing))
    if most is not None and most < len(pairing):
        chosen = np.sort(np.random.default_rng(seed).choice(len(pairing), most, replace=False))
    named = {"new": after.model, "old": before.model}
    return Pairs(
        _usable(after, pairing.new[chosen]),
        _usable(before, pairing.old[chosen]),
        None if pairing.labels is None else pairing.labels[chosen],
        {which: model for which, model in named.items() if model is not None},
        len(pairing),
        len(pairing.only_old),
        len(pairing.only_new),
    )


def _usable(features: FeatureSet, rows: np.ndarray) -> NDArray[np.float32]:
    """These rows as float32; refused if one is zero or not finite."""
    vectors = float32(features.rows.take(rows))
    problems = VectorProblems(features.name, len(features))
    problems.inspect(rows, vectors)
    problems.refuse()
    return vectors

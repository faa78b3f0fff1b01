"""AC, AA and ACA of a compatibility matrix, for all models and for the first tau of them.

C[t, k] in [0, 1] is the score of model t's queries on model k's gallery, T x T. Only the lower triangle with the
diagonal is read. NaN there means that the two models cannot be compared. Such a pair is never compatible. An average
that includes such a cell is NaN, because leaving the cell out would raise the score.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import check_real


def beats(new: ArrayLike, old: ArrayLike) -> NDArray[np.bool_]:
    """Whether the new score is higher than the old one, element by element: the rule for AC.

    A tie does not beat, and NaN neither beats nor is beaten.

    >>> beats([0.6, 0.5, float("nan")], 0.5).tolist()
    [True, False, False]
    """
    return np.asarray(np.greater(new, old))


def compatible_pairs(C: ArrayLike) -> NDArray[np.bool_]:
    """T x T, true where model t beats model k on k's gallery: C[t, k] > C[k, k] for k < t.

    A tie is not compatible, nor is a pair with NaN in either cell.

    >>> compatible_pairs([[0.5, 0], [0.6, 0.7]]).tolist()
    [[False, False], [True, False]]
    """
    C = _lower_triangle(C)
    return np.tril(beats(C, np.diagonal(C)[None, :]), k=-1)


def average_compatibility(C: ArrayLike) -> float:
    """AC: the share of the T(T-1)/2 pairs k < t with C[t, k] > C[k, k], in [0, 1].

    Ties and NaN cells count as not compatible. NaN for T = 1 (no pair).

    >>> average_compatibility([[0.5, 0, 0], [0.6, 0.7, 0], [0.5, 0.8, 0.9]])  # 0.5 over 0.5 is a tie
    0.6666666666666666
    """
    return average_compatibility_up_to(C)[-1]


def average_accuracy(C: ArrayLike) -> float:
    """AA: the mean of the T(T+1)/2 cells with k <= t, in [0, 1]. NaN if one of them is NaN.

    >>> average_accuracy([[0.5, 0], [0.6, 0.7]])
    0.6
    """
    return average_accuracy_up_to(C)[-1]


def average_compatible_accuracy(C: ArrayLike) -> float:
    """ACA: the mean over the pairs k < t of C[t, k] where it is compatible and 0 where it is not, in [0, 1].

    NaN for T = 1 and if any cell of the lower triangle is NaN.

    Differs from the paper: the printed equation lacks the factor C[t, k] and equals AC. The paper's tables include it.

    >>> average_compatible_accuracy([[0.5, 0, 0], [0.6, 0.7, 0], [0.5, 0.75, 0.9]])
    0.45
    """
    C = _lower_triangle(C)
    pairs = len(C) * (len(C) - 1) // 2
    if pairs == 0 or np.isnan(_cells(C)).any():
        return float("nan")
    return float(C[compatible_pairs(C)].sum() / pairs)


def average_compatibility_up_to(C: ArrayLike) -> list[float]:
    """AC_tau for tau = 1..T: AC of the first tau models. AC_1 is NaN.

    >>> average_compatibility_up_to([[0.5, 0, 0], [0.6, 0.7, 0], [0.5, 0.7, 0.9]])
    [nan, 1.0, 0.3333333333333333]
    """
    kept = np.cumsum(compatible_pairs(C).sum(axis=1))
    tau = np.arange(2, len(kept) + 1)
    later: list[float] = (kept[1:] / (tau * (tau - 1) / 2)).tolist()
    return [float("nan"), *later]


def average_accuracy_up_to(C: ArrayLike) -> list[float]:
    """AA_tau for tau = 1..T: AA of the first tau models; NaN from the first NaN cell on.

    >>> average_accuracy_up_to([[0.5, 0], [0.75, 1.0]])
    [0.5, 0.75]
    """
    C = _lower_triangle(C)
    below = np.tri(len(C), dtype=bool)
    total = np.cumsum(np.where(below, C, 0.0).sum(axis=1))  # a NaN stays in every later sum, as it must
    tau = np.arange(1, len(C) + 1)
    means: list[float] = (total / (tau * (tau + 1) / 2)).tolist()
    return means


def compatibility_summary(C: ArrayLike) -> dict[str, Any]:
    """All of the above by name: T, AC, AA, ACA, AC_tau and AA_tau.

    If the lower triangle has NaN cells, ``AA_computable`` is added: the mean of the other cells, NaN if there are none.
    It tends to be higher than AA, so do not compare the two.

    >>> compatibility_summary([[0.5, 0], [float("nan"), 0.75]])["AA_computable"]
    0.625
    """
    C = _lower_triangle(C)
    summary: dict[str, Any] = {
        "T": len(C),
        "AC": average_compatibility(C),
        "AA": average_accuracy(C),
        "ACA": average_compatible_accuracy(C),
        "AC_tau": average_compatibility_up_to(C),
        "AA_tau": average_accuracy_up_to(C),
    }
    cells = _cells(C)
    known = cells[~np.isnan(cells)]
    if len(known) < len(cells):
        summary["AA_computable"] = float(known.mean()) if len(known) else float("nan")
    return summary


def _cells(C: NDArray[np.float64]) -> NDArray[np.float64]:
    return C[np.tri(len(C), dtype=bool)]


def _lower_triangle(C: ArrayLike) -> NDArray[np.float64]:
    """``C`` checked, as float64, with NaN above the diagonal."""
    check_real(C, "compatibility matrix")
    try:
        matrix = np.array(C, dtype=np.float64)
    except (TypeError, ValueError):
        raise HoldfastError("compatibility matrix: it must be a square array of numbers, one row per model") from None
    if matrix.size == 0:
        raise HoldfastError("compatibility matrix: it is empty; it needs at least one model")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise HoldfastError(f"compatibility matrix: it must be square (T x T), but its shape is {matrix.shape}")
    matrix[~np.tri(len(matrix), dtype=bool)] = np.nan
    outside = np.argwhere((matrix < 0) | (matrix > 1))
    if len(outside):
        row, column = (int(i) for i in outside[0])
        raise HoldfastError(
            f"compatibility matrix: {matrix[row, column]:g} in row {row + 1}, column {column + 1} is outside [0, 1];"
            " divide by 100 if the scores are per cent"
        )
    return matrix

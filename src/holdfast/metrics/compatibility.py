"""What a compatibility matrix says: AC, AA and ACA, whole and up to each task.

C[t, k] in [0, 1] is the score with model t on the query side and the gallery model k left behind, T x T. Only the
lower triangle with the diagonal is read. NaN there means that the two models cannot be compared: it is never
compatible, and an average that would have to include it is NaN, because leaving cells out flatters.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.errors import HoldfastError


def compatible_pairs(C: ArrayLike) -> NDArray[np.bool_]:
    """Where model t beats model k on k's own gallery: C[t, k] > C[k, k], k < t, as a T x T array.

    A tie is not compatible; nor is a comparison in which either cell is NaN.

    >>> compatible_pairs([[0.5, 0], [0.6, 0.7]]).tolist()
    [[False, False], [True, False]]
    """
    C = _lower_triangle(C)
    return np.tril(np.diagonal(C)[None, :] < C, k=-1)


def average_compatibility(C: ArrayLike) -> float:
    """AC: the share of the T(T-1)/2 pairs k < t with C[t, k] > C[k, k], in [0, 1].

    Ties and NaN cells count as not compatible. NaN for T = 1, which has no pair.

    >>> average_compatibility([[0.5, 0, 0], [0.6, 0.7, 0], [0.5, 0.8, 0.9]])  # 0.5 over 0.5 is a tie
    0.6666666666666666
    """
    return average_compatibility_up_to(C)[-1]


def average_accuracy(C: ArrayLike) -> float:
    """AA: the mean of the T(T+1)/2 cells with k <= t, in [0, 1]. NaN if one of them is.

    >>> average_accuracy([[0.5, 0], [0.6, 0.7]])
    0.6
    """
    return average_accuracy_up_to(C)[-1]


def average_compatible_accuracy(C: ArrayLike) -> float:
    """ACA: the mean over the pairs k < t of C[t, k] where it is compatible and 0 where it is not, in [0, 1].

    NaN for T = 1 and if any cell of the lower triangle is NaN. Differs from the paper: the equation as printed leaves
    out the factor C[t, k] and so equals AC; the paper's tables contain it.

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
    total = np.cumsum(np.where(below, C, 0.0).sum(axis=1))  # one NaN stays in every later sum, as it should
    tau = np.arange(1, len(C) + 1)
    means: list[float] = (total / (tau * (tau + 1) / 2)).tolist()
    return means


def compatibility_summary(C: ArrayLike) -> dict[str, Any]:
    """All of the above by name: T, AC, AA, ACA, AC_tau and AA_tau.

    If the lower triangle has NaN cells, ``AA_computable`` is added: the mean of the other cells. It is easier to score
    high on and so must not be ranked against AA. It is NaN if no cell is left.

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
    try:
        matrix = np.array(C, dtype=np.float64)
    except (TypeError, ValueError):
        raise HoldfastError("compatibility matrix: must be a square array of numbers, one row per model") from None
    if matrix.size == 0:
        raise HoldfastError("compatibility matrix: it is empty; it needs at least one model")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise HoldfastError(f"compatibility matrix: must be square (T x T), but its shape is {matrix.shape}")
    matrix[~np.tri(len(matrix), dtype=bool)] = np.nan
    outside = np.argwhere((matrix < 0) | (matrix > 1))
    if len(outside):
        row, column = (int(i) for i in outside[0])
        raise HoldfastError(
            f"compatibility matrix: {matrix[row, column]:g} in row {row + 1}, column {column + 1} is outside [0, 1];"
            " per cent? use --percent, or divide by 100"
        )
    return matrix

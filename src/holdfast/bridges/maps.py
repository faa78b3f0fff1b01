"""Maps from a new model's space to an old model's space, fitted on items that both models embedded.

All maps take unit query vectors (Q x d_new, float32) and return vectors (Q x d_old) that the caller normalises. They
act on queries only: stored vectors stay as they are.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from holdfast.vectors.lengths import unit

Matrix = NDArray[np.float32]
Shared = dict[Any, Any]
"""What several kinds compute of the same pairs, by a key of the function that computes it."""

_QUERIES_AT_ONCE = 256


class QueryMap(Protocol):
    """What a kind of map offers. Options are the keyword arguments of ``fit``; tensors are all that it learned.

    shared: results that other fits on the same pairs left, and to which this one adds its own.
    """

    kind: ClassVar[str]

    @classmethod
    def fit(cls, new: Matrix, old: Matrix, shared: Shared | None = None) -> Self: ...

    def __call__(self, queries: Matrix) -> Matrix: ...

    def tensors(self) -> dict[str, Matrix]: ...

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Matrix]) -> Self: ...


class LinearMap:
    """queries @ weight + bias, the form of all maps but one. The weight may be given as the product of two factors."""

    def __init__(self, weight: Matrix | tuple[Matrix, Matrix], bias: Matrix) -> None:
        """weight: d_new x d_old, or d_new x r and r x d_old, which are kept apart if together they are smaller."""
        if isinstance(weight, tuple) and sum(factor.size for factor in weight) >= len(weight[0]) * weight[1].shape[1]:
            weight = weight[0] @ weight[1]
        # In memory as after loading, so that results are equal. The left factor by columns: single queries are faster.
        if isinstance(weight, tuple):
            self.factors: tuple[Matrix, ...] = (_float32(weight[0], "F"), _float32(weight[1]))
        else:
            self.factors = (_float32(weight),)
        self.bias = _float32(bias)

    @property
    def weight(self) -> Matrix:
        """The whole matrix, d_new x d_old."""
        return self.factors[0] if len(self.factors) == 1 else self.factors[0] @ self.factors[1]

    def __call__(self, queries: Matrix) -> Matrix:
        for factor in self.factors:
            queries = queries @ factor
        queries += self.bias
        return queries

    def tensors(self) -> dict[str, Matrix]:
        names = ("weight",) if len(self.factors) == 1 else ("left", "right")
        return {**dict(zip(names, self.factors, strict=True)), "bias": self.bias}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Matrix]) -> Self:
        whole = tensors.get("weight")
        return cls((tensors["left"], tensors["right"]) if whole is None else whole, tensors["bias"])


class Rotation(LinearMap):
    """The orthogonal matrix nearest to the pairs (orthogonal Procrustes); semi-orthogonal if the sizes differ.

    Directions that the pairs do not span are dropped: nothing is known of them.
    """

    kind: ClassVar[str] = "rotation"

    @classmethod
    def fit(
        cls, new: Matrix, old: Matrix, shared: Shared | None = None, *, centred: bool = False, rank: int | None = None
    ) -> Self:
        """Fit R = U V^T, where U S V^T is the singular value decomposition of new^T old.

        new: N x d_new and old: N x d_old, row i the same item.
        centred: rotate around the means of the pairs instead of the origin.
        rank: keep the directions with the largest singular values; None keeps all. Fewer make queries faster.
        """
        shared = {} if shared is None else shared
        new_mean, old_mean = (_mean(rows) if centred else np.zeros(rows.shape[1]) for rows in (new, old))
        if ("procrustes", centred) not in shared:
            shared["procrustes", centred] = procrustes(
                _float32(new - new_mean) if centred else new, _float32(old - old_mean) if centred else old
            )
        left, right = shared["procrustes", centred]
        weight = left @ right if rank is None else (left[:, :rank], right[:rank])
        turned_mean = new_mean @ left[:, :rank] @ right[:rank]
        return cls(weight, _float32(old_mean - turned_mean))


class Affine(LinearMap):
    """Ridge regression from new to old vectors, of full or low rank."""

    kind: ClassVar[str] = "affine"

    @classmethod
    def fit(
        cls, new: Matrix, old: Matrix, shared: Shared | None = None, *, ridge: float = 0.1, rank: int | None = None
    ) -> Self:
        """Fit W = (X^T X + ridge * s * I)^-1 X^T Y around the means, with s the mean diagonal of X^T X.

        ridge: strength of the penalty, relative to the scale of the data.
        rank: keep the directions of W that explain most of the fitted values; None keeps all.
        """
        new_mean, old_mean = _mean(new), _mean(old)
        x, y = _float32(new - new_mean), _float32(old - old_mean)
        weight = ridge_weights(x, y, ridge)
        if rank is None or rank >= min(weight.shape):
            return cls(weight, _float32(old_mean - new_mean @ weight))
        fitted = (x @ weight).astype(np.float64)
        directions = _float32(np.linalg.eigh(fitted.T @ fitted)[1][:, -rank:])
        short = weight @ directions
        return cls((short, directions.T), _float32(old_mean - new_mean @ short @ directions.T))


class Local:
    """A rotation plus the mean residual of the nearest pairs; helps where pairs are dense."""

    kind: ClassVar[str] = "local"

    def __init__(self, rotation: Rotation, anchors: Matrix, residuals: Matrix, settings: Matrix) -> None:
        self.rotation = rotation
        self.anchors = _float32(anchors)
        self.residuals = _float32(residuals)
        self.settings = _float32(settings)
        neighbours, self.temperature, self.weight = settings.tolist()
        self.neighbours = min(int(neighbours), len(anchors))

    @classmethod
    def fit(
        cls,
        new: Matrix,
        old: Matrix,
        shared: Shared | None = None,
        *,
        centred: bool = False,
        neighbours: int = 10,
        temperature: float = 0.05,
        weight: float = 0.5,
    ) -> Self:
        """Keep the pairs and what the rotation leaves over of each.

        centred: of the rotation; see there.
        neighbours: pairs whose residuals are averaged, weighted by softmax(cosine / temperature).
        weight: factor of the averaged residual.
        """
        rotation = Rotation.fit(new, old, shared, centred=centred)
        residuals = old - unit(rotation(new))
        return cls(rotation, new, residuals, np.array([neighbours, temperature, weight], dtype=np.float32))

    def __call__(self, queries: Matrix) -> Matrix:
        cosines = queries @ self.anchors.T
        correction = mean_residuals(cosines, self.residuals, self.neighbours, self.temperature)
        return unit(self.rotation(queries)) + np.float32(self.weight) * correction

    def tensors(self) -> dict[str, Matrix]:
        pairs = {"anchors": self.anchors, "residuals": self.residuals, "settings": self.settings}
        return {**self.rotation.tensors(), **pairs}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Matrix]) -> Self:
        pairs = (tensors[name] for name in ("anchors", "residuals", "settings"))
        return cls(Rotation.from_tensors(tensors), *pairs)


def mean_residuals(cosines: Matrix, residuals: Matrix, neighbours: int, temperature: float) -> Matrix:
    """The mean residual of the pairs nearest to each row, weighted by softmax(cosine / temperature).

    cosines: rows with the pairs, Q x P. residuals: of the pairs, P x d.
    """
    rows = np.argpartition(-cosines, neighbours - 1, axis=1)[:, :neighbours]
    nearest = np.take_along_axis(cosines, rows, 1) / np.float32(temperature)
    shares = np.exp(nearest - nearest.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    mean: Matrix = np.einsum("qk,qkd->qd", shares, residuals[rows])
    return mean


def mapped_queries(fitted: QueryMap, queries: Matrix) -> Matrix:
    """The unit rows that a map makes of unit queries; in blocks, because a local map compares them with all pairs."""
    starts = range(0, max(1, len(queries)), _QUERIES_AT_ONCE)
    return np.concatenate([unit(fitted(queries[start : start + _QUERIES_AT_ONCE])) for start in starts])


def procrustes(new: Matrix, old: Matrix) -> tuple[Matrix, Matrix]:
    """Factors U (d_new x r) and V^T (r x d_old) of the (semi-)orthogonal matrix R = U V^T with the least |new R - old|.

    Directions that the data lack are left out. The others are in order of their singular values, the largest first.
    """
    least = max(new.shape) * float(np.finfo(np.float32).eps)
    if len(new) < min(new.shape[1], old.shape[1]):
        # Few pairs: the product has their rank, and its factors are found from two thin matrices.
        (q_new, r_new), (q_old, r_old) = np.linalg.qr(new.T), np.linalg.qr(old.T)
        left, right = _singular_directions(r_new @ r_old.T, least)
        return q_new @ left, right @ q_old.T
    return _singular_directions(new.T @ old, least)


def _singular_directions(matrix: Matrix, least: float) -> tuple[Matrix, Matrix]:
    """U and V^T of the singular values above ``least`` times the largest one, in descending order.

    From the eigenvectors of the smaller product of the matrix with itself, in twice the digits: three times as fast as
    a decomposition of the matrix, and as exact for singular values above 1e-7 of the largest one.
    """
    if matrix.shape[0] < matrix.shape[1]:
        left, right = _singular_directions(np.ascontiguousarray(matrix.T), least)
        return right.T, left.T
    wide = matrix.astype(np.float64)
    squares, directions = np.linalg.eigh(wide.T @ wide)
    values = np.sqrt(np.maximum(squares[::-1], 0))
    kept = values > values[:1] * least
    v = directions[:, ::-1][:, kept]
    return _float32(wide @ v / values[kept]), _float32(v.T)


def ridge_weights(x: NDArray[Any], y: NDArray[Any], strength: float) -> Matrix:
    """Weights of a ridge regression of centred data, d_x x d_y.

    Solved in the smaller of the two sizes, rows or columns, which gives the same weights.
    """
    penalty = strength * float(np.square(x).sum()) / x.shape[1] + 1e-19  # equal rows: not zero
    gram = (x.T @ x if len(x) >= x.shape[1] else x @ x.T).astype(np.float64)
    gram[np.diag_indices_from(gram)] += penalty
    if len(x) >= x.shape[1]:
        return _float32(np.linalg.solve(gram, (x.T @ y).astype(np.float64)))
    return x.T @ _float32(np.linalg.solve(gram, y.astype(np.float64)))


STRENGTHS = tuple(10.0**exponent for exponent in np.arange(-4, 2.1, 0.5))
"""What ``ridge_by_leave_one_out`` tries, relative to the mean variance of a direction of x."""


def ridge_by_leave_one_out(x: Matrix, y: Matrix) -> tuple[LinearMap, float, Matrix]:
    """A ridge regression from x to y around the means, its strength, and what is predicted for each row by the others.

    x: N x d_x. y: N x d_y, row i the same thing.
    The strength with the least squared error of the predictions is taken. These need no further fits: a row's error by
    the others is its error by all, divided by one minus its leverage.
    """
    x_mean, y_mean = _mean(x), _mean(y)
    u, values, vt = _singular_values(_float32(x - x_mean))
    centred = (y - y_mean).astype(np.float64)
    along = u.T @ centred
    energy, best = float(np.square(values).sum()) / x.shape[1], None
    for strength in STRENGTHS:
        shrunk = np.square(values) / (np.square(values) + strength * energy + 1e-19)
        leverage = 1 / len(x) + np.square(u) @ shrunk
        errors = (centred - (u * shrunk) @ along) / np.maximum(1 - leverage, 1e-6)[:, None]
        loss = float(np.square(errors).sum())
        if best is None or loss < best[0]:
            best = loss, strength, errors
    assert best is not None
    _, strength, errors = best
    weight = (vt.T * (values / (np.square(values) + strength * energy + 1e-19))) @ along
    return LinearMap(_float32(weight), _float32(y_mean - x_mean @ weight)), strength, _float32(y - errors)


def _singular_values(x: Matrix) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """U, S and V^T of x without the directions that it lacks, from the products of its shorter side."""
    wide = x.astype(np.float64)
    tall = len(x) >= x.shape[1]
    squares, directions = np.linalg.eigh(wide.T @ wide if tall else wide @ wide.T)
    kept = squares > squares[-1:] * 1e-10
    values, directions = np.sqrt(squares[kept]), directions[:, kept]
    if tall:
        return wide @ directions / values, values, directions.T
    return directions, values, (wide.T @ directions / values).T


def _mean(rows: Matrix) -> NDArray[np.float64]:
    mean: NDArray[np.float64] = rows.mean(axis=0, dtype=np.float64)
    return mean


def _float32(array: NDArray[Any], order: Any = "C") -> Matrix:
    converted: Matrix = np.asarray(array, dtype=np.float32, order=order)
    return converted

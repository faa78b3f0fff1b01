"""A simplex that is turned: an orthogonal map puts free vertices where classes already are, and keeps the others.

Only the angles between the vertices of the d-Simplex matter, so any orthogonal map of all of them is as good. A map
that is the identity on the span of the vertices with owners leaves those in place. The other vertices can then be moved
towards given directions, such as the class means of a network with trained weights.

A map is the identity outside a subspace of few dimensions, r, at most two per vertex that was moved. It is kept as a
basis of the subspace and an r x r matrix, so a simplex of K vertices needs r numbers per dimension and no K x K matrix.
"""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.train.geometry.simplex import DSimplex, Scale
from holdfast.train.geometry.sphere import unit

_NEGLIGIBLE = 1e-9  # of a length of 1; float64 rounding is far below, and a shorter direction is rounding


@dataclass(frozen=True, eq=False)
class Turn:
    """An orthogonal map of rows, z -> z + (z B^T)(M - 1) B: M inside the span of B's rows, the identity outside.

    basis: B, r x d, orthonormal rows, float64.
    matrix: M, r x r, orthogonal, float64.

    >>> from holdfast.train.geometry import Turn
    >>> quarter = Turn(torch.eye(3, dtype=torch.float64)[:2], torch.tensor([[0.0, 1.0], [-1.0, 0.0]]).double())
    >>> quarter.apply(torch.tensor([[1.0, 0.0, 5.0]]))
    tensor([[0., 1., 5.]])
    """

    basis: Tensor
    matrix: Tensor

    @classmethod
    def none(cls, dim: int) -> "Turn":
        """The identity in ``dim`` dimensions."""
        return cls(torch.zeros(0, dim, dtype=torch.float64), torch.zeros(0, 0, dtype=torch.float64))

    def apply(self, z: Tensor) -> Tensor:
        """The turned rows of ``z`` (... x d), in its dtype."""
        return self._mapped(z, self.matrix)

    def undo(self, z: Tensor) -> Tensor:
        """The inverse of ``apply``."""
        return self._mapped(z, self.matrix.T)

    def then(self, later: "Turn") -> "Turn":
        """This map and then ``later``, as one map."""
        if not len(later.basis) or not len(self.basis):
            return self if len(self.basis) else later
        basis = orthonormal(torch.cat([self.basis, later.basis]))
        return Turn(basis, _nearest_orthogonal(later.apply(self.apply(basis)) @ basis.T))

    def digest(self) -> str:
        """A name for this map: 16 hexadecimal digits of the hash of its numbers."""
        numbers = [part.detach().cpu().contiguous().numpy().tobytes() for part in (self.basis, self.matrix)]
        return hashlib.sha256(b"".join(numbers)).hexdigest()[:16]

    def _mapped(self, z: Tensor, matrix: Tensor) -> Tensor:
        if not len(self.basis):
            return z
        change = matrix - torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        basis, change = self.basis.to(z.dtype), change.to(z.dtype)
        return z + ((z @ basis.T) @ change) @ basis


class TurnedSimplex(DSimplex):
    """A ``DSimplex`` with vertices w_j R, where R is an orthogonal map.

    num_classes, scale: as for ``DSimplex``.
    turn: R.

    >>> from holdfast.train.geometry import TurnedSimplex, Turn, turn_towards
    >>> wanted = torch.tensor([[0.0, 0.0, 1.0]])
    >>> turn = turn_towards(Turn.none(3), 4, torch.tensor([2]), wanted, owned=torch.tensor([0]))
    >>> simplex = TurnedSimplex(4, turn)
    >>> torch.allclose(simplex.prototypes(torch.tensor([0])), DSimplex(4).prototypes(torch.tensor([0])))
    True
    """

    def __init__(self, num_classes: int, turn: Turn, *, scale: Scale = "unit") -> None:
        super().__init__(num_classes, scale=scale)
        if turn.basis.shape[1] != self.dim:
            raise HoldfastError(
                f"a map of {turn.basis.shape[1]} dimensions cannot turn a simplex of {num_classes} vertices, which has "
                f"{self.dim}"
            )
        self.turn = turn

    def logits(self, z: Tensor) -> Tensor:
        """The inner products of z (N x (K-1)) with all turned vertices: N x K, in z's dtype."""
        if z.shape[-1] != self.dim:
            return super().logits(z)  # refuses it
        return super().logits(self.turn.undo(z))

    def combine(self, weights: Tensor) -> Tensor:
        """The weighted sum of the turned vertices, for weights ... x K."""
        return self.turn.apply(super().combine(weights))

    def _rows(self, indices: Tensor, dtype: torch.dtype) -> Tensor:
        return self.turn.apply(super()._rows(indices, torch.float64)).to(dtype)

    def __repr__(self) -> str:
        return f"TurnedSimplex({self.num_classes}, scale={self.scale!r}, moved in {len(self.turn.basis)} dimensions)"


def turn_towards(turn: Turn, num_classes: int, vertices: Tensor, directions: Tensor, *, owned: Tensor) -> Turn:
    """``turn`` and then the map that carries free vertices next to ``directions`` and keeps the owned ones in place.

    turn: the map so far.
    num_classes: K.
    vertices: m free vertices to place, values 0..K-1.
    directions: m x (K-1), of any length above 0.
    owned: vertices that do not move, values 0..K-1; none of them is in ``vertices``.

    The map maximises the sum of the inner products of the placed vertices with the unit directions (orthogonal
    Procrustes) in the complement of the owned vertices. Among such maps it is the one nearest to the identity, so that
    other free vertices move as little as possible. A direction in the span of the owned vertices changes nothing.
    Takes O((m^2 + n) K + m^3) for n owned vertices, and float64 throughout.
    """
    shared = set(vertices.tolist()) & set(owned.tolist())
    if shared:
        raise HoldfastError(f"vertex {min(shared)} has an owner and cannot be moved")
    if len(vertices) != len(directions):
        raise HoldfastError(f"{len(vertices)} vertices to place, but {len(directions)} directions")
    simplex = TurnedSimplex(num_classes, turn)
    at = turn.basis.device
    vertices, owned, directions = vertices.to(at), owned.to(at), unit(directions.to(at).double())
    now = _away_from_owned(simplex, simplex._rows(vertices, torch.float64), owned)
    wanted = _away_from_owned(simplex, directions, owned)
    # Away from the owned vertices once more: the basis must not have a trace of them left by rounding.
    basis = orthonormal(_away_from_owned(simplex, orthonormal(torch.cat([now, wanted])), owned))
    return turn.then(Turn(basis, nearest_map(now @ basis.T, wanted @ basis.T)))


def nearest_map(rows: Tensor, wanted: Tensor) -> Tensor:
    """The orthogonal r x r matrix M that maximises the inner product of ``rows`` M with ``wanted`` (both m x r).

    Where the rows leave M open, it is as near to the identity as possible.
    """
    left, sizes, right = torch.linalg.svd(rows.T @ wanted)
    rank = int((sizes > _NEGLIGIBLE).sum())
    fixed = left[:, :rank] @ right[:rank]
    open_left, open_right = left[:, rank:], right[rank:].T
    return fixed + open_left @ _nearest_orthogonal(open_left.T @ open_right) @ open_right.T


def _away_from_owned(simplex: DSimplex, rows: Tensor, owned: Tensor) -> Tensor:
    """``rows`` without their part in the span of the owned vertices.

    The inner products of n vertices of a simplex are a 1 - b 1 1^T with a = K/(K-1) and b = 1/(K-1). The inverse of
    that matrix is (1 + b/(a - n b) 1 1^T)/a, so nothing of size n x n is made.
    """
    total, count = simplex.num_classes, len(owned)
    if count >= total - 1:  # they span everything
        return torch.zeros_like(rows)
    a, b = total / (total - 1), 1 / (total - 1)
    for _ in range(2):  # the second pass removes what rounding left in the first
        inner = simplex.logits(rows)[:, owned]
        weights = (inner + inner.sum(1, keepdim=True) * (b / (a - count * b))) / a
        rows = rows - simplex.combine(rows.new_zeros(len(rows), total).index_copy_(1, owned, weights))
    return rows


def orthonormal(rows: Tensor) -> Tensor:
    """An orthonormal basis of the span of ``rows``; directions shorter than rounding are left out."""
    _, sizes, basis = torch.linalg.svd(rows, full_matrices=False)
    return basis[sizes > _NEGLIGIBLE]


def _nearest_orthogonal(matrix: Tensor) -> Tensor:
    left, _, right = torch.linalg.svd(matrix)
    return left @ right

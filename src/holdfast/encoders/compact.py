"""Features stored at the backbone's size and compared exactly at the simplex's.

A feature is z = P h with P (full size x F) bias-free. With the thin factorisation P = Q R, the columns of Q are
orthonormal and z = Q (R h): the unit vector u = Q^T z / |z| has F numbers, loses nothing, and between features of one
model u . u' is the cosine of z and z'. A query of another model meets a stored u as Q_g^T z_q / |z_q| = Q_g^T Q_q u_q,
whose length is at most 1 and belongs to the score: a store that normalises queries drops it, and scores of several
models can then only be merged after they are multiplied by it.
"""

import torch
from torch import Tensor

from holdfast.encoders.encoder import Encoder


def compact_basis(encoder: Encoder) -> Tensor | None:
    """Q of the encoder's projection, full size x F, float32 on the CPU.

    The one with a positive diagonal in R, so that it does not depend on who factorises, and a model whose simplex is
    grown keeps its compact vectors. None where the full feature is no larger than the backbone's: it is then stored as
    it is.
    """
    if encoder.projection is None or compact_dim(encoder) == encoder.dim:
        return None
    q, r = torch.linalg.qr(encoder.projection.weight.detach().cpu().double())
    return (q * torch.where(r.diagonal() < 0, -1.0, 1.0)).float()


def compact_dim(encoder: Encoder) -> int:
    """How many numbers the encoder's compact vectors have: never more than its full ones."""
    return encoder.dim if encoder.projection is None else min(encoder.dim, encoder.feature_dim)


def compacted(z: Tensor, basis: Tensor) -> Tensor:
    """Unit features (N x full size) of the model that ``basis`` belongs to as unit vectors of the backbone's size."""
    return z @ basis


def carried_query(query: Tensor, own: Tensor | None, other: Tensor | None) -> Tensor:
    """Stored vectors (Q x d) of the model with basis ``own`` as they meet those of the model with basis ``other``.

    The inner product of a row with a stored vector is the cosine of the two full features. None: full features.
    """
    if own is other:
        return query
    if own is None:
        assert other is not None
        return query @ other
    return query @ own.T if other is None else query @ (own.T @ other)

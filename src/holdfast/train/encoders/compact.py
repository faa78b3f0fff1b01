"""Compact features: stored at the backbone's size, with exactly the scores of the full features.

A full feature is z = P h, with P (full size x F) the projection, which has no bias. With the thin QR factorisation
P = Q R, the columns of Q are orthonormal and z = Q (R h). The compact feature u = Q^T z / |z| is a unit vector of F
numbers, and for two features of one model u . u' is the cosine of z and z'. A query u_q of another model is compared
with a stored u as Q_g^T Q_q u_q. The norm of that vector is at most 1 and is part of the score: a store that normalises
queries loses it, and its scores must be multiplied by it before they are merged with those of other models.
"""

import torch
from torch import Tensor

from holdfast.embedders import model_folder
from holdfast.train.encoders.encoder import Encoder


def compact_basis(encoder: Encoder) -> Tensor | None:
    """Q of the encoder's projection, full size x F, float32 on the CPU.

    The diagonal of R is positive, so that Q is unique and a model with a grown simplex keeps its compact vectors. None
    if the full features are not larger than the backbone's: full features are then stored.
    """
    if encoder.projection is None or compact_dim(encoder) == encoder.embedding_dim:
        return None
    return torch.from_numpy(model_folder.compact_basis(encoder.projection.weight.detach().cpu().double().numpy()))


def compact_dim(encoder: Encoder) -> int:
    """Size of the encoder's compact features; at most that of its full features."""
    return min(encoder.embedding_dim, encoder.feature_dim)


def to_compact(z: Tensor, basis: Tensor) -> Tensor:
    """Compact features N x F of unit features ``z``, N x full size.

    basis: ``compact_basis`` of the model that ``z`` comes from.
    """
    return z @ basis


def change_basis(query: Tensor, own: Tensor | None, other: Tensor | None) -> Tensor:
    """Queries of one model in the basis of another, so that dot products with its stored vectors are cosines.

    query: features of the first model, Q x d.
    own: basis of the first model; None for full features.
    other: basis of the second model; None for full features.
    """
    if own is other:
        return query
    if own is None:
        assert other is not None
        return query @ other
    return query @ own.T if other is None else query @ (own.T @ other)

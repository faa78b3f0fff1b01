"""How the layer of a network with trained weights begins: centred, and turned into the old model's space."""

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.train.encoders import Encoder
from holdfast.train.encoders.identity_layer import IdentityLayer
from holdfast.train.geometry import nearest_map, orthonormal
from holdfast.train.methods import Survey


def begin_layer(encoder: Encoder, survey: Survey) -> None:
    """Set an ``IdentityLayer`` that no training has begun with: nothing for other layers.

    Without an old model z = h - mean of h over the task's images. With one, as when a network is replaced, z is the
    rigid map of h that comes nearest to the old model's features of these images (centred orthogonal Procrustes).
    """
    layer = encoder.projection
    if not isinstance(layer, IdentityLayer) or bool(layer.begun):
        return
    z, _ = survey.new()  # h, and zeros after it
    size, mean = layer.in_features, z.mean(0)
    found = survey.old()
    if found is None:
        layer.begin(mean[:size])
        return
    h, old = z[:, :size].double(), found[0].double()
    weight = rigid_map(h - h.mean(0), old - old.mean(0))
    layer.begin((h.mean(0) - old.mean(0) @ weight).to(mean.dtype), weight.to(mean.dtype))


def rigid_map(h: Tensor, wanted: Tensor) -> Tensor:
    """W with orthonormal columns, d x F, so that the rows of ``h`` W^T come nearest to ``wanted``.

    h: N x F, float64.
    wanted: N x d with d at least F, float64.
    """
    size = h.shape[1]
    beyond = orthonormal(wanted[:, size:])  # what is wanted in the numbers that h does not have
    reduced = torch.cat([wanted[:, :size], wanted[:, size:] @ beyond.T], 1)
    square = nearest_map(F.pad(h, (0, len(beyond))), reduced)[:size]
    return torch.cat([square[:, :size], square[:, size:] @ beyond], 1).T

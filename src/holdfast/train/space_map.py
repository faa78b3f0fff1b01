"""A learned map from one model's feature space to the next model's."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.core.errors import HoldfastError
from holdfast.train.tensor_files import read_torch, write_torch

PATHS = 4
"""Parallel bottlenecks of a residual block."""


class SpaceMap(nn.Module):
    """A small network that maps the old model's features to the new model's: an MLP or residual blocks.

    dim: size of the old features; they are normalised first, because galleries store unit vectors.
    out: size of the new features; the output is not normalised.
    hidden: size of the MLP's hidden layer, or of each bottleneck.
    blocks: number of residual blocks (``ResidualBlock``), which need ``dim`` = ``out``; 0 (default) is an MLP with one
        hidden ReLU layer.

    Residual blocks compute in float32 and have batch norm: put the map in eval mode before stored vectors pass it. The
    map is saved with the new model and loaded in eval mode.
    """

    def __init__(self, dim: int, out: int, hidden: int, *, blocks: int = 0) -> None:
        super().__init__()
        self.in_features = dim
        self.blocks: nn.Sequential | None = None
        if blocks == 0:
            self.enter = nn.Linear(dim, hidden)
            self.leave = nn.Linear(hidden, out)
        elif dim == out:
            self.blocks = nn.Sequential(*(ResidualBlock(dim, hidden) for _ in range(blocks)))
        else:
            raise HoldfastError(f"residual blocks keep the size of a feature; they cannot map {dim} numbers to {out}")

    def forward(self, z: Tensor) -> Tensor:
        features = F.normalize(z.float(), dim=-1)
        if self.blocks is None:
            return self.leave(F.relu(self.enter(features)))
        with torch.autocast(features.device.type, enabled=False):
            mapped: Tensor = self.blocks(features)
        return mapped

    def save(self, path: Path) -> None:
        write_torch(path, self.state_dict())

    @classmethod
    def load(cls, path: Path) -> "SpaceMap":
        tensors, _ = read_torch(path)
        try:
            blocks = len({name.split(".")[1] for name in tensors if name.startswith("blocks.")})
            if blocks:
                width, dim = tensors["blocks.0.enter.weight"].shape
                out, hidden = dim, width // PATHS
            else:
                hidden, dim = tensors["enter.weight"].shape
                out = tensors["leave.weight"].shape[0]
            with torch.device("meta"):  # no random weights and no second copy: maps of wide features take 0.5 GB
                loaded = cls(dim, out, hidden, blocks=blocks)
            wide = {name: one.float() if one.is_floating_point() else one for name, one in tensors.items()}
            loaded.load_state_dict(wide, assign=True)
        except (KeyError, ValueError, IndexError, RuntimeError) as error:
            found = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items()) or "nothing"
            raise HoldfastError(f"{path}: not a map between feature spaces; it holds {found}") from error
        return loaded.eval().requires_grad_(False)


class ResidualBlock(nn.Module):
    """z + the sum of ``PATHS`` bottlenecks of z, each three linear layers with batch norm and PReLU: d -> h -> h -> d.

    dim: d, size of the features.
    hidden: h, width of each bottleneck.

    This is the block of RBT (Wang et al., BMVC 2021) with the sizes of LCE's released code. The last batch norms begin
    with scale 0, so that the block begins as the identity. The bottlenecks are computed side by side, which gives the
    same values with fewer operations.
    """

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.enter = nn.Linear(dim, PATHS * hidden, bias=False)
        self.enter_norm, self.enter_activation = _norm(PATHS * hidden), nn.PReLU(PATHS * hidden)
        self.middle = _SideBySide(hidden, hidden)
        self.middle_norm, self.middle_activation = _norm(PATHS * hidden), nn.PReLU(PATHS * hidden)
        self.leave = _SideBySide(hidden, dim)
        self.leave_norm, self.leave_activation = _norm(PATHS * dim), nn.PReLU(PATHS * dim)
        nn.init.zeros_(self.leave_norm.weight)

    def forward(self, z: Tensor) -> Tensor:
        inside = self.enter_activation(self.enter_norm(self.enter(z)))
        inside = self.middle_activation(self.middle_norm(self.middle(inside)))
        inside = self.leave_activation(self.leave_norm(self.leave(inside)))
        return z + inside.unflatten(1, (PATHS, -1)).sum(1)


class _SideBySide(nn.Module):
    """``PATHS`` linear layers without bias, each on its own part of the input: N x (PATHS i) -> N x (PATHS o)."""

    def __init__(self, size: int, out: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(size)  # as ``nn.Linear``
        self.weight = nn.Parameter(torch.empty(PATHS, size, out).uniform_(-bound, bound))

    def forward(self, z: Tensor) -> Tensor:
        return torch.einsum("npi,pio->npo", z.unflatten(1, (PATHS, -1)), self.weight).flatten(1)


def _norm(size: int) -> nn.BatchNorm1d:
    """Batch norm as in LCE's released code: the running statistics are nine tenths those of the last batch."""
    return nn.BatchNorm1d(size, eps=2e-5, momentum=0.9)


def map_features(z: Tensor, maps: Sequence[Optional["SpaceMap"]]) -> Tensor:
    """Apply ``maps`` to features one after another, normalising after each; None is the identity.

    Map single images, not class means: the map of a mean is not the mean of the mapped features.
    """
    for space_map in maps:
        if space_map is not None:
            z = F.normalize(space_map(z), dim=-1)
    return z

"""A learned map from one model's feature space to the next model's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import HoldfastError
from holdfast.storage import read_tensors, write_tensors


class SpaceMap(nn.Module):
    """An MLP with one hidden ReLU layer that maps the old model's features to the new model's.

    dim: size of the old features; they are normalised first, because galleries store unit vectors.
    out: size of the new features; the output is not normalised.
    hidden: size of the hidden layer.

    It is saved with the new model.
    """

    def __init__(self, dim: int, out: int, hidden: int) -> None:
        super().__init__()
        self.enter = nn.Linear(dim, hidden)
        self.leave = nn.Linear(hidden, out)

    @property
    def in_features(self) -> int:
        return self.enter.in_features

    def forward(self, z: Tensor) -> Tensor:
        return self.leave(F.relu(self.enter(F.normalize(z.float(), dim=-1))))

    def save(self, path: Path) -> None:
        write_tensors(path, self.state_dict())

    @classmethod
    def load(cls, path: Path) -> "SpaceMap":
        tensors, _ = read_tensors(path)
        try:
            hidden, dim = tensors["enter.weight"].shape
            out = tensors["leave.weight"].shape[0]
            with torch.device("meta"):  # no random weights and no second copy: maps of wide features take 0.5 GB
                loaded = cls(dim, out, hidden)
            loaded.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, assign=True)
        except (KeyError, ValueError, IndexError, RuntimeError) as error:
            found = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items()) or "nothing"
            raise HoldfastError(f"{path}: not a map between feature spaces; it holds {found}") from error
        return loaded.eval().requires_grad_(False)


def map_features(z: Tensor, maps: Sequence[Optional["SpaceMap"]]) -> Tensor:
    """Apply ``maps`` to features one after another, normalising after each; None is the identity.

    Map single images, not class means: the map of a mean is not the mean of the mapped features.
    """
    for space_map in maps:
        if space_map is not None:
            z = F.normalize(space_map(z), dim=-1)
    return z

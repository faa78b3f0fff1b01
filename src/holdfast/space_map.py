"""A learned map from one model's feature space to the next one's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import HoldfastError
from holdfast.storage import read_tensors, write_tensors


class SpaceMap(nn.Module):
    """An MLP with one hidden layer of ReLUs from unit features of size ``dim`` to raw features of size ``out``.

    Its input is normalised, because what a gallery stores are unit vectors. It is saved beside the model it leads to.
    """

    def __init__(self, dim: int, out: int, hidden: int) -> None:
        super().__init__()
        self.enter = nn.Linear(dim, hidden)
        self.leave = nn.Linear(hidden, out)

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
            with torch.device("meta"):  # nothing is drawn or held twice: maps of wide features have half a gigabyte
                loaded = cls(dim, out, hidden)
            loaded.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, assign=True)
        except (KeyError, ValueError, IndexError, RuntimeError) as error:
            found = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items()) or "nothing"
            raise HoldfastError(f"{path}: not a map between feature spaces; it holds {found}") from error
        return loaded.eval().requires_grad_(False)


def carry(z: Tensor, maps: Sequence[Optional["SpaceMap"]]) -> Tensor:
    """Take features through ``maps`` one after another, unit vectors in between and at the end; None is the identity.

    Images are carried one by one: a mean of features is not mapped to the mean of the mapped features.
    """
    for space_map in maps:
        if space_map is not None:
            z = F.normalize(space_map(z), dim=-1)
    return z

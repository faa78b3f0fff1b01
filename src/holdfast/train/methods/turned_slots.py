"""The simplex of a method that turns it: free vertices go where new classes already are."""

from typing import Literal

import torch
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError
from holdfast.train.geometry import Turn, TurnedSimplex, turn_towards
from holdfast.train.geometry.simplex import Scale
from holdfast.train.losses import class_means
from holdfast.train.methods.interface import Survey, TaskView

Placing = Literal["sequence", "means"]
"""How vertices of new classes are placed: where the simplex has them, or turned next to the classes' means."""

_SHORTEST = 1e-6  # a shorter mean is rounding error: no image of the class has features
_DIGEST_BYTES = 8


class TurnedSlots(nn.Module):
    """The turn of a simplex of ``slots`` vertices, saved with the method's state.

    slots, scale: as for ``DSimplex``.
    """

    basis: Tensor
    matrix: Tensor
    digests: Tensor
    kept: Tensor

    def __init__(self, slots: int, scale: Scale) -> None:
        super().__init__()
        self.slots, self.scale = slots, scale
        nothing = Turn.none(slots - 1)
        self.register_buffer("basis", nothing.basis)
        self.register_buffer("matrix", nothing.matrix)
        self.register_buffer("digests", torch.zeros(0, _DIGEST_BYTES, dtype=torch.uint8))
        self.register_buffer("kept", torch.zeros(0, 2, dtype=torch.long))  # slot, turns done when it got its owner

    @property
    def simplex(self) -> TurnedSimplex:
        """The vertices as they are now."""
        return TurnedSimplex(self.slots, self._turn, scale=self.scale)

    @property
    def turns(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Digest and kept slots of each turn, oldest first."""
        kept = self.kept.tolist()
        return tuple(
            (bytes(digest).hex(), tuple(slot for slot, done in kept if done == number))
            for number, digest in enumerate(self.digests.tolist())
        )

    def begin(self) -> None:
        """Refuse a restored state of a simplex with another number of vertices."""
        if self.basis.shape[1] != self.slots - 1:
            raise HoldfastError(
                f"the simplex was turned with {self.basis.shape[1] + 1} slots, and this method has {self.slots}; grow "
                "the model (holdfast slots grow)"
            )

    def place_at_means(self, task: TaskView, survey: Survey) -> None:
        """Turn the free vertices of the task's new classes towards the means of the classes' features.

        The means are those of the old model, if there is one. A class without images keeps the vertex that it has.
        """
        if not task.num_new:
            return
        first = task.num_seen - task.num_new
        found = survey.old() if task.reference != "none" else None
        means = class_means(*(survey.new() if found is None else found), task.num_seen)[first:].double().cpu()
        present = means.norm(dim=1) > _SHORTEST
        placed = torch.tensor(task.slots[first:])[present]
        owned = torch.tensor(sorted({*task.owned_slots} - {*placed.tolist()}), dtype=torch.long)
        if not len(placed):
            return
        at, done = self.basis.device, len(self.digests)
        before = Turn(self.basis.cpu(), self.matrix.cpu())
        turn = turn_towards(before, self.slots, placed, means[present], owned=owned)
        earlier = set(self.kept[:, 0].tolist())
        newly_kept = [[slot, done] for slot in owned.tolist() if slot not in earlier]
        digest = torch.tensor(list(bytes.fromhex(turn.digest())), dtype=torch.uint8, device=at)
        self.basis, self.matrix = turn.basis.to(at), turn.matrix.to(at)
        self.digests = torch.cat([self.digests, digest[None]])
        self.kept = torch.cat([self.kept, torch.tensor(newly_kept, dtype=torch.long, device=at).reshape(-1, 2)])

    @property
    def _turn(self) -> Turn:
        return Turn(self.basis, self.matrix)

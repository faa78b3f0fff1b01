"""The part of HOC that needs no class labels, to be added to any loss: contrastive, triplet, multiple negatives."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError
from holdfast.train.losses.info_nce import check_features, info_nce


def compatibility_contrast(
    z: Tensor, z_old: Tensor, groups: Tensor | Sequence[int] | None = None, *, rho: float = 5.0
) -> Tensor:
    """Eq. 4 without classes: each old feature is drawn to the new feature of its item, and apart from other items.

    z, z_old: features of the same items under the new and the old model, N x d.
    groups: N numbers; items with the same number are never apart from each other, for example the two items of a
        pair, or all items that one query was clicked for. None: each item is a group of its own.
    rho: factor of the cosines (inverse temperature).

    The value is ``info_nce(z, z_old, groups, rho=rho)``: the mean over i of -s_ii + log(n_i + the sum of exp(s_ij) over
    items j of other groups), with s_ij = rho cos(z_old_i, z_j) and n_i the number of items in the group of i. Gradient
    flows through z only. A batch of no items gives 0.
    """
    check_features(z, z_old)
    if groups is None:
        groups = torch.arange(len(z), device=z.device)
    try:
        groups = torch.as_tensor(groups)
    except (TypeError, ValueError) as error:
        raise HoldfastError(f"groups: must be numbers, one per item ({error}); give each group a number") from error
    if groups.shape != (len(z),):
        raise HoldfastError(f"groups: one number per item is needed, {len(z)} of them, got {tuple(groups.shape)}")
    if len(z) == 0:
        return z.sum() * 0.0
    return info_nce(z, z_old, groups.to(z.device), rho=rho)


class CompatibilityLoss(nn.Module):
    """``compatibility_contrast`` with an old model: a term that keeps a model in training compatible with it.

    old_model: the model whose vectors are stored. A module is copied; the copy is frozen and put in eval mode, so you
        may pass the model itself before training. It may also be any function from inputs to features N x d.
        ``nn.Identity()`` takes stored vectors as inputs.
    weight: factor of the term. 0 trains without it.
    rho: factor of the cosines (inverse temperature).

    Call it with (z, inputs) or (z, inputs, groups) and add the result to your loss. z: the new model's features of the
    batch, N x d. inputs: what the old model is called with to give its features of the same items. groups: as in
    ``compatibility_contrast``.

    The old model's parameters are not parameters of this module and are not saved with it. The copy moves to the
    device of z. Both models must have the same feature size.

    >>> model = nn.Linear(3, 2)
    >>> compatibility = CompatibilityLoss(model, weight=1.0, rho=5.0)
    >>> items, clicked = torch.randn(4, 3), torch.randn(4, 3)
    >>> z = model(items)
    >>> loss = nn.functional.cosine_embedding_loss(z, model(clicked), torch.ones(4)) + compatibility(z, items)
    >>> loss.backward()
    >>> len(list(compatibility.parameters()))
    0
    """

    def __init__(self, old_model: Callable[[Any], Tensor], weight: float = 1.0, rho: float = 5.0) -> None:
        super().__init__()
        if not callable(old_model):
            raise HoldfastError(f"old_model must be a module or a function, got {type(old_model).__name__}")
        for name, value in (("weight", weight), ("rho", rho)):
            if not 0 <= value < float("inf"):
                raise HoldfastError(f"{name} must be a number of at least 0, got {value}")
        if isinstance(old_model, nn.Module):
            old_model = copy.deepcopy(old_model).eval().requires_grad_(False)
        # In a tuple, so that parameters(), state_dict() and train() do not include it.
        self._old = (old_model,)
        self.weight = weight
        self.rho = rho

    @torch.no_grad()
    def old_features(self, inputs: Any) -> Tensor:
        """The old model's features of ``inputs``."""
        (old,) = self._old
        z_old = old(inputs)
        if not isinstance(z_old, Tensor):
            found = type(z_old).__name__
            raise HoldfastError(f"the old model returned {found}, not a tensor; pass a function that returns features")
        return z_old

    def forward(self, z: Tensor, inputs: Any, groups: Tensor | Sequence[int] | None = None) -> Tensor:
        (old,) = self._old
        if isinstance(old, nn.Module):
            old.to(z.device)
        return self.weight * compatibility_contrast(z, self.old_features(inputs), groups, rho=self.rho)

    def extra_repr(self) -> str:
        return f"weight={self.weight}, rho={self.rho}"

"""Stored vectors of an old model, for a new model to be trained against."""

import torch
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError


class StoredReference(nn.Module):
    """Stored vectors of an old model that is not available itself; can be passed to ``fit`` as ``old``.

    table: N x d, one vector for each image of the training set, in its order.

    Called with B rows of the training set it returns B x d. The vector of an image does not depend on augmentation.
    """

    reads_rows = True
    table: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        if table.ndim != 2 or not bool(table.isfinite().all()) or not bool(table.any()):
            raise HoldfastError(f"stored vectors must be finite, N x d and not all zero, found {tuple(table.shape)}")
        self.register_buffer("table", table.to(torch.float32), persistent=False)

    @property
    def dim(self) -> int:
        return int(self.table.shape[1])

    def forward(self, rows: Tensor) -> Tensor:
        return self.table[rows]

"""An old model of which only the vectors are left: what it gave the training images, looked up instead of computed."""

from torch import Tensor, nn

from holdfast.errors import HoldfastError


class StoredReference(nn.Module):
    """Stands where ``fit`` takes the old model. Called with rows of the training set (B), it gives B x d.

    table: N x d, one vector for each image of the training set, in its order; zeros where there is none. A zero vector
    is like nothing: in a contrast it is a constant and moves no weight, and a class of zeros alone has no centre.
    A stored vector belongs to the image as it is: whatever augmentation shows the new model, z_old stays the same.
    """

    table: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        if table.ndim != 2 or not table.is_floating_point() or 0 in table.shape:
            raise HoldfastError(f"stored vectors must be numbers, N x d, found {table.dtype} of {tuple(table.shape)}")
        if not bool(table.isfinite().all()):
            raise HoldfastError("stored vectors hold NaN or infinity; leave those images out of the store")
        if not bool(table.any()):
            raise HoldfastError("stored vectors are all zero: the store knows none of the training images")
        self.register_buffer("table", table.float(), persistent=False)

    @property
    def dim(self) -> int:
        return int(self.table.shape[1])

    def forward(self, rows: Tensor) -> Tensor:
        return self.table[rows]

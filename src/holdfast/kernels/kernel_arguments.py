"""What a kernel is told of an activation N x H x W x C, and of a shortcut that may not be there."""

from torch import Tensor


def pixels_of(x: Tensor) -> int:
    return x.numel() // x.shape[3]


def size_of(x: Tensor) -> dict[str, int]:
    return {"HEIGHT": x.shape[1], "WIDTH": x.shape[2]}


def given_or(tensor: Tensor | None, anything: Tensor) -> Tensor:
    """A kernel's argument that it does not read must be a tensor all the same."""
    return anything if tensor is None else tensor


def shortcut_kind(shortcut: Tensor | None, y: Tensor) -> str:
    if shortcut is None:
        return "none"
    return "same" if shortcut.shape == y.shape else "half"

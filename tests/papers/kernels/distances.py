"""How far what the kernels give is from what it should be."""

from torch import Tensor


def apart(a: Tensor, b: Tensor) -> float:
    """|a - b| / |b|"""
    return ((a.double() - b.double()).norm() / b.double().norm()).item()

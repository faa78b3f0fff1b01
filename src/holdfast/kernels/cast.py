"""Many parameters cast at once, and their gradients cast back at once: a few launches instead of two for each."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def cast_together(parameters: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Each parameter in ``dtype``, as autocast would make it; those of four dimensions must be channels-last.

    Where one has no gradient in ``dtype``, such as a weight whose gradient is found in float32, none is passed back.
    """
    if all(parameter.dtype == dtype for parameter in parameters):
        return tuple(parameters)
    casts: tuple[Tensor, ...] = _Cast.apply(dtype, *parameters)
    return casts


class _Cast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.like = [(parameter.shape, parameter.stride(), parameter.dtype) for parameter in parameters]
        ctx.set_materialize_grads(False)
        room = [parameters[0].new_empty(p.numel(), dtype=dtype) for p in parameters]
        torch._foreach_copy_(room, [_flat(parameter) for parameter in parameters])
        return tuple(one.as_strided(p.shape, p.stride()) for one, p in zip(room, parameters))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        found: list[Tensor | None] = [None] * len(gradients)
        given = [(i, gradient) for i, gradient in enumerate(gradients) if gradient is not None]
        room = [gradient.new_empty(gradient.numel(), dtype=ctx.like[i][2]) for i, gradient in given]
        torch._foreach_copy_(room, [_flat(gradient) for _, gradient in given])
        for (i, _), one in zip(given, room):
            shape, stride, _ = ctx.like[i]
            found[i] = one.as_strided(shape, stride)
        return (None, *found)


def _flat(x: Tensor) -> Tensor:
    """As it lies in memory. The strides of a 1 x 1 kernel can be written in several ways, and where two tensors differ
    in that torch copies one by one after all."""
    x = x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x.contiguous()
    return x.as_strided((x.numel(),), (1,))

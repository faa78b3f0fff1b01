"""A convolution that trains faster on ARM processors.

There torch 2.13 computes the gradients of a convolution by oneDNN, which takes longer than torch's own kernel for the
networks of ``small_networks``. Which kernel is used is a setting of the whole process, so it is chosen here for each
layer.
"""

import platform
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ON_ARM = platform.machine() == "aarch64" and hasattr(torch.ops.aten, "_slow_conv2d_backward")


class Convolution(nn.Conv2d):
    """``nn.Conv2d`` without bias, groups or dilation. In training on an ARM processor the gradients are torch's own."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        # The weights of a 1 x 1 kernel have no order in memory that could be read from them (see below).
        if not (ON_ARM and self.training and _is_plain(x)) or self.kernel_size == (1, 1):
            return super().forward(x)
        found: Tensor = _OwnGradients.apply(x, self.weight, self.stride, self.padding)
        return found


def _is_plain(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")


class _OwnGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: tuple[int, ...], padding: tuple[int, ...]) -> Tensor:
        # The kernel of the gradients needs all its tensors in one order in memory, and gives wrong numbers otherwise.
        ctx.order = torch.channels_last if _is_channels_last(weight) else torch.contiguous_format
        x = x.contiguous(memory_format=ctx.order)
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding = stride, padding
        return F.conv2d(x, weight, None, stride, padding)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        needed = (ctx.needs_input_grad[0], ctx.needs_input_grad[1], False)
        of_x, of_weight, _ = torch.ops.aten._slow_conv2d_backward.output_mask(
            gradients[0].contiguous(memory_format=ctx.order),
            x,
            weight.contiguous(memory_format=ctx.order),
            weight.shape[2:],
            ctx.stride,
            ctx.padding,
            needed,
        )
        return of_x, of_weight, None, None


def _is_channels_last(weight: Tensor) -> bool:
    return weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()

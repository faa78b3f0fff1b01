"""Batch norm, ReLU and squeeze and excitation as one operation that autograd knows.

Batch norm, ReLU, and channels weighed by what the whole image shows (squeeze and excitation), forward and back.

As in ``normed.py``, whose y and moments these are. What lies between norm and weights is never stored: h = relu(bn(y))
is found from y wherever it is needed. Sums over the positions of one image need no other program: POSITIONS is H x W.

The two small layers of squeeze and excitation, which torch carries out between the kernels.
"""

from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from holdfast.encoders.squeeze_excite import SqueezeExcitation
from holdfast.training.kernels.batch_norm import (
    back_affine,
    by_kernels,
    channels_last,
    channels_of,
    cut,
    known_of,
    moments_here,
    scale_and_shift,
    sums_of_batch,
    tile_here,
)
from holdfast.training.kernels.convolution import relu
from holdfast.training.kernels.sums import nan_where_unsound

IMAGES, FEW = 128, 16
"""How sums over images are cut: there are few of them, so that programs matter more than long runs."""


def normed_and_weighed(norm: nn.BatchNorm2d, weigh: SqueezeExcitation, y: Tensor) -> Tensor:
    """weigh(relu(norm(y)))"""
    weights = weights_like(weigh, y)
    if weights is None or not by_kernels(norm, y, *weights):
        weighed: Tensor = weigh(F.relu(norm(y)))
        return weighed
    found: Tensor = _Weigh.apply(y, norm.weight, norm.bias, *weights, norm)
    return found


def _by_image(y: Tensor, sums: int) -> tuple[int, dict[str, int]]:
    """Programs that each add up over one image, and how they are cut: into smaller tiles where there are many sums."""
    sizes, positions = cut(y).sizes, y.shape[2] * y.shape[3]
    block = min(sizes["BLOCK"] // (2 if sums > 2 else 1), 1 << (positions - 1).bit_length())
    return len(y) * (y.shape[1] // sizes["WIDE"]), sizes | {"BLOCK": block, "POSITIONS": positions}


class _Weigh(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, y: Tensor, gamma: Tensor, beta: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor,
        norm: nn.BatchNorm2d,
    ) -> Tensor:  # fmt: skip
        y = channels_last(y)
        how, (programs, by_image) = cut(y), _by_image(y, sums=1)
        known = known_of(norm, y, sums_of_batch(norm, y, how)[0])
        mean, out = y.new_empty(y.shape[:2]), torch.empty_like(y)
        squeeze_image[(programs,)](
            y, mean, *known, gamma, beta, 1 / how.pixels, norm.eps, norm.momentum, FROZEN=not norm.training, **by_image
        )
        hidden, logits = hidden_and_logits(mean, (w1, b1, w2, b2))
        weigh_tile[(how.programs,)](
            y, logits, out, known[-1], gamma, beta, how.pixels, FROZEN=not norm.training,
            POSITIONS=by_image["POSITIONS"], **how.sizes,
        )  # fmt: skip
        ctx.save_for_backward(y, gamma, beta, w1, w2, known[-1], mean, hidden, logits)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        y, gamma, beta, w1, w2, moments, mean, hidden, logits = ctx.saved_tensors
        gradient = channels_last(gradient)
        how, (programs, by_image) = cut(y), _by_image(y, sums=4)
        images, channels, positions = len(y), y.shape[1], by_image["POSITIONS"]
        parts = y.new_empty(4, images, channels, dtype=torch.float32)
        d_logits, gradients, dy = torch.empty_like(logits), torch.empty_like(moments), torch.empty_like(y)
        weigh_back[(programs,)](gradient, y, logits, moments, gamma, beta, parts, d_logits, images, **by_image)
        d_hidden, db1, db2 = d_logits @ w2.flatten(1), mean.new_empty(hidden.shape[1]), mean.new_empty(channels)
        back_through_hidden[(-(-len(db1) // FEW),)](
            d_hidden, hidden, db1, images, HIDDEN=len(db1), WIDE=FEW, BLOCK=IMAGES
        )
        d_mean, few = d_hidden @ w1.flatten(1), min(FEW, channels & -channels)
        add_up_images[(channels // few,)](
            parts, logits, d_logits, d_mean, gradients, db2, images,
            POSITIONS=positions, CHANNELS=channels, WIDE=few, BLOCK=IMAGES,
        )  # fmt: skip
        through_weights[(how.programs,)](
            gradient, y, dy, logits, d_mean, moments, gamma, beta, gradients, how.pixels, 1 / how.pixels,
            POSITIONS=positions, **how.sizes,
        )  # fmt: skip
        dw1, dw2 = weight_gradients(d_hidden, mean, w1, d_logits, hidden, w2)
        return dy, gradients[1], gradients[0], dw1, db1, dw2, db2, None


@triton.jit
def squeeze_image(
    y, mean_of_image, sums, running_mean, running_var, moments, gamma, beta, share, eps, momentum,
    FROZEN: tl.constexpr, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The mean of h over the positions of an image; ``mean_of_image`` is N x CHANNELS."""
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    image = tl.program_id(0) // (CHANNELS // WIDE)
    mean, inverse = moments_here(
        sums, running_mean, running_var, moments, channel, image == 0, share, eps, momentum, FROZEN, CHANNELS
    )
    scale, shift = scale_and_shift(mean, inverse, gamma, beta, channel)
    total = tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(0, POSITIONS, BLOCK):
        position = start + tl.arange(0, BLOCK)
        inside = (position < POSITIONS)[:, None]
        place = (image * POSITIONS + position)[:, None] * CHANNELS + channel[None, :]
        before = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
        u = before * scale[None, :] + shift[None, :]
        if not FROZEN:
            u = nan_where_unsound(u, before)
        total += tl.where(inside, relu(u), 0.0)
    found = tl.sum(total, axis=0) * (1.0 / POSITIONS)
    tl.store(mean_of_image + image * CHANNELS + channel, found.to(mean_of_image.dtype.element_ty))


@triton.jit
def of_images(values, start, inside, channel, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    """What each of BLOCK pixels has from its image: a row for each, or one for all where they lie in the same image."""
    if POSITIONS % BLOCK == 0:
        found = tl.load(values + start // POSITIONS * CHANNELS + channel)[None, :]
    else:
        image = (start + tl.arange(0, BLOCK)) // POSITIONS
        found = tl.load(values + image[:, None] * CHANNELS + channel[None, :], mask=inside, other=0.0)
    return found.to(tl.float32)


@triton.jit
def weigh_tile(
    y, logits, out, moments, gamma, beta, pixels,
    FROZEN: tl.constexpr, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """out = h * sigmoid(logits); logits: N x CHANNELS."""
    channel, start, inside, place = tile_here(pixels, CHANNELS, WIDE, BLOCK)
    before = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    weight = tl.sigmoid(of_images(logits, start, inside, channel, POSITIONS, CHANNELS, BLOCK))
    mean, inverse = tl.load(moments + channel), tl.load(moments + CHANNELS + channel)
    scale, shift = scale_and_shift(mean, inverse, gamma, beta, channel)
    u = before * scale[None, :] + shift[None, :]
    if not FROZEN:
        u = nan_where_unsound(u, before)
    found = relu(u) * weight
    tl.store(out + place, found.to(out.dtype.element_ty), mask=inside)


@triton.jit
def weigh_back(
    gradient, y, logits, moments, gamma, beta, parts, logits_gradient, images,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of the logits, and four sums over the positions of an image where h is lit.

    parts: 4 x N x CHANNELS, float32, of the gradient, of it times the normalised y, of 1, and of the normalised y.
    The norm's own sums follow from them once the gradient of the mean is known, without another pass over the image.
    """
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    image = tl.program_id(0) // (CHANNELS // WIDE)
    mean, inverse = tl.load(moments + channel), tl.load(moments + CHANNELS + channel)
    scale, shift = scale_and_shift(mean, inverse, gamma, beta, channel)
    total, along = tl.zeros((BLOCK, WIDE), tl.float32), tl.zeros((BLOCK, WIDE), tl.float32)
    count, lit_y = tl.zeros((BLOCK, WIDE), tl.float32), tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(0, POSITIONS, BLOCK):
        position = start + tl.arange(0, BLOCK)
        inside = (position < POSITIONS)[:, None]
        place = (image * POSITIONS + position)[:, None] * CHANNELS + channel[None, :]
        g = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
        before = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
        lit = tl.where(inside & (before * scale[None, :] + shift[None, :] > 0), 1.0, 0.0)
        normalised = (before - mean[None, :]) * inverse[None, :]
        total += g * lit
        along += g * lit * normalised
        count += lit
        lit_y += lit * normalised
    place = image * CHANNELS + channel
    sum_g, sum_along = tl.sum(total, axis=0), tl.sum(along, axis=0)
    tl.store(parts + place, sum_g)
    tl.store(parts + images * CHANNELS + place, sum_along)
    tl.store(parts + 2 * images * CHANNELS + place, tl.sum(count, axis=0))
    tl.store(parts + 3 * images * CHANNELS + place, tl.sum(lit_y, axis=0))
    weight = tl.sigmoid(tl.load(logits + place).to(tl.float32))
    # Lit, h is gamma times the normalised y plus beta, so the sum of the gradient times h needs no sum of its own.
    found = (tl.load(gamma + channel) * sum_along + tl.load(beta + channel) * sum_g) * weight * (1.0 - weight)
    tl.store(logits_gradient + place, found.to(logits_gradient.dtype.element_ty))


@triton.jit
def back_through_hidden(
    gradient, hidden, bias_gradient, images, HIDDEN: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The gradient behind the hidden units' ReLU becomes that before it, and its sum over images that of their bias."""
    unit = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    total = tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(0, images, BLOCK):
        image = start + tl.arange(0, BLOCK)
        inside = (image < images)[:, None] & (unit < HIDDEN)[None, :]
        place = image[:, None] * HIDDEN + unit[None, :]
        lit = tl.load(hidden + place, mask=inside, other=0.0).to(tl.float32) > 0
        g = tl.where(lit, tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32), 0.0)
        tl.store(gradient + place, g.to(gradient.dtype.element_ty), mask=inside)
        total += g
    found = tl.sum(total, axis=0)
    tl.store(bias_gradient + unit, found.to(bias_gradient.dtype.element_ty), mask=unit < HIDDEN)


@triton.jit
def add_up_images(
    parts, logits, logits_gradient, mean_gradient, gradients, bias_gradient, images,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The norm's sums over the batch from those of each image: the gradients of beta and, behind it, of gamma.

    bias_gradient: the sum over images of the logits' gradient.
    """
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    total, along = tl.zeros((BLOCK, WIDE), tl.float32), tl.zeros((BLOCK, WIDE), tl.float32)
    of_logits = tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(0, images, BLOCK):
        image = start + tl.arange(0, BLOCK)
        inside = (image < images)[:, None]
        place = image[:, None] * CHANNELS + channel[None, :]
        weight = tl.sigmoid(tl.load(logits + place, mask=inside, other=0.0).to(tl.float32))
        each = tl.load(mean_gradient + place, mask=inside, other=0.0).to(tl.float32) * (1.0 / POSITIONS)
        sum_g = tl.load(parts + place, mask=inside, other=0.0)
        sum_along = tl.load(parts + images * CHANNELS + place, mask=inside, other=0.0)
        count = tl.load(parts + 2 * images * CHANNELS + place, mask=inside, other=0.0)
        lit_y = tl.load(parts + 3 * images * CHANNELS + place, mask=inside, other=0.0)
        total += weight * sum_g + each * count
        along += weight * sum_along + each * lit_y
        of_logits += tl.load(logits_gradient + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(bias_gradient + channel, tl.sum(of_logits, axis=0).to(bias_gradient.dtype.element_ty))
    tl.store(gradients + channel, tl.sum(total, axis=0))
    tl.store(gradients + CHANNELS + channel, tl.sum(along, axis=0))


@triton.jit
def through_weights(
    gradient, y, dy, logits, mean_gradient, moments, gamma, beta, gradients, pixels, share,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dy, the gradient at the norm's input, from that behind the weights and that of the mean."""
    channel, start, inside, place = tile_here(pixels, CHANNELS, WIDE, BLOCK)
    g = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
    before = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    weight = tl.sigmoid(of_images(logits, start, inside, channel, POSITIONS, CHANNELS, BLOCK))
    each = of_images(mean_gradient, start, inside, channel, POSITIONS, CHANNELS, BLOCK) * (1.0 / POSITIONS)
    mean, inverse = tl.load(moments + channel), tl.load(moments + CHANNELS + channel)
    scale, shift = scale_and_shift(mean, inverse, gamma, beta, channel)
    du = tl.where(before * scale[None, :] + shift[None, :] > 0, g * weight + each, 0.0)
    sum_du, sum_along = tl.load(gradients + channel), tl.load(gradients + CHANNELS + channel)
    a, b, c = back_affine(mean, inverse, gamma, sum_du, sum_along, channel, share)
    found = du * a[None, :] + before * b[None, :] + c[None, :]
    tl.store(dy + place, found.to(dy.dtype.element_ty), mask=inside)


Weights: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]
"""Weight and bias of the layer that squeezes, and of the one that gives the logits."""


def weights_like(weigh: SqueezeExcitation, y: Tensor) -> Weights | None:
    """What ``weigh`` learns; None where something of it is missing or has another dtype than y."""
    first, second = weigh.squeeze, weigh.excite
    w1, b1, w2, b2 = first.weight, first.bias, second.weight, second.bias
    if b1 is None or b2 is None or any(one.dtype != y.dtype for one in (w1, b1, w2, b2)):
        return None
    return w1, b1, w2, b2


def hidden_and_logits(mean: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
    w1, b1, w2, b2 = weights
    with torch.autocast(mean.device.type, enabled=False):  # all has one dtype, and the way back relies on it
        hidden = torch._addmm_activation(b1, mean, w1.flatten(1).t())  # with the ReLU in the same kernel
        return hidden, torch.addmm(b2, hidden, w2.flatten(1).t())


def weight_gradients(
    d_hidden: Tensor, mean: Tensor, w1: Tensor, d_logits: Tensor, hidden: Tensor, w2: Tensor
) -> tuple[Tensor, Tensor]:
    return (d_hidden.t() @ mean).view(w1.shape), (d_logits.t() @ hidden).view(w2.shape)

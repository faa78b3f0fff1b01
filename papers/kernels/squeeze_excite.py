"""Squeeze and excitation as one operation with its gradient: after batch norm and ReLU, or before a shortcut is added.

y and ``moments`` are as in ``batch_norm``. h = relu(bn(y)) is never stored but computed from y when it is needed. A sum
over the positions of one image is computed by one program; POSITIONS is H x W. Logits, means and their gradients are
N x CHANNELS. torch computes the two small layers in between.
"""

from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from papers.kernels import batch_norm
from papers.kernels.batch_norm import (
    backward_affine_of,
    batch_sums,
    channels_last,
    channels_of,
    kernels_support,
    norm_arguments,
    norm_moments,
    own_tile,
    scale_and_shift,
    tiling,
    two_outputs,
)
from papers.kernels.convolution import relu
from papers.kernels.sums import fits_32_bits, nan_where_too_large
from papers.networks.squeeze_excite import SqueezeExcitation

IMAGES, FEW = 128, 16
"""Images and channels per program in sums over images. There are few images, so small programs are faster."""


def batch_norm_squeeze_excite(norm: nn.BatchNorm2d, squeeze_excite: SqueezeExcitation, y: Tensor) -> Tensor:
    """squeeze_excite(relu(norm(y)))"""
    weights = squeeze_excite_weights(squeeze_excite, y)
    if weights is None or not kernels_support(norm, y, *weights):
        by_torch: Tensor = squeeze_excite(F.relu(norm(y)))
        return by_torch
    found: Tensor = _BatchNormSqueezeExcite.apply(y, norm.weight, norm.bias, norm, *weights)
    return found


def _image_tiles(y: Tensor, sums: int) -> tuple[int, dict[str, int]]:
    """Number of programs that each sum over one image, and their sizes; smaller tiles if there are many sums."""
    sizes, positions = tiling(y).sizes, y.shape[2] * y.shape[3]
    block = min(sizes["BLOCK"] // (2 if sums > 2 else 1), 1 << (positions - 1).bit_length())
    return len(y) * (y.shape[1] // sizes["WIDE"]), sizes | {"BLOCK": block, "POSITIONS": positions}


class _BatchNormSqueezeExcite(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, gamma: Tensor, beta: Tensor, norm: nn.BatchNorm2d, *weights: Tensor) -> Tensor:
        w1, b1, w2, b2 = weights
        y = channels_last(y)
        tiles, (programs, by_image) = tiling(y), _image_tiles(y, sums=1)
        known = norm_arguments(norm, y, batch_sums(norm, y, tiles)[0])
        mean, out = y.new_empty(y.shape[:2]), torch.empty_like(y)
        squeeze_image[(programs,)](
            y, mean, *known, gamma, beta, 1 / tiles.pixels, norm.eps, norm.momentum,
            FROZEN=not norm.training, **by_image,
        )  # fmt: skip
        hidden, logits = hidden_and_logits(mean, (w1, b1, w2, b2))
        excite_tile[(tiles.programs,)](
            y, logits, out, known[-1], gamma, beta, tiles.pixels, FROZEN=not norm.training,
            POSITIONS=by_image["POSITIONS"], **tiles.sizes,
        )  # fmt: skip
        ctx.save_for_backward(y, gamma, beta, w1, w2, known[-1], mean, hidden, logits)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        y, gamma, beta, w1, w2, moments, mean, hidden, logits = ctx.saved_tensors
        gradient = channels_last(gradient)
        tiles, (programs, by_image) = tiling(y), _image_tiles(y, sums=4)
        images, channels, positions = len(y), y.shape[1], by_image["POSITIONS"]
        parts = y.new_empty(4, images, channels, dtype=torch.float32)
        d_logits, gradients, dy = torch.empty_like(logits), torch.empty_like(moments), torch.empty_like(y)
        excite_backward[(programs,)](gradient, y, logits, moments, gamma, beta, parts, d_logits, images, **by_image)
        d_hidden, db1, db2 = d_logits @ w2.flatten(1), mean.new_empty(hidden.shape[1]), mean.new_empty(channels)
        hidden_backward[(-(-len(db1) // FEW),)](d_hidden, hidden, db1, images, HIDDEN=len(db1), WIDE=FEW, BLOCK=IMAGES)
        d_mean, few = d_hidden @ w1.flatten(1), min(FEW, channels & -channels)
        sum_images[(channels // few,)](
            parts, logits, d_logits, d_mean, gradients, db2, images,
            POSITIONS=positions, CHANNELS=channels, WIDE=few, BLOCK=IMAGES,
        )  # fmt: skip
        excite_input_gradient[(tiles.programs,)](
            gradient, y, dy, logits, d_mean, moments, gamma, beta, gradients, tiles.pixels, 1 / tiles.pixels,
            POSITIONS=positions, **tiles.sizes,
        )  # fmt: skip
        dw1, dw2 = weight_gradients(d_hidden, mean, w1, d_logits, hidden, w2)
        return dy, gradients[1], gradients[0], None, dw1, db1, dw2, db2


@triton.jit
def squeeze_image(
    y, mean_of_image, sums, running_mean, running_var, moments, gamma, beta, inverse_count, eps, momentum,
    FROZEN: tl.constexpr, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The mean of h over the positions of an image; ``mean_of_image`` is N x CHANNELS."""
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    image = tl.program_id(0) // (CHANNELS // WIDE)
    mean, inverse = norm_moments(
        sums, running_mean, running_var, moments, channel, image == 0, inverse_count, eps, momentum, FROZEN, CHANNELS
    )
    scale, shift = scale_and_shift(mean, inverse, gamma, beta, channel)
    total = tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(0, POSITIONS, BLOCK):
        position = start + tl.arange(0, BLOCK)
        inside = (position < POSITIONS)[:, None]
        offset = (image * POSITIONS + position)[:, None] * CHANNELS + channel[None, :]
        before = tl.load(y + offset, mask=inside, other=0.0).to(tl.float32)
        u = before * scale[None, :] + shift[None, :]
        if not FROZEN:
            u = nan_where_too_large(u, before)
        total += tl.where(inside, relu(u), 0.0)
    found = tl.sum(total, axis=0) * (1.0 / POSITIONS)
    tl.store(mean_of_image + image * CHANNELS + channel, found.to(mean_of_image.dtype.element_ty))


@triton.jit
def per_image(values, start, inside, channel, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    """The value of its image for each of BLOCK pixels: a row per pixel, or one row if all are in the same image."""
    if POSITIONS % BLOCK == 0:
        found = tl.load(values + start // POSITIONS * CHANNELS + channel)[None, :]
    else:
        image = (start + tl.arange(0, BLOCK)) // POSITIONS
        found = tl.load(values + image[:, None] * CHANNELS + channel[None, :], mask=inside, other=0.0)
    return found.to(tl.float32)


@triton.jit
def excite_tile(
    y, logits, out, moments, gamma, beta, pixels,
    FROZEN: tl.constexpr, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """out = h * sigmoid(logits); logits: N x CHANNELS."""
    channel, start, inside, offset = own_tile(pixels, CHANNELS, WIDE, BLOCK)
    before = tl.load(y + offset, mask=inside, other=0.0).to(tl.float32)
    weight = tl.sigmoid(per_image(logits, start, inside, channel, POSITIONS, CHANNELS, BLOCK))
    mean, inverse = tl.load(moments + channel), tl.load(moments + CHANNELS + channel)
    scale, shift = scale_and_shift(mean, inverse, gamma, beta, channel)
    u = before * scale[None, :] + shift[None, :]
    if not FROZEN:
        u = nan_where_too_large(u, before)
    found = relu(u) * weight
    tl.store(out + offset, found.to(out.dtype.element_ty), mask=inside)


@triton.jit
def excite_backward(
    gradient, y, logits, moments, gamma, beta, parts, logits_gradient, images,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of the logits, and four sums over the positions of an image at which h is active.

    parts: 4 x N x CHANNELS, float32, of the gradient, of it times the normalised y, of 1, and of the normalised y.
    The norm's own sums are computed from them once the gradient of the mean is known, without another pass over y.
    """
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    image = tl.program_id(0) // (CHANNELS // WIDE)
    mean, inverse = tl.load(moments + channel), tl.load(moments + CHANNELS + channel)
    scale, shift = scale_and_shift(mean, inverse, gamma, beta, channel)
    total, along = tl.zeros((BLOCK, WIDE), tl.float32), tl.zeros((BLOCK, WIDE), tl.float32)
    count, active_y = tl.zeros((BLOCK, WIDE), tl.float32), tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(0, POSITIONS, BLOCK):
        position = start + tl.arange(0, BLOCK)
        inside = (position < POSITIONS)[:, None]
        offset = (image * POSITIONS + position)[:, None] * CHANNELS + channel[None, :]
        g = tl.load(gradient + offset, mask=inside, other=0.0).to(tl.float32)
        before = tl.load(y + offset, mask=inside, other=0.0).to(tl.float32)
        active = tl.where(inside & (before * scale[None, :] + shift[None, :] > 0), 1.0, 0.0)
        normalised = (before - mean[None, :]) * inverse[None, :]
        total += g * active
        along += g * active * normalised
        count += active
        active_y += active * normalised
    offset = image * CHANNELS + channel
    sum_g, sum_along = tl.sum(total, axis=0), tl.sum(along, axis=0)
    tl.store(parts + offset, sum_g)
    tl.store(parts + images * CHANNELS + offset, sum_along)
    tl.store(parts + 2 * images * CHANNELS + offset, tl.sum(count, axis=0))
    tl.store(parts + 3 * images * CHANNELS + offset, tl.sum(active_y, axis=0))
    weight = tl.sigmoid(tl.load(logits + offset).to(tl.float32))
    # Where active, h is gamma times the normalised y plus beta, so the sum of the gradient times h follows.
    found = (tl.load(gamma + channel) * sum_along + tl.load(beta + channel) * sum_g) * weight * (1.0 - weight)
    tl.store(logits_gradient + offset, found.to(logits_gradient.dtype.element_ty))


@triton.jit
def hidden_backward(
    gradient, hidden, bias_gradient, images, HIDDEN: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Turn the gradient after the hidden units' ReLU into that before it, in place, and sum it for their bias."""
    unit = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    total = tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(0, images, BLOCK):
        image = start + tl.arange(0, BLOCK)
        inside = (image < images)[:, None] & (unit < HIDDEN)[None, :]
        offset = image[:, None] * HIDDEN + unit[None, :]
        active = tl.load(hidden + offset, mask=inside, other=0.0).to(tl.float32) > 0
        g = tl.where(active, tl.load(gradient + offset, mask=inside, other=0.0).to(tl.float32), 0.0)
        tl.store(gradient + offset, g.to(gradient.dtype.element_ty), mask=inside)
        total += g
    found = tl.sum(total, axis=0)
    tl.store(bias_gradient + unit, found.to(bias_gradient.dtype.element_ty), mask=unit < HIDDEN)


@triton.jit
def sum_images(
    parts, logits, logits_gradient, mean_gradient, gradients, bias_gradient, images,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The norm's sums over the batch from those of each image: the gradients of beta, then of gamma.

    bias_gradient: the sum over images of the logits' gradient.
    """
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    total, along = tl.zeros((BLOCK, WIDE), tl.float32), tl.zeros((BLOCK, WIDE), tl.float32)
    of_logits = tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(0, images, BLOCK):
        image = start + tl.arange(0, BLOCK)
        inside = (image < images)[:, None]
        offset = image[:, None] * CHANNELS + channel[None, :]
        weight = tl.sigmoid(tl.load(logits + offset, mask=inside, other=0.0).to(tl.float32))
        each = tl.load(mean_gradient + offset, mask=inside, other=0.0).to(tl.float32) * (1.0 / POSITIONS)
        sum_g = tl.load(parts + offset, mask=inside, other=0.0)
        sum_along = tl.load(parts + images * CHANNELS + offset, mask=inside, other=0.0)
        count = tl.load(parts + 2 * images * CHANNELS + offset, mask=inside, other=0.0)
        active_y = tl.load(parts + 3 * images * CHANNELS + offset, mask=inside, other=0.0)
        total += weight * sum_g + each * count
        along += weight * sum_along + each * active_y
        of_logits += tl.load(logits_gradient + offset, mask=inside, other=0.0).to(tl.float32)
    tl.store(bias_gradient + channel, tl.sum(of_logits, axis=0).to(bias_gradient.dtype.element_ty))
    tl.store(gradients + channel, tl.sum(total, axis=0))
    tl.store(gradients + CHANNELS + channel, tl.sum(along, axis=0))


@triton.jit
def excite_input_gradient(
    gradient, y, dy, logits, mean_gradient, moments, gamma, beta, gradients, pixels, inverse_count,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dy, the gradient at the norm's input, from the gradient of the output and that of the mean."""
    channel, start, inside, offset = own_tile(pixels, CHANNELS, WIDE, BLOCK)
    g = tl.load(gradient + offset, mask=inside, other=0.0).to(tl.float32)
    before = tl.load(y + offset, mask=inside, other=0.0).to(tl.float32)
    weight = tl.sigmoid(per_image(logits, start, inside, channel, POSITIONS, CHANNELS, BLOCK))
    each = per_image(mean_gradient, start, inside, channel, POSITIONS, CHANNELS, BLOCK) * (1.0 / POSITIONS)
    mean, inverse = tl.load(moments + channel), tl.load(moments + CHANNELS + channel)
    scale, shift = scale_and_shift(mean, inverse, gamma, beta, channel)
    du = tl.where(before * scale[None, :] + shift[None, :] > 0, g * weight + each, 0.0)
    sum_du, sum_along = tl.load(gradients + channel), tl.load(gradients + CHANNELS + channel)
    a, b, c = backward_affine_of(mean, inverse, gamma, sum_du, sum_along, channel, inverse_count)
    found = du * a[None, :] + before * b[None, :] + c[None, :]
    tl.store(dy + offset, found.to(dy.dtype.element_ty), mask=inside)


SqueezeExciteWeights: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]
"""Weight and bias of the layer that squeezes, then of the layer that gives the logits."""


def squeeze_excite_weights(squeeze_excite: SqueezeExcitation, y: Tensor) -> SqueezeExciteWeights | None:
    """The parameters of the module; None if one is missing or has another dtype than y."""
    first, second = squeeze_excite.squeeze, squeeze_excite.excite
    w1, b1, w2, b2 = first.weight, first.bias, second.weight, second.bias
    if b1 is None or b2 is None or any(one.dtype != y.dtype for one in (w1, b1, w2, b2)):
        return None
    return w1, b1, w2, b2


def hidden_and_logits(mean: Tensor, weights: SqueezeExciteWeights) -> tuple[Tensor, Tensor]:
    w1, b1, w2, b2 = weights
    with torch.autocast(mean.device.type, enabled=False):  # all have one dtype, which the backward pass needs
        hidden = torch._addmm_activation(b1, mean, w1.flatten(1).t())  # with the ReLU in the same kernel
        return hidden, torch.addmm(b2, hidden, w2.flatten(1).t())


def weight_gradients(
    d_hidden: Tensor, mean: Tensor, w1: Tensor, d_logits: Tensor, hidden: Tensor, w2: Tensor
) -> tuple[Tensor, Tensor]:
    return (d_hidden.t() @ mean).view(w1.shape), (d_logits.t() @ hidden).view(w2.shape)


NARROWEST = 16
"""Fewest channels of a program: 32 bytes of bf16, the smallest memory transaction."""


def squeeze_excite_add(squeeze_excite: SqueezeExcitation, y: Tensor, shortcut: Tensor) -> tuple[Tensor, ...]:
    """squeeze_excite(y) + shortcut, as two outputs: two users take one each, and the kernel adds their gradients."""
    weights = squeeze_excite_weights(squeeze_excite, y)
    if weights is None or shortcut.dtype != y.dtype or not fits_32_bits(y):
        u = squeeze_excite(y) + shortcut
        return u, u
    found: tuple[Tensor, ...] = _SqueezeExciteAdd.apply(y, shortcut, *weights)
    return found


def _narrow_image_tiles(y: Tensor) -> tuple[int, dict[str, int]]:
    """Number of programs that each sum over one image, and their sizes; fewer channels if there are few images."""
    sizes, positions = tiling(y).sizes, y.shape[2] * y.shape[3]
    wide = sizes["WIDE"]
    while wide > NARROWEST and len(y) * (y.shape[1] // wide) < batch_norm.PROGRAMS:
        wide //= 2
    block = min(batch_norm.TILE // wide, 1 << (positions - 1).bit_length())
    return len(y) * (y.shape[1] // wide), sizes | {"WIDE": wide, "BLOCK": block, "POSITIONS": positions}


class _SqueezeExciteAdd(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, y: Tensor, shortcut: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor
    ) -> tuple[Tensor, Tensor]:
        y, shortcut = channels_last(y), channels_last(shortcut)
        tiles, (programs, by_image) = tiling(y), _narrow_image_tiles(y)
        mean, out = y.new_empty(y.shape[:2]), torch.empty_like(y)
        mean_of_image[(programs,)](y, mean, **by_image)
        hidden, logits = hidden_and_logits(mean, (w1, b1, w2, b2))
        excite_and_add[(tiles.programs,)](
            y, logits, shortcut, out, tiles.pixels, POSITIONS=by_image["POSITIONS"], **tiles.sizes
        )
        ctx.save_for_backward(y, w1, w2, mean, hidden, logits)
        return two_outputs(ctx, out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
        present = [channels_last(one) for one in given if one is not None]
        if not present:
            return (None,) * 6
        y, w1, w2, mean, hidden, logits = ctx.saved_tensors
        tiles, (programs, by_image) = tiling(y), _narrow_image_tiles(y)
        more = len(present) > 1
        du = torch.empty_like(y) if more else present[0]
        d_logits, dy = torch.empty_like(logits), torch.empty_like(y)
        logits_backward[(programs,)](present[0], present[-1], y, logits, du, d_logits, MORE=more, **by_image)
        units, channels = hidden.shape[1], y.shape[1]
        d_hidden, db1, db2 = d_logits @ w2.flatten(1), mean.new_empty(units), mean.new_empty(channels)
        biases_backward[(-(-units // FEW) + -(-channels // FEW),)](
            d_hidden, hidden, db1, d_logits, db2, len(y), HIDDEN=units, CHANNELS=channels, WIDE=FEW, BLOCK=IMAGES
        )
        d_mean = d_hidden @ w1.flatten(1)
        image_backward[(tiles.programs,)](
            du, logits, d_mean, dy, tiles.pixels, POSITIONS=by_image["POSITIONS"], **tiles.sizes
        )
        dw1, dw2 = weight_gradients(d_hidden, mean, w1, d_logits, hidden, w2)
        return dy, du, dw1, db1, dw2, db2


@triton.jit
def mean_of_image(
    y, means, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The mean of y over the positions of an image."""
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    image = tl.program_id(0) // (CHANNELS // WIDE)
    total = tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(0, POSITIONS, BLOCK):
        position = start + tl.arange(0, BLOCK)
        offset = (image * POSITIONS + position)[:, None] * CHANNELS + channel[None, :]
        total += tl.load(y + offset, mask=(position < POSITIONS)[:, None], other=0.0).to(tl.float32)
    found = tl.sum(total, axis=0) * (1.0 / POSITIONS)
    tl.store(means + image * CHANNELS + channel, found.to(means.dtype.element_ty))


@triton.jit
def excite_and_add(
    y, logits, shortcut, out, pixels,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = y * sigmoid(logits) + shortcut"""
    channel, start, inside, offset = own_tile(pixels, CHANNELS, WIDE, BLOCK)
    before = tl.load(y + offset, mask=inside, other=0.0).to(tl.float32)
    added = tl.load(shortcut + offset, mask=inside, other=0.0).to(tl.float32)
    weight = tl.sigmoid(per_image(logits, start, inside, channel, POSITIONS, CHANNELS, BLOCK))
    tl.store(out + offset, (before * weight + added).to(out.dtype.element_ty), mask=inside)


@triton.jit
def logits_backward(
    gradient, more, y, logits, du, logits_gradient,
    MORE: tl.constexpr, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of the logits. MORE: the gradient of the sum has two parts, and du becomes their sum."""
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    image = tl.program_id(0) // (CHANNELS // WIDE)
    along = tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(0, POSITIONS, BLOCK):
        position = start + tl.arange(0, BLOCK)
        inside = (position < POSITIONS)[:, None]
        offset = (image * POSITIONS + position)[:, None] * CHANNELS + channel[None, :]
        g = tl.load(gradient + offset, mask=inside, other=0.0).to(tl.float32)
        if MORE:
            g += tl.load(more + offset, mask=inside, other=0.0).to(tl.float32)
            rounded = g.to(du.dtype.element_ty)
            tl.store(du + offset, rounded, mask=inside)
            g = rounded.to(tl.float32)
        along += g * tl.load(y + offset, mask=inside, other=0.0).to(tl.float32)
    offset = image * CHANNELS + channel
    weight = tl.sigmoid(tl.load(logits + offset).to(tl.float32))
    found = tl.sum(along, axis=0) * weight * (1.0 - weight)
    tl.store(logits_gradient + offset, found.to(logits_gradient.dtype.element_ty))


@triton.jit
def biases_backward(
    hidden_gradient, hidden, hidden_bias, logits_gradient, logits_bias, images,
    HIDDEN: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``hidden_backward``, and in further programs the gradient of the logits' bias."""
    before = (HIDDEN + WIDE - 1) // WIDE
    if tl.program_id(0) < before:
        hidden_backward(hidden_gradient, hidden, hidden_bias, images, HIDDEN, WIDE, BLOCK)
    else:
        channel = (tl.program_id(0) - before) * WIDE + tl.arange(0, WIDE)
        total = tl.zeros((BLOCK, WIDE), tl.float32)
        for start in range(0, images, BLOCK):
            image = start + tl.arange(0, BLOCK)
            inside = (image < images)[:, None] & (channel < CHANNELS)[None, :]
            offset = image[:, None] * CHANNELS + channel[None, :]
            total += tl.load(logits_gradient + offset, mask=inside, other=0.0).to(tl.float32)
        found = tl.sum(total, axis=0)
        tl.store(logits_bias + channel, found.to(logits_bias.dtype.element_ty), mask=channel < CHANNELS)


@triton.jit
def image_backward(
    du, logits, mean_gradient, dy, pixels,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dy, the gradient of y, from the gradient of the sum and that of the mean."""
    channel, start, inside, offset = own_tile(pixels, CHANNELS, WIDE, BLOCK)
    g = tl.load(du + offset, mask=inside, other=0.0).to(tl.float32)
    weight = tl.sigmoid(per_image(logits, start, inside, channel, POSITIONS, CHANNELS, BLOCK))
    each = per_image(mean_gradient, start, inside, channel, POSITIONS, CHANNELS, BLOCK) * (1.0 / POSITIONS)
    tl.store(dy + offset, (g * weight + each).to(dy.dtype.element_ty), mask=inside)

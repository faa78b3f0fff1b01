"""Batch norm, ReLU, and channels weighed by what the whole image shows (squeeze and excitation), forward and back.

As in ``normed.py``, whose y and moments these are. What lies between norm and weights is never stored: h = relu(bn(y))
is found from y wherever it is needed. Sums over the positions of one image need no other program: POSITIONS is H x W.
"""

import triton
import triton.language as tl

from holdfast.kernels.forward import relu
from holdfast.kernels.normed import back_affine, channels_of, moments_here, scale_and_shift, tile_here
from holdfast.kernels.sums import nan_where_unsound


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

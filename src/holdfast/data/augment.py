"""Augmentation as a function of the batch: drawn per image, on the device, from one generator.

Random resized crops of a whole batch at once, on the device: boxes are drawn, cut out and scaled without a loop.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Part(NamedTuple):
    """Says that the images are some rows of a larger batch; numbers are drawn for all of it, as if it were whole."""

    rows: Tensor
    batch: int


def augment(
    images: Tensor,
    *,
    crop_padding: int,
    flip: bool,
    generator: torch.Generator,
    resized_crop: int = 0,
    crop_scale: tuple[float, float] = (0.08, 1.0),
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3),
    part: Part | None = None,
) -> Tensor:
    """A random crop, then a horizontal flip of every other image; any dtype, B x C x H x W.

    The crop is one of the same size after padding with black, or, with ``resized_crop``, a box scaled to that many
    pixels a side (uint8 only).
    """
    if resized_crop:
        boxes = crop_boxes(
            images.shape if part is None else torch.Size((part.batch, *images.shape[1:])),
            scale=crop_scale,
            ratio=crop_ratio,
            generator=generator,
        )
        images = cut_and_scale(images, boxes if part is None else boxes[:, part.rows], resized_crop)
    if crop_padding:
        images = random_crop(images, crop_padding, generator, part)
    if flip:
        images = random_flip(images, generator, part)
    return images


def random_crop(images: Tensor, padding: int, generator: torch.Generator, part: Part | None = None) -> Tensor:
    """Each image shifted by up to ``padding`` pixels each way, its own shift; black comes in at the edges."""
    batch, _, height, width = images.shape
    device = images.device
    drawn = batch if part is None else part.batch
    shift = torch.randint(0, 2 * padding + 1, (2, drawn, 1), generator=generator, device=device)
    if part is not None:
        shift = shift[:, part.rows]
    rows = shift[0] + torch.arange(height, device=device)
    columns = shift[1] + torch.arange(width, device=device)
    padded = F.pad(images, (padding,) * 4)
    which = torch.arange(batch, device=device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[which, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def random_flip(images: Tensor, generator: torch.Generator, part: Part | None = None) -> Tensor:
    """Each image mirrored left to right with probability one half."""
    drawn = len(images) if part is None else part.batch
    mirrored = torch.rand(drawn, 1, 1, 1, generator=generator, device=images.device) < 0.5
    if part is not None:
        mirrored = mirrored[part.rows]
    return torch.where(mirrored, images.flip(-1), images)


TRIES = 10
"""Boxes drawn for each image; the first that fits in it is taken, as the usual one-image loop does."""


def crop_boxes(
    shape: torch.Size, *, scale: tuple[float, float], ratio: tuple[float, float], generator: torch.Generator
) -> Tensor:
    """Top, left, height and width, 4 x B whole numbers for images of ``shape``; where no box fits, the largest.

    scale: the share of the image's area that a box covers, drawn evenly between the two.
    ratio: its width over its height, drawn evenly on the logarithm's scale.
    """
    batch, _, height, width = shape
    device = generator.device
    drawn = torch.rand(4, TRIES, batch, generator=generator, device=device)
    area = height * width * (scale[0] + (scale[1] - scale[0]) * drawn[0])
    low, high = math.log(ratio[0]), math.log(ratio[1])
    aspect = torch.exp(low + (high - low) * drawn[1])
    heights, widths = (area / aspect).sqrt().round(), (area * aspect).sqrt().round()
    fits = (heights >= 1) & (heights <= height) & (widths >= 1) & (widths <= width)
    first = fits.to(torch.uint8).argmax(dim=0, keepdim=True)  # the first of equals
    some = fits.any(dim=0)
    whole_height, whole_width = _largest(height, width, ratio)
    tall = heights.gather(0, first)[0].masked_fill(~some, whole_height)
    wide = widths.gather(0, first)[0].masked_fill(~some, whole_width)
    top, left = (
        torch.where(some, (random * (room + 1)).floor().minimum(room), (room / 2).floor())
        for random, room in ((drawn[2, 0], height - tall), (drawn[3, 0], width - wide))
    )
    return torch.stack([top, left, tall, wide]).long()


def cut_and_scale(images: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Each image's box scaled to ``size`` x ``size``, bilinear, pixels outside the box never read; uint8.

    Without a low-pass filter: keep images little larger than ``size``, so that none is needed.
    """
    top, left, tall, wide = boxes
    rows = _positions(top, tall, size, images.shape[2])
    columns = _positions(left, wide, size, images.shape[3])
    grid = torch.stack(
        [columns[:, None, :].expand(-1, size, -1), rows[:, :, None].expand(-1, -1, size)],
        dim=-1,
    )
    cut = F.grid_sample(images.float(), grid, mode="bilinear", padding_mode="border", align_corners=True)
    return cut.round_().to(torch.uint8)


def centre_crop(images: Tensor, height: int, width: int) -> Tensor:
    """The middle of each image, where random crops are of no use; an image of that size is itself."""
    top, left = (images.shape[-2] - height) // 2, (images.shape[-1] - width) // 2
    return images[..., top : top + height, left : left + width]


def _largest(height: int, width: int, ratio: tuple[float, float]) -> tuple[float, float]:
    """Height and width of the largest box in the image whose ratio is allowed."""
    if width < ratio[0] * height:
        return min(height, round(width / ratio[0])), width
    if width > ratio[1] * height:
        return height, min(width, round(height * ratio[1]))
    return height, width


def _positions(start: Tensor, length: Tensor, size: int, side: int) -> Tensor:
    """Where ``size`` pixels spread over a box lie in an image's side, B x size, in the -1..1 of ``grid_sample``.

    Pixels are centred at whole numbers. Held inside the box: an image cut out and then scaled knows nothing beyond it.
    """
    start, length = start[:, None].float(), length[:, None].float()
    inside = (torch.arange(size, device=start.device) + 0.5) * (length / size) - 0.5
    return (start + inside.clamp(min=0).minimum(length - 1)) * (2 / max(side - 1, 1)) - 1

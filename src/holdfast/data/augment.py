"""Augmentation as a function of the batch: drawn per image, on the device, from one generator."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.data.resized_crop import crop_boxes, cut_and_scale


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

"""Augmentation as a function of the batch: drawn per image, on the device, from one generator."""

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.data.resized_crop import random_resized_crop


def augment(
    images: Tensor,
    *,
    crop_padding: int,
    flip: bool,
    generator: torch.Generator,
    resized_crop: int = 0,
    crop_scale: tuple[float, float] = (0.08, 1.0),
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Tensor:
    """A random crop, then a horizontal flip of every other image; any dtype, B x C x H x W.

    The crop is one of the same size after padding with black, or, with ``resized_crop``, a box scaled to that many
    pixels a side (uint8 only).
    """
    if resized_crop:
        images = random_resized_crop(images, resized_crop, scale=crop_scale, ratio=crop_ratio, generator=generator)
    if crop_padding:
        images = random_crop(images, crop_padding, generator)
    if flip:
        images = random_flip(images, generator)
    return images


def random_crop(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Each image shifted by up to ``padding`` pixels each way, its own shift; black comes in at the edges."""
    batch, _, height, width = images.shape
    device = images.device
    shift = torch.randint(0, 2 * padding + 1, (2, batch, 1), generator=generator, device=device)
    rows = shift[0] + torch.arange(height, device=device)
    columns = shift[1] + torch.arange(width, device=device)
    padded = F.pad(images, (padding,) * 4)
    which = torch.arange(batch, device=device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[which, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def random_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image mirrored left to right with probability one half."""
    mirrored = torch.rand(len(images), 1, 1, 1, generator=generator, device=images.device) < 0.5
    return torch.where(mirrored, images.flip(-1), images)

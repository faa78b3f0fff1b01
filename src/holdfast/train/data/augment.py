"""Augmentation of a whole batch on its device: random crops, resized crops and flips, drawn for each image."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.core.errors import HoldfastError


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
    """Random crops, then random horizontal flips, of images of any dtype, B x C x H x W.

    crop_padding: pixels of black padding on each side before a crop of the original size; 0 turns it off.
    flip: mirror each image with probability 1/2.
    generator: on the images' device.
    resized_crop: side in pixels of a random resized crop (uint8 images only); 0 turns it off.
    crop_scale: smallest and largest share of the image's area in a resized crop.
    crop_ratio: smallest and largest width / height of a resized crop.
    """
    if resized_crop:
        boxes = crop_boxes(images.shape, scale=crop_scale, ratio=crop_ratio, generator=generator)
        images = crop_and_resize(images, boxes, resized_crop)
    if crop_padding:
        images = random_crop(images, crop_padding, generator)
    if flip:
        images = random_flip(images, generator)
    return images


def random_crop(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Shift each image by up to ``padding`` pixels in each direction, independently, filling with black."""
    batch, _, height, width = images.shape
    device = images.device
    shift = torch.randint(0, 2 * padding + 1, (2, batch, 1), generator=generator, device=device)
    rows = shift[0] + torch.arange(height, device=device)
    columns = shift[1] + torch.arange(width, device=device)
    padded = F.pad(images, (padding,) * 4)
    which = torch.arange(batch, device=device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[which, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def random_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image left to right with probability 1/2."""
    mirrored = torch.rand(len(images), 1, 1, 1, generator=generator, device=images.device) < 0.5
    return torch.where(mirrored, images.flip(-1), images)


BOX_TRIES = 10
"""Boxes drawn for each image. The first that fits is used, as in torchvision."""


def crop_boxes(
    shape: torch.Size, *, scale: tuple[float, float], ratio: tuple[float, float], generator: torch.Generator
) -> Tensor:
    """Random boxes for images of ``shape``: top, left, height and width, 4 x B whole numbers.

    scale: share of the image's area in a box, uniform between the two numbers.
    ratio: width / height of a box, log-uniform between the two numbers.
    If no drawn box fits into an image, its box is the largest central one with an allowed ratio.
    """
    batch, _, height, width = shape
    device = generator.device
    drawn = torch.rand(4, BOX_TRIES, batch, generator=generator, device=device)
    area = height * width * (scale[0] + (scale[1] - scale[0]) * drawn[0])
    low, high = math.log(ratio[0]), math.log(ratio[1])
    aspect = torch.exp(low + (high - low) * drawn[1])
    heights, widths = (area / aspect).sqrt().round(), (area * aspect).sqrt().round()
    fits = (heights >= 1) & (heights <= height) & (widths >= 1) & (widths <= width)
    first = fits.to(torch.uint8).argmax(dim=0, keepdim=True)  # the first maximum
    some = fits.any(dim=0)
    whole_height, whole_width = _largest_box(height, width, ratio)
    tall = heights.gather(0, first)[0].masked_fill(~some, whole_height)
    wide = widths.gather(0, first)[0].masked_fill(~some, whole_width)
    top, left = (
        torch.where(some, (random * (free + 1)).floor().minimum(free), (free / 2).floor())
        for random, free in ((drawn[2, 0], height - tall), (drawn[3, 0], width - wide))
    )
    return torch.stack([top, left, tall, wide]).long()


def crop_and_resize(images: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Crop each image's box and resize it to ``size`` x ``size``, bilinear, uint8. Pixels outside the box are not read.

    There is no antialiasing: store images that are only a little larger than ``size``.
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
    """The centre of each image, height x width; an image of that size is unchanged, and a smaller one is refused."""
    if images.shape[-2] < height or images.shape[-1] < width:
        raise HoldfastError(f"images of {images.shape[-2]} x {images.shape[-1]} are smaller than {height} x {width}")
    top, left = (images.shape[-2] - height) // 2, (images.shape[-1] - width) // 2
    return images[..., top : top + height, left : left + width]


def _largest_box(height: int, width: int, ratio: tuple[float, float]) -> tuple[float, float]:
    """Height and width of the largest box in the image with an allowed ratio."""
    if width < ratio[0] * height:
        return min(height, round(width / ratio[0])), width
    if width > ratio[1] * height:
        return height, min(width, round(height * ratio[1]))
    return height, width


def _positions(start: Tensor, length: Tensor, size: int, side: int) -> Tensor:
    """Sampling positions of ``size`` output pixels along one side of each box, B x size, in ``grid_sample``'s -1..1.

    Positions are clamped to the box, so that the result equals a crop that is resized afterwards.
    """
    start, length = start[:, None].float(), length[:, None].float()
    inside = (torch.arange(size, device=start.device) + 0.5) * (length / size) - 0.5
    return (start + inside.clamp(min=0).minimum(length - 1)) * (2 / max(side - 1, 1)) - 1

"""Decode image files to 8-bit pixels, with the checks that untrusted files need.

All image files are decoded here, so that datasets and encoders see the same pixels.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal

import numpy as np

from holdfast.core.errors import HoldfastError, how_to_install, unknown_name
from holdfast.core.wording import printable

try:
    from PIL import Image, ImageOps, UnidentifiedImageError
except ModuleNotFoundError:  # the core does without it: it reads what a model takes, but no images
    Image = None  # type: ignore[assignment]

Colour = Literal["rgb", "grey"]
Interpolation = Literal["bilinear", "bicubic", "nearest"]

MAX_PIXELS = 64 * 1024 * 1024
"""The largest image decoded by default: 64 megapixels, 192 MiB as RGB."""

MODES = {"rgb": "RGB", "grey": "L"}
RESAMPLING = {"bilinear": 2, "bicubic": 3, "nearest": 0}
"""Pillow's numbers (``PIL.Image.Resampling``)."""

# Raster formats only: Pillow would open EPS by running Ghostscript on it.
# JPEG 2000 is left out, because a file of 600 bytes can take 13 s to decode.
_FORMATS = ("PNG", "JPEG", "MPO", "WEBP", "BMP", "GIF", "TIFF", "PPM", "AVIF", "HEIF")
_PLUGINS = ("Png", "Jpeg", "Mpo", "WebP", "Bmp", "Gif", "Tiff", "Ppm", "Avif")
_BAND_ROWS = 256

SENT_FORMATS = tuple(name for name in _FORMATS if name != "PPM")
"""The formats that people send over the network."""

IMAGE_SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".avif", ".heic", ".heif")
)
"""How the name of an image file ends, in small letters. Files with other names are not taken for images."""


def is_picture(source: Any) -> bool:
    """Whether ``source`` is a PIL image."""
    return Image is not None and isinstance(source, Image.Image)


def from_array(pixels: np.ndarray) -> Image.Image:
    """A PIL image of uint8 pixels, H x W or H x W x C."""
    return Image.fromarray(pixels)


def decode_with_one_thread() -> None:
    """Let AVIF and HEIC be decoded by the calling thread only, for processes with little memory."""
    _formats()
    with contextlib.suppress(ImportError):
        from PIL import AvifImagePlugin

        AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    with contextlib.suppress(ImportError):
        import pillow_heif

        pillow_heif.options.DECODE_THREADS = 1


def open_image(
    source: str | Path | bytes | Image.Image,
    *,
    colour: Colour = "rgb",
    max_pixels: int = MAX_PIXELS,
    formats: Collection[str] = _FORMATS,
) -> Image.Image:
    """Decode one image to mode RGB or L, rotated by its EXIF orientation. The result is always a new image.

    source: a path, the bytes of an image file, or a PIL image.
    colour: "rgb" or "grey".
    max_pixels: larger images are refused by their header, before they are decoded.
    formats: Pillow's names of the formats that are decoded.

    16-bit grey keeps its high byte, transparency is blended with white, and an animation gives its first frame.
    Floating-point pixels are refused, because they have no agreed range. HEIC needs the extra ``heif``, and AVIF a
    Pillow that was built with it.
    """
    if colour not in MODES:
        raise unknown_name("colour", colour, MODES)
    return _opened(source, MODES[colour], max_pixels, formats)


def check_image(path: Path) -> None:
    """Raise the error that ``open_image`` would raise for this file. All of the file is decoded, JPEG at an eighth."""
    _opened(path, "RGB", MAX_PIXELS, _FORMATS, draft=True)


def _opened(
    source: str | Path | bytes | Image.Image,
    mode: str,
    max_pixels: int,
    formats: Collection[str],
    *,
    draft: bool = False,
) -> Image.Image:
    if Image is None:
        raise HoldfastError(f"reading images needs Pillow, which is not installed; {how_to_install('train')}")
    name = _name(source)
    try:
        if isinstance(source, Image.Image):
            _refuse_size(source, name, max_pixels)
            return _plain(source.copy(), name, mode, max_pixels)
        stream = io.BytesIO(source) if isinstance(source, bytes) else source
        with Image.open(stream, formats=[name for name in _formats() if name in formats]) as image:
            _refuse_size(image, name, max_pixels)
            if draft:
                image.draft(None, (1, 1))
            return _plain(image, name, mode, max_pixels)
    except HoldfastError:
        raise
    except UnidentifiedImageError as error:
        raise HoldfastError(f"{name}: {_unidentified(source)}") from error
    except FileNotFoundError:
        raise HoldfastError(f"{name}: no such image file") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise HoldfastError(f"{name}: far over the limit of {max_pixels} pixels; scale the image down first") from None
    except Exception as error:  # decoders raise any exception on hostile bytes
        raise HoldfastError(f"{name}: not readable as an image ({_decoder_reason(error)})") from error


def resize_and_crop(
    image: Image.Image,
    size: int | tuple[int, int],
    *,
    resize: int | None = None,
    interpolation: Interpolation = "bilinear",
) -> Image.Image:
    """Scale the shorter side to ``resize`` (antialiased), then crop ``size`` from the centre.

    size: height and width of the result; one number means a square.
    resize: None scales to the smallest image that covers ``size``; a smaller scale is never used.
    interpolation: "bilinear", "bicubic" or "nearest".

    An image that already has the size is returned unchanged.
    """
    if interpolation not in RESAMPLING:
        raise unknown_name("interpolation", interpolation, RESAMPLING)
    height, width = (size, size) if isinstance(size, int) else size
    if image.size == (width, height):
        return image
    scale = max(height / image.height, width / image.width, (resize or 0) / min(image.size))
    scaled_height, scaled_width = max(height, round(image.height * scale)), max(width, round(image.width * scale))
    top, left = (scaled_height - height) // 2, (scaled_width - width) // 2
    # Resample only the part that is kept: otherwise a strip of 1 x 100,000 pixels would become a huge image.
    across, down = image.width / scaled_width, image.height / scaled_height
    box = (
        left * across,
        top * down,
        min((left + width) * across, image.width),
        min((top + height) * down, image.height),
    )
    return image.resize((width, height), RESAMPLING[interpolation], box=box)


def _refuse_size(image: Image.Image, name: str, max_pixels: int) -> None:
    pixels = image.width * image.height
    if pixels > max_pixels:
        size = f"{image.width} x {image.height}"
        raise HoldfastError(f"{name}: {size} is {pixels} pixels, over the limit of {max_pixels}; scale it down first")
    if pixels == 0:
        raise HoldfastError(f"{name}: the image has no pixels")


def _plain(image: Image.Image, name: str, mode: str, max_pixels: int) -> Image.Image:
    """The image in ``mode``, upright. Changes ``image``; at most one further copy of its pixels is made."""
    _refuse_size(image, name, max_pixels)
    if image.mode == "F":
        raise HoldfastError(f"{name}: floating-point pixels have no agreed range; save it as 8- or 16-bit")
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode.startswith("I"):  # 16-bit grey, which some versions of Pillow hold as 32-bit integers
        return _in_bands(image, mode, _high_byte)
    if image.has_transparency_data:
        return _in_bands(image, mode, _blended_with_white)
    if image.mode != mode:
        return image.convert(mode)
    return image if image.format in _LOADED_ONCE else image.copy()


_LOADED_ONCE = (None, "JPEG", "MPO", "PNG", "BMP")
"""Formats whose image object needs its file no more once it is loaded; None: not from a file."""


def _in_bands(image: Image.Image, mode: str, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """``convert`` applied to bands of rows, as an image in ``mode``: what it needs in between stays small."""
    result = Image.new(mode, image.size)
    for top in range(0, image.height, _BAND_ROWS):
        band = convert(image.crop((0, top, image.width, min(top + _BAND_ROWS, image.height))))
        result.paste(band if band.mode == mode else band.convert(mode), (0, top))
    return result


def _high_byte(band: Image.Image) -> Image.Image:
    return Image.fromarray((np.asarray(band).clip(0, 65535) >> 8).astype(np.uint8))


def _blended_with_white(band: Image.Image) -> Image.Image:
    band = band.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", band.size, "white"), band)


def _decoder_reason(error: Exception) -> str:
    """What a decoder says, without Python's names and object addresses."""
    said = " ".join(re.sub(r"<[^<>]* at 0x[0-9a-fA-F]+>", "the file", str(error)).split()).rstrip(".")
    return printable(said) if said else "damaged"


def _name(source: str | Path | bytes | Image.Image) -> str:
    if isinstance(source, bytes):
        return "the image"
    if not isinstance(source, str | Path):
        return str(getattr(source, "filename", "") or "PIL image")
    return printable(source)


_HEIF_BRANDS = {b"avif": "AVIF", b"avis": "AVIF"} | dict.fromkeys(
    (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), "HEIC"
)


def _unidentified(source: str | Path | bytes | Image.Image) -> str:
    """Why no decoder takes the file: it is empty, HEIC or AVIF without a decoder, or not an image."""
    if isinstance(source, bytes):
        head = source[:12]
    else:
        with open(str(source), "rb") as file:
            head = file.read(12)
    if not head:
        return "not readable as an image (the file is empty)"
    brand = _HEIF_BRANDS.get(head[8:12]) if head[4:8] == b"ftyp" else None
    if brand is not None and not _can_read(brand):
        return _missing_decoder(brand)
    return "not readable as an image (unknown format, or damaged)"


def _missing_decoder(kind: str) -> str:
    """What to install so that "HEIC" or "AVIF" files can be decoded."""
    if kind == "HEIC":
        return f"HEIC needs the extra heif: {how_to_install('heif')}"
    return "AVIF needs a Pillow with AVIF: pip install 'pillow>=11.3'"


def _can_read(kind: str) -> bool:
    return ("HEIF" if kind == "HEIC" else kind) in _formats()


@functools.cache
def _formats() -> tuple[str, ...]:
    """The accepted formats that this build of Pillow has, and HEIF if pillow-heif is installed."""
    with contextlib.suppress(ImportError):
        import pillow_heif

        pillow_heif.register_heif_opener()
    for module in _PLUGINS:  # Image.init would import the plugins of all formats, which takes longer than to decode
        with contextlib.suppress(ImportError):
            importlib.import_module(f"PIL.{module}ImagePlugin")
    return tuple(name for name in _FORMATS if name in Image.OPEN)

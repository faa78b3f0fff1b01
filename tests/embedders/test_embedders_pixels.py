"""Decoding: what files become, and what is refused."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from holdfast.core.errors import HoldfastError
from holdfast.embedders.pixels import open_image, resize_and_crop


def gradient(height=6, width=9, channels=3):
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


def encoded(image, kind="PNG", **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def png_header(width, height):
    """A valid PNG that claims a size and holds one row's worth of nothing."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")


def test_path_bytes_and_image_agree(tmp_path):
    pixels = gradient()
    image = Image.fromarray(pixels)
    image.save(tmp_path / "a.png")
    for source in (tmp_path / "a.png", str(tmp_path / "a.png"), encoded(image), image):
        assert np.array_equal(np.asarray(open_image(source)), pixels)
        assert open_image(source, colour="grey").mode == "L"
    assert open_image(image) is not image


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_undone(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = gradient()
    upright = {
        1: stored,
        2: stored[:, ::-1],
        3: stored[::-1, ::-1],
        4: stored[::-1],
        5: stored.transpose(1, 0, 2),
        6: np.rot90(stored, -1),
        7: stored[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(stored, 1),
    }[orientation]
    assert np.array_equal(np.asarray(open_image(encoded(Image.fromarray(stored), exif=exif))), upright)


def test_unusual_modes():
    sixteen = np.array([[0, 255, 256], [32768, 40000, 65535]], dtype=np.uint16)
    grey = open_image(encoded(Image.fromarray(sixteen)), colour="grey")
    assert np.array_equal(np.asarray(grey), sixteen >> 8)
    assert open_image(encoded(Image.fromarray(sixteen))).getpixel((1, 1)) == (40000 >> 8,) * 3
    clear = Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    clear.putpixel((1, 0), (255, 0, 0, 255))
    assert [open_image(encoded(clear)).getpixel((x, 0)) for x in (0, 1)] == [(255, 255, 255), (255, 0, 0)]
    palette = Image.new("P", (1, 1))
    palette.putpalette([10, 20, 30])
    assert open_image(encoded(palette)).getpixel((0, 0)) == (10, 20, 30)
    assert open_image(encoded(palette, transparency=0)).getpixel((0, 0)) == (255, 255, 255)
    assert open_image(Image.new("1", (1, 1), 1), colour="grey").getpixel((0, 0)) == 255
    assert open_image(Image.new("CMYK", (1, 1))).getpixel((0, 0)) == (255, 255, 255)
    with pytest.raises(HoldfastError, match="floating-point"):
        open_image(Image.new("F", (2, 2)))


@pytest.mark.parametrize("side", [9000, 12_000, 60_000])
def test_huge_images_are_refused_by_their_header(tmp_path, side):
    (tmp_path / "bomb.png").write_bytes(png_header(side, side))
    with pytest.raises(HoldfastError, match=r"bomb\.png: .*limit of 67108864"):
        open_image(tmp_path / "bomb.png")


def test_the_limit_is_inclusive():
    image = Image.new("L", (10, 10))
    assert open_image(image, max_pixels=100).size == (10, 10)
    with pytest.raises(HoldfastError, match="10 x 10 is 100 pixels, over the limit of 99"):
        open_image(image, max_pixels=99)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_truncated_files_are_named(tmp_path, kind):
    data = encoded(Image.fromarray(gradient(64, 64)), kind)
    path = tmp_path / f"cut.{kind.lower()}"
    for kept in (len(data) // 2, 10, 0):
        path.write_bytes(data[:kept])
        with pytest.raises(HoldfastError, match=r"cut\.\w+: not readable as an image"):
            open_image(path)


def test_other_things_are_refused(tmp_path):
    (tmp_path / "page.eps").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n")
    with pytest.raises(HoldfastError, match=r"page\.eps: not readable"):
        open_image(tmp_path / "page.eps")
    with pytest.raises(HoldfastError, match="no such image file"):
        open_image(tmp_path / "absent.png")
    with pytest.raises(HoldfastError, match="not readable"):
        open_image(tmp_path)
    with pytest.raises(HoldfastError, match="unknown colour 'bgr'; known: grey, rgb"):
        open_image(Image.new("L", (1, 1)), colour="bgr")


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize(("height", "width"), [(60, 90), (90, 60), (20, 31), (64, 64)])
def test_resize_and_crop_is_resize_then_crop(height, width, interpolation):
    smooth = np.add.outer(np.arange(height) * 2, np.arange(width) * 1.0).clip(0, 255).astype(np.uint8)
    image = Image.fromarray(smooth)
    scale = 40 / min(height, width)
    scaled = (round(width * scale), round(height * scale))
    left, top = (scaled[0] - 32) // 2, (scaled[1] - 32) // 2
    mode = Image.Resampling[interpolation.upper()]
    expected = image.resize(scaled, mode).crop((left, top, left + 32, top + 32))
    found = resize_and_crop(image, 32, resize=40, interpolation=interpolation)
    difference = np.abs(np.asarray(found).astype(int) - np.asarray(expected).astype(int))
    assert difference.max() <= (4 if interpolation == "nearest" else 1)


def test_resize_none_covers_and_the_right_size_is_untouched():
    image = Image.fromarray(gradient(40, 80))
    assert resize_and_crop(image, (40, 80)) is image
    assert resize_and_crop(image, (80, 40)).size == (40, 80)
    # The shorter side becomes 20, so the middle half of the width is kept.
    assert np.array_equal(
        np.asarray(resize_and_crop(image, 20)), np.asarray(image.resize((20, 20), 2, box=(20, 0, 60, 40)))
    )
    assert resize_and_crop(Image.new("L", (1, 60_000)), 224).size == (224, 224)
    with pytest.raises(HoldfastError, match="unknown interpolation"):
        resize_and_crop(image, 8, interpolation="cubic")

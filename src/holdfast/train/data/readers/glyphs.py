"""Glyphs: characters drawn from fonts, an open-set retrieval dataset that needs no download.

A class is a character. Its images differ in font, stroke, pose, contrast, blur and noise. Training and evaluation
classes are disjoint. The fonts are those that matplotlib ships (DejaVu), found without importing matplotlib.
"""

import importlib.util
import math
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.train.data.images import ImageSet, canonical

FONTS = tuple(
    f"DejaVu{family}{style}.ttf"
    for family, slant in (("Sans", "Oblique"), ("SansMono", "Oblique"), ("Serif", "Italic"))
    for style in ("", "-Bold", f"-{slant}", f"-Bold{slant}")
)
_SPLITS = {"train": 0, "query": 1, "gallery": 2}
_MARGIN = 2  # empty pixels around a rendered glyph, so that interpolation fades its edge out


def glyphs(
    root: Path,
    split: str,
    *,
    train_classes: int = 60,
    test_classes: int = 40,
    per_class_train: int = 100,
    per_class_query: int = 10,
    per_class_gallery: int = 20,
    size: int = 28,
    seed: int = 0,
    difficulty: float = 1.0,
) -> ImageSet:
    """Draw one split: ``train``, or ``query`` and ``gallery`` of other classes; grey, size x size.

    root: not used.
    train_classes, test_classes: number of classes for training and for evaluation.
    per_class_train, per_class_query, per_class_gallery: images of each class.
    size: side of the images in pixels, 8 to 256.
    seed: seed of the classes and images.
    difficulty: strength of pose, stroke, contrast, blur and noise, 0 to 2; at 0 only the font varies.

    Every image depends only on (seed, character, split, its number), so more images or classes change no others.
    Another version of FreeType may draw some pixels differently.
    """
    if split not in _SPLITS:
        raise unknown_name("split of glyphs", split, _SPLITS)
    counts = {"train": per_class_train, "query": per_class_query, "gallery": per_class_gallery}
    at_least_one = {"train_classes": train_classes, "test_classes": test_classes}
    at_least_one |= {f"per_class_{name}": count for name, count in counts.items()}
    for option, value in at_least_one.items():
        if value < 1:
            raise HoldfastError(f"glyphs: {option} must be at least 1, got {value}")
    if train_classes + test_classes > len(CHARACTERS):
        raise HoldfastError(
            f"glyphs: train_classes {train_classes} and test_classes {test_classes} are more than "
            f"the {len(CHARACTERS)} characters that exist; lower one of them"
        )
    if not (8 <= size <= 256 and 0 <= difficulty <= 2 and 0 <= seed < 2**63):
        raise HoldfastError(
            f"glyphs: size must be in 8..256, difficulty in 0..2 and seed in 0..2^63-1; "
            f"got {size}, {difficulty} and {seed}"
        )
    # Training classes from the front, test classes from the back: neither number changes the other's classes.
    shuffled = "".join(np.random.default_rng(seed).permutation(list(CHARACTERS)))
    chosen = shuffled[:train_classes] if split == "train" else shuffled[::-1][:test_classes]
    fonts = _fonts(pixels=2 * size)
    images = [
        image
        for character in chosen
        for image in _images_of(character, counts[split], (seed, _SPLITS[split]), fonts, size, difficulty)
    ]
    labels = np.repeat(np.arange(len(chosen)), counts[split])
    names = [f"U+{ord(character):04X} {character}" for character in chosen]
    return canonical(np.stack(images), labels, names, source=f"glyphs, split {split}")


def _fonts(pixels: int) -> list[ImageFont.FreeTypeFont]:
    spec = importlib.util.find_spec("matplotlib")
    if spec is None or not spec.submodule_search_locations:
        raise HoldfastError("glyphs: matplotlib is not installed, and glyphs draws its fonts; install it")
    folder = Path(spec.submodule_search_locations[0], "mpl-data", "fonts", "ttf")
    try:
        # The basic layout is in every build of Pillow, so the same glyph is drawn everywhere.
        return [ImageFont.truetype(folder / name, pixels, layout_engine=ImageFont.Layout.BASIC) for name in FONTS]
    except OSError as error:
        raise HoldfastError(f"glyphs: the DejaVu fonts are not readable in {folder} ({error})") from error


def _images_of(
    character: str,
    count: int,
    stream: tuple[int, int],
    fonts: list[ImageFont.FreeTypeFont],
    size: int,
    difficulty: float,
) -> list[np.ndarray]:
    rendered: dict[tuple[int, int], Image.Image] = {}
    images = []
    for index in range(count):
        # The first word of the counter runs within one image; the others identify image and character.
        bits = np.random.Philox(key=np.array(stream, np.uint64), counter=[0, index, ord(character), 0])
        random = np.random.Generator(bits)
        font = int(random.integers(len(fonts)))
        stroke = round(random.random() * difficulty * size / 14)
        if (font, stroke) not in rendered:
            rendered[font, stroke] = _render(fonts[font], character, stroke)
        images.append(_photograph(_pose(rendered[font, stroke], size, difficulty, random), difficulty, random))
    return images


def _render(font: ImageFont.FreeTypeFont, character: str, stroke: int) -> Image.Image:
    """The glyph in 255 on 0, cropped with a small margin. ``stroke`` thickens it by so many pixels on each side."""
    left, top, right, bottom = font.getbbox(character, stroke_width=stroke)
    box = (math.ceil(right - left) + 2 * _MARGIN, math.ceil(bottom - top) + 2 * _MARGIN)
    image = Image.new("L", box)
    ImageDraw.Draw(image).text(
        (_MARGIN - left, _MARGIN - top), character, font=font, fill=255, stroke_width=stroke, stroke_fill=255
    )
    return image


def _pose(glyph: Image.Image, size: int, difficulty: float, random: np.random.Generator) -> Image.Image:
    """Rotate, shear, stretch, scale and shift the glyph at twice the size, then halve it, which smooths the edges."""
    turn, slant, stretch, scale, right, down = random.uniform(-1, 1, 6) * difficulty
    side = 2 * size
    zoom = 0.7 * math.exp(0.2 * scale) * side / (max(glyph.size) - 2 * _MARGIN)
    cos, sin = math.cos(math.radians(20) * turn), math.sin(math.radians(20) * turn)
    wide, high = zoom * math.exp(0.2 * stretch), zoom * math.exp(-0.2 * stretch)
    forward = np.array([[cos, -sin], [sin, cos]]) @ np.array([[wide, 0.25 * slant * high], [0, high]])
    back = np.linalg.inv(forward)  # Pillow maps output pixels to input pixels
    centre = np.array([0.5 + 0.1 * right, 0.5 + 0.1 * down]) * side
    offset = np.array(glyph.size) / 2 - back @ centre
    coefficients = (*back[0], offset[0], *back[1], offset[1])
    posed = glyph.transform((side, side), Image.Transform.AFFINE, coefficients, resample=Image.Resampling.BILINEAR)
    return posed.reduce(2)


def _photograph(glyph: Image.Image, difficulty: float, random: np.random.Generator) -> np.ndarray:
    """Add blur, an uneven background, weaker contrast and noise: uint8, size x size."""
    blur, ground, ink, noise = random.random(4) * difficulty
    slope_x, slope_y = random.uniform(-0.15, 0.15, 2) * difficulty
    cover = np.asarray(glyph.filter(ImageFilter.GaussianBlur(0.8 * float(blur))), np.float32) / 255
    ramp = np.linspace(-1, 1, len(cover), dtype=np.float32)
    field = 0.25 * ground + slope_x * ramp[None, :] + slope_y * ramp[:, None]
    level = field + cover * (1 - 0.2 * ink - field)
    level += 0.12 * noise * random.standard_normal(cover.shape, np.float32)
    return np.round(255 * level.clip(0, 1)).astype(np.uint8)


CHARACTERS = (
    "$+0123457<=>ABCEHKLPQTUVWXYZabdefkmnqrt¢£¤¬±Æ×ÞæðþŒƁƄƆƇƍƒƔƕƛƜƝƢƤƦƧƩƪƫƴƷƸƺƾǂ"
    "ȜȤȴȵȸȹȻȾȿɀɕɖɘɚɠɢɧɬɮɰɲɳɴɷɸɹɺɻɽʁʆʍʎʐʑʔʕʛʞʤʦʧʩʪʫʬʭʮΔΞΨβζμνςσωϗϞϟϠϡϺЂЉЊЋЏЖФЧЮЯл"
    "щъћҐҘҚңҤҪҬҲӃӋӶԲԴԶԷԸԹԾԿՀՁՃՆՇՊՎՒՔՖխճչջփֆდეკლორფშჭჯჲჴ₯₴₹←→↓↖↗↘↙↜↝↟↢↣↧↪↫↭↯↰↱↲↳↴"
    "↵↶↷↸↹↺↻↼↽↾↿⇁⇄⇅⇆⇐⇑⇒⇓⇖⇗⇘⇙⇚⇛⇡⇤⇥⇫⇰⇱⇲⇳⇵⇶⇸∋∏∓∕∗√∛∝∞∟∠∸∹∺∻≐≒≓≡≤≥⊂⊃⊆⊇⊏⊐⊓⊔⊕⊞⊢⊣⊥⋄⟠⧫⩫"
)
"""The characters of the dataset, one class each.

How the list was made: of the code points in all twelve ``FONTS``, the letters, digits, currency signs, mathematical
signs and arrows below U+2B00, without the blocks U+1D00 to U+1DFF and U+2300 to U+26FF and without characters that
Unicode decomposes (accents, compatibility forms). In code point order, a character was taken if in every font its box
is at most three times as long as wide and its shape differs from every character taken before: cropped, centred on a
square, scaled to 24 x 24 and blurred with radius 1, the cosine is below 0.92. So of A, Alpha and Cyrillic A only the
first is in the list. The tests render all pairs again.
"""

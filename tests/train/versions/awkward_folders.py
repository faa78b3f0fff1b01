"""Folders of images as people have them: splits, odd names, many formats, links, empty classes. Each is drawn by
hypothesis as a plan, written to disk, and the plan says what must be found in it."""

import io
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from PIL import Image

SPLITS = ("train", "val", "valid", "validation", "test", "query", "gallery")


def encoded(seed: int, form: str, mode: str = "RGB", size: tuple[int, int] = (9, 7)) -> bytes:
    """A random image as the bytes of a file."""
    random = np.random.default_rng(seed)
    if mode == "I;16":
        image = Image.fromarray(random.integers(0, 65536, size[::-1], dtype=np.uint16))
    else:
        image = Image.fromarray(random.integers(0, 256, (*size[::-1], 4), dtype=np.uint8), "RGBA").convert(mode)
    stream = io.BytesIO()
    image.save(stream, form)
    return stream.getvalue()


GOOD = {
    ".png": lambda n: encoded(n, "PNG"),
    ".PNG": lambda n: encoded(n, "PNG", "RGBA", (1, 1)),
    ".jpg": lambda n: encoded(n, "JPEG", "CMYK"),
    ".JPEG": lambda n: encoded(n, "JPEG", "L", (300, 2)),
    ".gif": lambda n: encoded(n, "GIF", "P"),
    ".bmp": lambda n: encoded(n, "BMP"),
    ".tif": lambda n: encoded(n, "TIFF", "I;16"),
    ".webp": lambda n: encoded(n, "WEBP"),
    ".ppm": lambda n: encoded(n, "PPM"),
    ".x.png": lambda n: encoded(n, "JPEG"),  # the content decides
}
BAD = {
    ".jpeg": lambda n: encoded(n, "JPEG", "RGB", (40, 40))[:-300],
    ".png": lambda n: encoded(n, "PNG", "RGB", (40, 40))[:-300],
    ".bmp": lambda n: b"",
    ".webp": lambda n: b"no image at all " * 4,
    ".heic": lambda n: b"\0\0\0\x1cftypheic\0\0\0\0",
    ".avif": lambda n: b"\0\0\0\x20ftypavif\0\0\0\0",
    ".tiff": lambda n: b"II*\0" + b"\xff" * 50,
}
OTHER = {".txt": b"notes", "": b"no suffix", ".cr2": b"raw", ".json": b"{}"}

letters = st.text(st.sampled_from("aé猫🐈 -_.%$'\"\u0301"), min_size=1, max_size=6)
plain_names = letters.filter(lambda name: name.strip() and not name.startswith("."))
odd_names = st.sampled_from(["a\nb", "tab\there", "\udcff\udcfe", "bell\x07"])


@dataclass(frozen=True)
class File:
    stem: str
    kind: str  # good, bad, other, hidden, link (to a file elsewhere), nowhere (a broken link), pipe
    suffix: str
    folder: str  # below the class; "" is the class itself

    @property
    def odd(self) -> bool:
        return any(one in f"{self.stem}{self.folder}" for one in "\n\t\x07\udcff")

    @property
    def used(self) -> bool:
        return self.kind in ("good", "link") and not self.odd


@st.composite
def files(draw: st.DrawFn) -> File:
    kind = draw(st.sampled_from(["good"] * 8 + ["bad", "other", "hidden", "link", "nowhere", "pipe"]))
    suffixes = {"bad": BAD, "other": OTHER, "nowhere": [".jpg"], "pipe": [".png"]}.get(kind, GOOD)
    stem = draw(st.one_of(*[plain_names] * 8, odd_names))
    folder = draw(st.sampled_from([""] * 8 + ["deep/er", "line\nbreak"]))
    return File(stem, kind, draw(st.sampled_from(sorted(suffixes))), folder)


@dataclass(frozen=True)
class Class:
    name: str
    kind: str  # folder, linked (a link to a folder elsewhere), nowhere (a broken link), loop (a link to the top)
    files: tuple[File, ...]

    @property
    def count(self) -> int:
        """Images that must be found."""
        odd = any(one in self.name for one in "\n\t\x07\udcff")
        if odd or self.kind not in ("folder", "linked"):
            return 0
        return sum(file.used for file in self.files)


@st.composite
def classes(draw: st.DrawFn, names: st.SearchStrategy[str]) -> Class:
    kind = draw(st.sampled_from(["folder"] * 8 + ["linked", "nowhere", "loop"]))
    found = draw(st.lists(files(), max_size=5, unique_by=lambda file: (file.folder, file.stem)))
    return Class(draw(names), kind, tuple(found))


@dataclass(frozen=True)
class Plan:
    """classes: folders at the top, or in ``train`` if ``splits`` is not empty. splits: folders that are splits.
    loose: images beside the class folders."""

    classes: tuple[Class, ...]
    splits: tuple[str, ...]
    loose: int


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    names = st.one_of(*[plain_names] * 5, odd_names, st.sampled_from(SPLITS))
    found = draw(st.lists(classes(names), min_size=1, max_size=6, unique_by=lambda one: one.name))
    splits = draw(st.sampled_from([(), (), ("train",), ("train", "test"), ("train", "val", "query")]))
    return Plan(tuple(found), splits, draw(st.sampled_from([0, 0, 2])))


def write(plan: Plan, top: Path, elsewhere: Path) -> None:
    """Write the folder ``top``; ``elsewhere`` holds what links lead to."""
    inside = top / "train" if plan.splits else top
    inside.mkdir(parents=True)
    elsewhere.mkdir()
    for split in plan.splits[1:]:
        (top / split / "other").mkdir(parents=True)
    for number in range(plan.loose):
        (inside / f"loose{number}.png").write_bytes(encoded(number, "PNG"))
    for number, one in enumerate(plan.classes):
        folder = inside / one.name
        if one.kind == "nowhere":
            folder.symlink_to(elsewhere / "gone")
        elif one.kind == "loop":
            folder.symlink_to(top, target_is_directory=True)
        elif one.kind == "linked":
            (elsewhere / str(number)).mkdir()
            folder.symlink_to(elsewhere / str(number), target_is_directory=True)
            _fill(folder, one, elsewhere, number)
        else:
            folder.mkdir()
            _fill(folder, one, elsewhere, number)


def _fill(folder: Path, one: Class, elsewhere: Path, number: int) -> None:
    for position, file in enumerate(one.files):
        where = folder / file.folder
        where.mkdir(parents=True, exist_ok=True)
        seed = 100 * number + position
        path = where / f"{'.' if file.kind == 'hidden' else ''}{file.stem}{file.suffix}"
        if file.kind in ("good", "hidden"):
            path.write_bytes(GOOD[file.suffix](seed))
        elif file.kind == "bad":
            path.write_bytes(BAD[file.suffix](seed))
        elif file.kind == "other":
            path.write_bytes(OTHER[file.suffix])
        elif file.kind == "link":
            (elsewhere / f"{seed}.data").write_bytes(GOOD[file.suffix](seed))
            path.symlink_to(elsewhere / f"{seed}.data")
        elif file.kind == "nowhere":
            path.symlink_to(elsewhere / "gone.jpg")
        else:
            os.mkfifo(path)

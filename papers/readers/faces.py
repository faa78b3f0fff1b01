"""Faces: CASIA-WebFace for pre-training, CelebA for fine-tuning and evaluation."""

from pathlib import Path
from typing import Literal

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.train.data.cache import read_listing
from holdfast.train.data.images import ImageSet
from holdfast.train.data.listing import (
    INCOMPLETE_ADVICE,
    check_complete,
    list_class_folders,
    list_named_files,
    read_rows,
)
from holdfast.train.data.openset import half_of_each_class
from holdfast.train.data.root import resolve_path

CASIA_IDENTITIES, CASIA_IMAGES = 10_575, 494_414
CELEBA_SPLITS = {"train": "0", "val": "1", "test": "2"}
CELEBA_IDENTITIES = {"train": 8_192, "val": 985, "test": 1_000}
CELEBA_IMAGES = {"train": 162_770, "val": 19_867, "test": 19_962}


def casia_webface(
    root: Path,
    split: str,
    *,
    path: str = "CASIA-WebFace",
    classes: int | None = None,
    size: int = 224,
    incomplete: bool = False,
) -> ImageSet:
    """CASIA-WebFace from one folder per identity; split train.

    path: folder of the dataset, in the data root.
    classes: the first so many of the 10,575 identities, by folder name; None for all. Such sets are nested. If it is
        set, the number of images is not checked.
    size: side of the square images, in pixels.
    incomplete: accept missing identities and images.
    """
    if split != "train":
        raise unknown_name("split of casia_webface", split, ("train",))
    top = resolve_path(root, path)
    if not top.is_dir():
        raise HoldfastError(f"{top}: no such folder; CASIA-WebFace is expected there, one folder per identity")
    names = sorted(entry.name for entry in top.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if len(names) != CASIA_IDENTITIES and not incomplete:
        raise HoldfastError(
            f"{top}: {len(names):,} identities where {CASIA_IDENTITIES:,} are expected{INCOMPLETE_ADVICE}"
        )
    count = len(names) if classes is None else classes
    if not 1 <= count <= len(names):
        raise HoldfastError(f"{top}: classes must be in 1..{len(names)} (the identities there), got {count}")
    listing = list_class_folders(top, names[:count])
    images = CASIA_IMAGES if count == CASIA_IDENTITIES else None
    check_complete(listing, images=images, classes=count, incomplete=incomplete)
    return read_listing(listing, root, name="casia_webface", size=size)


def celeba(
    root: Path,
    split: str,
    *,
    path: str = "celeba",
    part: Literal["all", "query", "gallery"] = "all",
    part_seed: int = 0,
    size: int = 224,
    incomplete: bool = False,
) -> ImageSet:
    """CelebA's aligned faces by identity; splits train (8,192 identities), val (985) and test (1,000).

    path: folder of the dataset, in the data root.
    part: "all", or a random half of each identity's images: "query", or "gallery" (rounded up). The halves do not
        depend on ``size``.
    part_seed: seed of the halves.
    size: side of the square images, in pixels.
    incomplete: accept missing images.

    Differs from the paper: it does not say how queries and gallery are divided.
    """
    if split not in CELEBA_SPLITS:
        raise unknown_name("split of celeba", split, CELEBA_SPLITS)
    top = resolve_path(root, path)
    if not top.is_dir():
        raise HoldfastError(f"{top}: no such folder; CelebA is expected there (img_align_celeba and its text files)")
    folder = _inside(top, "img_align_celeba", "Img/img_align_celeba", "img_align_celeba/img_align_celeba")
    identity = dict(read_rows(_inside(top, "identity_CelebA.txt", "Anno/identity_CelebA.txt"), 2))
    partition = read_rows(_inside(top, "list_eval_partition.txt", "Eval/list_eval_partition.txt"), 2)
    chosen = sorted(file for file, where in partition if where == CELEBA_SPLITS[split])
    unnamed = [file for file in chosen if file not in identity]
    if unnamed:
        raise HoldfastError(f"{top}: identity_CelebA.txt has no identity for {unnamed[0]}")
    people = sorted({identity[file] for file in chosen}, key=lambda number: (len(number), number))
    label = {person: number for number, person in enumerate(people)}
    named = [(file, label[identity[file]]) for file in chosen]
    listing = list_named_files(folder, named, [f"celeba-{person}" for person in people])
    check_complete(listing, images=CELEBA_IMAGES[split], classes=CELEBA_IDENTITIES[split], incomplete=incomplete)
    if part != "all":
        listing = listing.select(half_of_each_class(listing.labels, part, part_seed))
    return read_listing(listing, root, name=f"celeba-{split}-{part}", size=size)


def _inside(top: Path, *paths: str) -> Path:
    """The last of ``paths`` that exists in ``top``: downloads of CelebA differ in their folders."""
    existing = [top / path for path in paths if (top / path).exists()]
    if not existing:
        raise HoldfastError(f"{top}: {paths[0]} is missing")
    return existing[-1]

"""Faces: CASIA-WebFace to pre-train on, CelebA to fine-tune and to test on."""

from pathlib import Path
from typing import Literal

from holdfast.data.cache import read_listing
from holdfast.data.images import ImageSet
from holdfast.data.listing import class_folders, listed_if_there, refuse_if_incomplete, rows
from holdfast.data.openset import half
from holdfast.data.root import located
from holdfast.errors import HoldfastError, unknown_name

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
    """CASIA-WebFace from one folder per identity, the first ``classes`` of 10,575 by folder name; split train.

    Sets of the first 3,525, 7,050 and 10,575 identities are nested. With fewer than all, the images are not counted.
    """
    if split != "train":
        raise unknown_name("split of casia_webface", split, ("train",))
    top = located(root, path)
    if not top.is_dir():
        raise HoldfastError(f"{top}: no such folder; CASIA-WebFace is expected there, one folder per identity")
    names = sorted(entry.name for entry in top.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if len(names) != CASIA_IDENTITIES and not incomplete:
        raise HoldfastError(
            f"{top}: {len(names):,} identities where {CASIA_IDENTITIES:,} are expected; "
            "complete it, or set incomplete = true to go on with what is there"
        )
    count = len(names) if classes is None else classes
    if not 1 <= count <= len(names):
        raise HoldfastError(f"{top}: {count:,} classes of {len(names):,} identities asked for")
    listing = class_folders(top, names[:count])
    images = CASIA_IMAGES if count == CASIA_IDENTITIES else None
    refuse_if_incomplete(listing, images=images, classes=count, incomplete=incomplete)
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
    """CelebA's aligned faces by identity: splits train (8,192 identities), val (985) and test (1,000).

    ``part``: all images, or the seeded half of each identity's images that is query or gallery; the odd image goes to
    the gallery. The halves are drawn from the sorted file names, so they are the same at every ``size``.
    Differs from the paper: it does not say how queries and gallery are divided.
    """
    if split not in CELEBA_SPLITS:
        raise unknown_name("split of celeba", split, CELEBA_SPLITS)
    top = located(root, path)
    if not top.is_dir():
        raise HoldfastError(f"{top}: no such folder; CelebA is expected there (img_align_celeba and its text files)")
    folder = _inside(top, "img_align_celeba", "Img/img_align_celeba", "img_align_celeba/img_align_celeba")
    identity = dict(rows(_inside(top, "identity_CelebA.txt", "Anno/identity_CelebA.txt"), 2))
    partition = rows(_inside(top, "list_eval_partition.txt", "Eval/list_eval_partition.txt"), 2)
    chosen = sorted(file for file, where in partition if where == CELEBA_SPLITS[split])
    unnamed = [file for file in chosen if file not in identity]
    if unnamed:
        raise HoldfastError(f"{top}: identity_CelebA.txt does not say who is on {unnamed[0]}")
    people = sorted({identity[file] for file in chosen}, key=lambda number: (len(number), number))
    label = {person: number for number, person in enumerate(people)}
    named = [(file, label[identity[file]]) for file in chosen]
    listing = listed_if_there(folder, named, [f"celeba-{person}" for person in people])
    refuse_if_incomplete(listing, images=CELEBA_IMAGES[split], classes=CELEBA_IDENTITIES[split], incomplete=incomplete)
    if part != "all":
        listing = listing.select(half(listing.labels, part, part_seed))
    return read_listing(listing, root, name=f"celeba-{split}-{part}", size=size)


def _inside(top: Path, *places: str) -> Path:
    """Where one of CelebA's parts lies: downloads differ in their folders. The innermost place that exists wins."""
    there = [top / place for place in places if (top / place).exists()]
    if not there:
        raise HoldfastError(f"{top}: {places[0]} is missing")
    return there[-1]

"""Sets of 20 classes of miniImageNet: 84 x 84 pixels, 500 and 100 images of each class."""

from pathlib import Path
from typing import Literal

from holdfast.core.errors import unknown_name
from holdfast.train.data.cache import read_listing
from holdfast.train.data.images import ImageSet
from holdfast.train.data.listing import FileListing, check_complete, list_class_folders
from holdfast.train.data.root import require_in_folder, resolve_path

FOLDER = "mini-imagenet"
PER_CLASS = {"train": 500, "val": 100}

ClassSet = Literal["outside_tinyimagenet", "outside_tinyimagenet_validation", "outside_cifar"]
CLASS_SETS: dict[str, tuple[str, ...]] = {
    "outside_tinyimagenet": (
        "n01770081", "n01843383", "n02089867", "n02110063", "n02113712", "n02114548", "n02747177", "n03017168",
        "n03127925", "n03272010", "n03347037", "n03476684", "n03676483", "n04258138", "n04418357", "n04435653",
        "n04509417", "n06794110", "n07584110", "n07613480",
    ),
    "outside_tinyimagenet_validation": (
        "n01558993", "n01704323", "n01749939", "n02091831", "n02101006", "n02108089", "n02110341", "n02111277",
        "n02138441", "n02457408", "n02606052", "n02981792", "n03047690", "n03220513", "n03337140", "n03775546",
        "n03888605", "n04389033", "n13054560", "n13133613",
    ),
    "outside_cifar": (
        "n01910747", "n02971356", "n03017168", "n03047690", "n03075370", "n03127925", "n03146219", "n03207743",
        "n03347037", "n03476684", "n03527444", "n03676483", "n03908618", "n03998194", "n04243546", "n04258138",
        "n04296562", "n04418357", "n06794110", "n13133613",
    ),
}  # fmt: skip
"""The classes of each set. The first two are the first 20 and the next 20 of
``numpy.random.default_rng(0).permutation`` of the 75 sorted classes that are not in TinyImageNet. The third is drawn
from 23 without a counterpart in CIFAR-10, CIFAR-100 or the validation classes of ``tinyimagenet32``."""


def miniimagenet20(
    root: Path, split: str, *, classes: ClassSet, path: str = FOLDER, size: int = 64, incomplete: bool = False
) -> ImageSet:
    """20 classes of miniImageNet; splits train (queries) and val (gallery).

    classes: which 20, a key of ``CLASS_SETS``.
    path: folder with ``train/WNID`` and ``val/WNID``, in the data root.
    size: side of the square images, in pixels.
    incomplete: accept missing images.
    """
    if classes not in CLASS_SETS:
        raise unknown_name("set of classes", classes, CLASS_SETS)
    if split not in PER_CLASS:
        raise unknown_name("split of miniImageNet", split, PER_CLASS)
    listing = _list_files(resolve_path(root, path), split, CLASS_SETS[classes])
    expected = PER_CLASS[split]
    check_complete(listing, images=20 * expected, classes=20, incomplete=incomplete, per_class=expected)
    return read_listing(listing, root, name=f"miniimagenet20-{classes}-{split}", size=size)


def _list_files(top: Path, split: str, wnids: tuple[str, ...]) -> FileListing:
    if not (top / split).is_dir():
        require_in_folder(top, f"{split}/{wnids[0]}", "miniImageNet is expected there as train/WNID and val/WNID")
    return list_class_folders(top / split, wnids)

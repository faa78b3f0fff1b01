"""Small datasets of random pictures in the layouts that users download."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from papers.readers.cub import NAMES_20
from papers.readers.tiny_imagenet_tests import WNIDS_20

Draw = Callable[[Path, int, int], None]


def picture(file: Path, seed: int, height: int = 20, width: int = 24) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, format="PNG" if file.suffix == ".png" else "JPEG")


def write_lines(file: Path, lines: list[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def tiny_imagenet(root: Path, wnids: tuple[str, ...], per_class: int = 3) -> Path:
    top = root / "tiny-imagenet-200"
    write_lines(top / "wnids.txt", list(wnids))
    annotations = []
    for i, wnid in enumerate(wnids):
        for j in range(per_class):
            picture(top / "train" / wnid / "images" / f"{wnid}_{j}.JPEG", 100 * i + j, 64, 64)
        write_lines(top / "train" / wnid / f"{wnid}_boxes.txt", [f"{wnid}_0.JPEG\t0\t0\t9\t9"])
        picture(top / "val" / "images" / f"val_{i}.JPEG", 50_000 + i, 64, 64)
        annotations.append(f"val_{i}.JPEG\t{wnid}\t0\t32\t44\t62")
    write_lines(top / "val" / "val_annotations.txt", annotations[::-1])
    return top


def tiny_imagenet_20(root: Path, wnids: tuple[str, ...] = WNIDS_20[:4]) -> Path:
    top = root / "tiny-imagenet-20"
    for i, wnid in enumerate(wnids):
        for j in range(3):
            picture(top / "train" / wnid / f"{wnid}_{j}.JPEG", 60_000 + 100 * i + j, 70, 90)
        picture(top / "val" / wnid / f"ILSVRC2012_val_{i}.JPEG", 70_000 + i, 90, 70)
    return top


def cub(root: Path, classes: tuple[int, ...], per_class: int = 4) -> Path:
    """``classes`` of 200 have pictures: the first half of each is of the training split. The last 20 are CUB's."""
    top = root / "CUB_200_2011"
    birds = [*(f"Bird_{number}" for number in range(1, 181)), *NAMES_20]
    names = {number: f"{number:03d}.{bird}" for number, bird in enumerate(birds, start=1)}
    write_lines(top / "classes.txt", [f"{number} {name}" for number, name in names.items()])
    images, labels, split = [], [], []
    for label in classes:
        for j in range(per_class):
            name = f"{names[label]}/Bird_{label}_{j:04d}.jpg"
            picture(top / "images" / name, 1000 * label + j, 30 + j, 40)
            number = len(images) + 1
            images.append(f"{number} {name}")
            labels.append(f"{number} {label}")
            split.append(f"{number} {int(j < per_class // 2)}")
    write_lines(top / "images.txt", images)
    write_lines(top / "image_class_labels.txt", labels)
    write_lines(top / "train_test_split.txt", split)
    return top


def casia(root: Path, identities: int = 6, images: int = 2, draw: Draw | None = None) -> Path:
    """``draw`` makes the picture of a person (by number) with a number; without it they are noise."""
    top = root / "CASIA-WebFace"
    for i in range(identities):
        for j in range(images):
            file = top / f"{45 + 7 * i:07d}" / f"{j + 1:03d}.jpg"
            if draw:
                draw(file, i, j)
            else:
                picture(file, 10 * i + j)
    return top


FIVE_PEOPLE = (("2880", 0, 4), ("37", 0, 4), ("5", 1, 2), ("901", 2, 5), ("12", 2, 2))
"""Two of train with 4 pictures each, one of val, two of test with 5 and 2."""


def celeba(root: Path, people: Sequence[tuple[str, int, int]] = FIVE_PEOPLE, draw: Draw | None = None) -> Path:
    """``people``: identity, split by its number, count of pictures. ``draw``: as for ``casia``."""
    top = root / "celeba"
    identity, partition = [], []
    for person, split, count in people:
        for number in range(count):
            file = f"{len(identity) + 1:06d}.jpg"
            if draw:
                draw(top / "img_align_celeba" / file, 1000 + int(person), number)  # nobody of CASIA-WebFace
            else:
                picture(top / "img_align_celeba" / file, len(identity), 218, 178)
            identity.append(f"{file} {person}")
            partition.append(f"{file} {split}")
    write_lines(top / "identity_CelebA.txt", identity)
    write_lines(top / "list_eval_partition.txt", partition)
    return top

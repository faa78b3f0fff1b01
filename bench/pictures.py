"""What it takes to have pictures where the training is: decoding, the cache, the way to the device, random crops.

    python bench/pictures.py [--count 2000] [--repeats 5] [--device auto] [--json FILE]

JPEGs of 500 x 375 with smooth random content, read at 256 x 256 as for CUB. A training step needs a batch of 64 crops;
the last rows say what these cost on the device, beside the plain gather that every step pays.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from timing import timed, write_figures

from holdfast.core.environment import describe
from holdfast.train.data import load_split
from holdfast.train.data.augment import augment
from holdfast.train.data.cache import read_listing
from holdfast.train.data.device_images import DeviceImages
from holdfast.train.data.listing import list_class_folders
from holdfast.train.devices import resolve_device

SIZE, CROP, BATCH, CLASSES = 256, 224, 64, 20
CPU = torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description="What it takes to have pictures where the training is.")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    device = resolve_device(options.device)
    environment = describe(str(device))
    print(f"{environment['gpu'] or environment['processor']}, {os.cpu_count()} cores, torch {torch.__version__}, "
          f"{options.count} pictures, n = {options.repeats}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), options.count, options.repeats, device)
    if options.json:
        write_figures(options.json, "pictures", environment, options, rows=rows)


def measure(root: Path, count: int, repeats: int, device: torch.device) -> list[dict]:
    write_pictures(root / "set", count)
    names = [f"{label:02d}" for label in range(CLASSES)]

    def read():
        return read_listing(list_class_folders(root / "set", names), root, name="bench", size=SIZE)

    def decode():
        return load_split("folder", "train", root, path="set", size=SIZE)

    rows = [row("decoded into memory", decode, repeats, count)]
    rows += [row("decoded and cached", read, 1, count)]
    rows += [row("mapped from the cache", read, repeats, count)]
    images = read()
    rows += [row("copied to the device", lambda: DeviceImages(images, device), repeats, count, device)]
    there = DeviceImages(images, device)
    generator = torch.Generator(device).manual_seed(0)
    batch = torch.randint(0, count, (BATCH,), device=device)

    def crops():
        augment(there[batch], crop_padding=0, flip=True, resized_crop=CROP, generator=generator)

    rows += [row("gather of a batch", lambda: there[batch], 20 * repeats, BATCH, device)]
    rows += [row("gather, resized crop, flip", crops, 20 * repeats, BATCH, device)]
    return rows


def row(name: str, work: Callable[[], object], repeats: int, pictures: int, device: torch.device = CPU) -> dict:
    times = [timed(work, 1, device) / 1000 for _ in range(repeats + (repeats > 1))]
    times = times[1:] or times  # the first call also warms up
    median = statistics.median(times)
    print(f"{name:28} {1000 * median:10.2f} ms  (min {1000 * min(times):.2f}, max {1000 * max(times):.2f})  "
          f"{pictures / median:12,.0f} pictures/s", flush=True)  # fmt: skip
    return {"what": name, "n": len(times), "median_ms": 1000 * median, "min_ms": 1000 * min(times),
            "max_ms": 1000 * max(times), "pictures_per_s": pictures / median}  # fmt: skip


def write_pictures(top: Path, count: int) -> None:
    random = np.random.default_rng(0)
    for number in range(count):
        folder = top / f"{number % CLASSES:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(random.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(folder / f"{number:05d}.jpg", quality=90)


if __name__ == "__main__":
    main()

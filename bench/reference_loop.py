"""The usual way to do the same work, so that a speed-up over common practice is measured and not claimed.

    python bench/reference_loop.py [--workers 8] [--steps 100] [--eval-images N] [--repeats 5]
                                   [--precision bf16] [--json FILE]

Training as most published code has it: a DataLoader with workers, images as PIL, crop and flip and normalisation one
image at a time, batches copied to the device, the HOC step in eager mode with ``loss.item()`` for the progress bar.
Evaluation likewise: the features of queries and gallery extracted anew for every pair of models, T(T+1)/2 times,
where Holdfast extracts them T times. ResNet-32, batch 128, random images.

Features of the same images are extracted both ways in turn. The usual way's clock starts behind the first batches of
each pass, when all workers are at work, and Holdfast's at the call, with the images on the host as they were read.
"""

import argparse
import copy
import random
import statistics
import time
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from timing import synchronize, write_figures
from torch.utils.data import DataLoader, Dataset

from holdfast.core.environment import describe
from holdfast.train.data import ImageSet
from holdfast.train.devices import resolve_device
from holdfast.train.encoders import Encoder, Preprocess, build_backbone, extract
from holdfast.train.geometry import DSimplex, unit
from holdfast.train.losses import hoc_loss

CHANNEL_MEAN, CHANNEL_STD = (0.507, 0.487, 0.441), (0.267, 0.256, 0.276)
MEAN, STD = (torch.tensor(values).view(3, 1, 1) for values in (CHANNEL_MEAN, CHANNEL_STD))
EVAL_IMAGES = {"cuda": 60_000, "cpu": 2_000}
"""Queries and gallery of the CIFAR table; a CPU takes a minute for some thousands."""

FIRST_BATCHES = 10
"""Not counted: workers start, libraries choose algorithms."""


class Images(Dataset):
    """One image at a time through PIL."""

    def __init__(self, count: int, *, train: bool) -> None:
        rng = np.random.default_rng(0)
        self.pixels = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        self.labels = rng.integers(0, 100, count)
        self.train = train

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.fromarray(self.pixels[index])
        if self.train:
            left, top = random.randint(0, 8), random.randint(0, 8)
            image = ImageOps.expand(image, 4).crop((left, top, left + 32, top + 32))
            if random.random() < 0.5:
                image = ImageOps.mirror(image)
        x = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255
        return (x - MEAN) / STD, int(self.labels[index])


def main() -> None:
    parser = argparse.ArgumentParser(description="The usual way to do the same work, timed.")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16", help="of the training steps")
    parser.add_argument("--eval-images", type=int, help="60000 on a GPU, 2000 on a CPU unless given")
    parser.add_argument("--repeats", type=int, default=5, help="passes over the images whose features are extracted")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    device = resolve_device(options.device)
    options.eval_images = options.eval_images or EVAL_IMAGES.get(device.type, EVAL_IMAGES["cpu"])
    environment = describe(str(device))
    print(f"{environment['gpu'] or environment['processor']}, torch {torch.__version__}, {options.workers} workers")
    training = train(options, device)
    print(f"training step, the usual way: median {training['median']:.2f} ms (min {training['min']:.2f}, "
          f"max {training['max']:.2f}, {options.steps} steps)")  # fmt: skip
    found = extraction(options, device)
    usual, ours = found["extraction_us_per_image"].values()
    print(f"features of {options.eval_images:,} images: {_spread(usual)} us per image the usual way, {_spread(ours)} "
          f"by holdfast, {found['speed_ratio']:.1f} times the speed ({options.repeats} passes each)")  # fmt: skip
    anew, once, own = found["extraction_s_31_models_60000_images"].values()
    print(f"31 models and 60,000 images at these medians: {anew:.0f} s when every pair is extracted anew, {once:.0f} s "
          f"once per model, {own:.0f} s by holdfast")  # fmt: skip
    if options.json:
        write_figures(options.json, "reference_loop", environment, options, step_ms=training, **found)


def _spread(row: dict[str, float]) -> str:
    return f"{row['median']:.1f} ({row['min']:.1f} to {row['max']:.1f})"


def _summary(values: list[float]) -> dict[str, float]:
    return {
        "n": len(values),
        "median": statistics.median(values),
        "mean": statistics.mean(values),
        "min": min(values),
        "max": max(values),
    }


def train(options: argparse.Namespace, device: torch.device) -> dict[str, float]:
    torch.manual_seed(0)
    simplex = DSimplex(100)
    model, old = (Encoder(build_backbone("resnet32"), simplex.dim).to(device) for _ in range(2))
    old.eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    images = Images(options.batch_size * (options.steps + FIRST_BATCHES), train=True)
    loader = DataLoader(
        images, options.batch_size, shuffle=True, num_workers=options.workers, pin_memory=device.type == "cuda"
    )
    times, last = [], time.perf_counter()
    for images, labels in loader:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=options.precision == "bf16"):
            with torch.no_grad():
                z_old = old(images)
            loss = hoc_loss(model(images), z_old, labels, simplex, lambda_=0.3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        now = time.perf_counter()
        times.append(1000 * (now - last))
        last = now
    return _summary(times[FIRST_BATCHES:])


def extraction(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Both ways in turn over the same images, after one pass each that does not count."""
    torch.manual_seed(0)
    count, first = options.eval_images, FIRST_BATCHES * options.batch_size
    images = Images(first + count, train=False)
    loader = DataLoader(
        images,
        options.batch_size,
        num_workers=options.workers,
        pin_memory=device.type == "cuda",
        persistent_workers=options.workers > 0,
    )
    preprocess = Preprocess(size=32, mean=CHANNEL_MEAN, std=CHANNEL_STD)
    model = Encoder(build_backbone("resnet32"), 99, preprocess=preprocess).to(device).eval()
    own_model = copy.deepcopy(model)  # which ``extract`` lays out for the device as it likes
    same = ImageSet(images.pixels[first:], images.labels[first:], tuple(map(str, range(100))), "random")
    usual, ours, difference = [], [], 0.0
    for _ in range(1 + options.repeats):
        seconds, usual_features = usual_pass(model, loader, device)
        usual.append(1e6 * seconds / count)
        synchronize(device)
        started = time.perf_counter()
        features = extract(own_model, same, device=device)
        ours.append(1e6 * (time.perf_counter() - started) / count)
        difference = max(difference, float(np.abs(unit(usual_features).numpy() - features).max()))
    del usual[0], ours[0]
    middle, own = statistics.median(usual), statistics.median(ours)
    return {
        "extraction_us_per_image": {"usual": _summary(usual), "holdfast": _summary(ours)},
        "speed_ratio": middle / own,
        "largest_difference": difference,
        "extraction_s_31_models_60000_images": {
            "every pair anew": 0.06 * middle * 31 * 32 / 2,
            "once per model": 0.06 * middle * 31,
            "holdfast": 0.06 * own * 31,
        },
    }


@torch.no_grad()
def usual_pass(model: Encoder, loader: DataLoader, device: torch.device) -> tuple[float, torch.Tensor]:
    """Seconds and features of all images behind the first batches."""
    found, started = [], 0.0
    for number, (images, _) in enumerate(loader):
        found.append(model(images.to(device, non_blocking=True)).cpu())
        if number == FIRST_BATCHES - 1:
            started, found = time.perf_counter(), []
    return time.perf_counter() - started, torch.cat(found)


if __name__ == "__main__":
    main()

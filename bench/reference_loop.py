"""The usual way to do the same work, so that a speed-up over common practice is measured and not claimed.

    python bench/reference_loop.py [--workers 8] [--steps 100] [--eval-images 2000] [--device auto] [--json FILE]

Training as most published code has it: a DataLoader with workers, images as PIL, crop and flip and normalisation one
image at a time, batches copied to the device, the HOC step in eager mode with ``loss.item()`` for the progress bar.
Evaluation likewise: the features of queries and gallery extracted anew for every pair of models, T(T+1)/2 times,
where Holdfast extracts them T times. ResNet-32, batch 128, random images.
"""

import argparse
import json
import random
import statistics
import time

import numpy as np
import torch
from PIL import Image, ImageOps
from torch.utils.data import DataLoader, Dataset

from holdfast.backbones import Encoder, build_backbone
from holdfast.engine import resolve_device
from holdfast.environment import describe
from holdfast.geometry import DSimplex
from holdfast.losses import hoc_loss

MEAN, STD = torch.tensor([0.507, 0.487, 0.441]).view(3, 1, 1), torch.tensor([0.267, 0.256, 0.276]).view(3, 1, 1)


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
    parser.add_argument("--eval-images", type=int, default=2000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    device = resolve_device(options.device)
    environment = describe(str(device))
    training = train(options.steps, options.workers, device)
    per_image = extraction(options.eval_images, options.workers, device)
    found = {
        "workers": options.workers,
        "steps": options.steps,
        "step_ms": training,
        "extraction_us_per_image": 1e6 * per_image,
        "extraction_s_31_models_60000_images": {
            "every pair anew": 60_000 * per_image * 31 * 32 / 2,
            "once per model": 60_000 * per_image * 31,
        },
    }
    print(f"{environment['gpu'] or environment['processor']}, torch {torch.__version__}, {options.workers} workers")
    print(f"training step, the usual way: median {training['median']:.2f} ms (min {training['min']:.2f}, "
          f"max {training['max']:.2f}, {options.steps} steps)")  # fmt: skip
    anew, once = found["extraction_s_31_models_60000_images"].values()
    print(f"features, the usual way: {1e6 * per_image:.0f} us per image; 31 models and 60,000 images take "
          f"{anew:.0f} s when every pair is extracted anew, {once:.0f} s once per model")  # fmt: skip
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"bench": "reference_loop", "environment": environment, **found}, file, indent=2)
            file.write("\n")


def train(steps: int, workers: int, device: torch.device) -> dict[str, float]:
    torch.manual_seed(0)
    simplex = DSimplex(100)
    model, old = (Encoder(build_backbone("resnet32"), simplex.dim).to(device) for _ in range(2))
    old.eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    loader = DataLoader(
        Images(128 * (steps + 10), train=True), 128, shuffle=True, num_workers=workers, pin_memory=device.type == "cuda"
    )
    times, last = [], time.perf_counter()
    for images, labels in loader:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        with torch.autocast(device.type, torch.bfloat16):
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
    kept = times[10:]  # workers start, libraries choose algorithms
    return {"median": statistics.median(kept), "mean": statistics.mean(kept), "min": min(kept), "max": max(kept)}


@torch.no_grad()
def extraction(count: int, workers: int, device: torch.device) -> float:
    """Seconds per image."""
    model = Encoder(build_backbone("resnet32"), 99).to(device).eval()
    loader = DataLoader(Images(count, train=False), 128, num_workers=workers)
    for _ in range(2):  # the second time counts
        started = time.perf_counter()
        for images, _ in loader:
            model(images.to(device)).cpu()
        taken = time.perf_counter() - started
    return taken / count


if __name__ == "__main__":
    main()

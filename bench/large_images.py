"""Training at 224 x 224 from a folder of JPEG files: how many images a second, and how busy the GPU is.

    python bench/large_images.py [--networks resnet50,vit_b16] [--placements device,stream] [--images 4000]
                                 [--classes 40] [--size 224] [--batch-size 128] [--precision bf16] [--executor auto]
                                 [--steps 30] [--repeats 5] [--folder DIR] [--device auto] [--toy] [--json FILE]

Writes the folder (smooth random pictures with some noise, about 256 pixels a side), reads it as ``holdfast run`` does,
and times d-Simplex-HOC steps of the second task. Holdfast decodes every file once, before the first step, and keeps
the pixels; so the first pass over the data is decoding, and all later ones are steps. Both are given apart, and
together for runs of 1 and of 70 passes. The share of the time in which the GPU does something is the union of its
kernels and copies in a profile of ten steps. Networks have random weights; nothing is downloaded.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from timing import timed, write_figures

from holdfast.core.environment import describe
from holdfast.train.data import ImageSet, load_split
from holdfast.train.data.device_images import place_images
from holdfast.train.devices import resolve_device
from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.engine import FitOptions
from holdfast.train.engine.executors import make_executor
from holdfast.train.engine.fit import prepare_step
from holdfast.train.methods import SimplexHOC
from holdfast.train.scenarios import cl2r

TOY_VIT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def main() -> None:
    parser = argparse.ArgumentParser(description="Training from a folder of JPEG files, timed.")
    parser.add_argument("--networks", default="resnet50,vit_b16")
    parser.add_argument("--placements", default="device,stream")
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--classes", type=int, default=40)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--executor", default="auto")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the files go, or already are")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--toy", action="store_true", help="small stand-ins for the networks")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    device = resolve_device(options.device)
    environment = describe(str(device))
    print(f"{environment['gpu'] or environment['processor']}, {environment['cores']} cores, torch {torch.__version__}, "
          f"{options.precision}, batch {options.batch_size}, {options.steps} steps x {options.repeats}")  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not any(folder.glob("*/*.jpg")):
            write_pictures(folder, options.images, options.classes)
        started = time.perf_counter()
        images = load_split("folder", "train", path=str(folder), size=options.size)
        decoding = time.perf_counter() - started
    print(f"decoding: {len(images)} files at {len(images) / decoding:.0f} images/s ({decoding:.1f} s)")
    rows = [
        measured(network, placement, images, decoding, options, device)
        for network in options.networks.split(",")
        for placement in options.placements.split(",")
    ]
    if options.json:
        write_figures(
            options.json, "large_images", environment, options, files=len(images), decoding_s=decoding, rows=rows
        )


def write_pictures(folder: Path, count: int, classes: int) -> None:
    """Noise of 8 x 8 made large and smooth, with a little fine noise: about as many bytes as a photograph."""
    rng = np.random.default_rng(0)
    for number in range(count):
        width, height = rng.integers(224, 320, 2)
        coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((int(width), int(height)), Image.Resampling.BICUBIC), dtype=np.int16)
        noisy = (smooth + rng.integers(-12, 13, smooth.shape)).clip(0, 255).astype(np.uint8)
        path = folder / f"{number % classes:04d}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noisy).save(path, quality=90)


def make_encoder(network: str, size: int, dim: int, toy: bool) -> Encoder:
    if network == "vit_b16":
        backbone = build_backbone("hf:vit", config={"image_size": size, **(TOY_VIT if toy else {})})
    else:
        backbone = build_backbone("resnet18" if toy else network)
    return Encoder(backbone, dim, preprocess=Preprocess(size=size, mean=(0.5,) * 3, std=(0.25,) * 3))


def measured(
    network: str, placement: str, images: ImageSet, decoding: float, options: argparse.Namespace, device: torch.device
) -> dict:
    torch.manual_seed(0)
    scenario = cl2r(images.labels, images.class_names, initial=images.num_classes // 2, tasks=2)
    method = SimplexHOC(slots=images.num_classes)
    dim = method.feature_dim(0)
    train = FitOptions(
        epochs=10_000, batch_size=options.batch_size, precision=options.precision, lr=0.001, images=placement
    )
    new, old = (make_encoder(network, options.size, dim, options.toy) for _ in range(2))
    placed = place_images(images, device, placement)
    step, _ = prepare_step(new, method, scenario.tasks[1], placed, old=old, options=train)
    batches = (row for _ in range(10_000) for row in step.batches.cpu().numpy())
    run = step.source.prefetched(make_executor(options.executor, step), batches, 0)
    for _ in range(10):
        run()
    times = [timed(run, options.steps, device) / 1000 for _ in range(options.repeats)]
    busy = busy_share(run, device)
    median = statistics.median(times)
    batch = step.batches.shape[1]
    rate = batch / median

    def after(passes: int) -> tuple[float, float | None]:
        """Images a second and GPU share of a run that decodes once and then passes over the images."""
        steps = passes * len(images) / rate
        return passes * len(images) / (decoding + steps), None if busy is None else busy * steps / (decoding + steps)

    row = {
        "network": network,
        "placement": placement,
        "ms_per_step": 1000 * median,
        "min_ms": 1000 * min(times),
        "max_ms": 1000 * max(times),
        "images_per_s": rate,
        "gpu_busy": busy,
        "first_pass_images_per_s": after(1)[0],
        "first_pass_gpu_busy": after(1)[1],
        "seventy_passes_images_per_s": after(70)[0],
        "seventy_passes_gpu_busy": after(70)[1],
        "peak_gb": torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else None,
    }
    shares = [f"{value:.0%}" if value is not None else "-" for value in (busy, after(1)[1], after(70)[1])]
    print(f"{network:9} {placement:7} {1000 * median:9.2f} ms per step (min {1000 * min(times):.2f}, max "
          f"{1000 * max(times):.2f})  {rate:8.0f} images/s, GPU busy {shares[0]}  |  with decoding: first pass "
          f"{after(1)[0]:.0f} images/s, {shares[1]}; 70 passes {after(70)[0]:.0f} images/s, {shares[2]}",
          flush=True)  # fmt: skip
    return row


def busy_share(run, device: torch.device) -> float | None:
    """The share of ten steps in which at least one kernel or copy is at work on the GPU; None without one."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
        for _ in range(10):
            run()
        torch.cuda.synchronize(device)
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in recorded.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    )
    return union(spans) / (max(end for _, end in spans) - spans[0][0])


def union(spans: list[tuple[float, float]]) -> float:
    """The length that sorted intervals cover together."""
    covered, reached = 0.0, float("-inf")
    for start, end in spans:
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered


if __name__ == "__main__":
    main()

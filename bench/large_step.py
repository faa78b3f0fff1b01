"""What a step costs at the paper's large scale: DINOv3 ViT-B/16, K = 22,000, batch 320; and so the whole experiment.

    python bench/large_step.py [--methods simplex_hoc,er] [--batch 320] [--slots 22000] [--steps 20] [--repeats 3]
                               [--precision bf16] [--executor eager] [--json FILE]
    python bench/large_step.py --toy          (the same path at toy size, for a CPU)

Weights are random, from DINOv3's configuration, and so are the images: the time depends on neither. The step is the
one of training: augment, both models, losses, AdamW. Hours follow from Table 5: 90 epochs of 16 tasks of 512 CelebA
identities with 10 images of each kept, and 90 epochs of 3,525, 7,050 and 10,575 CASIA identities; evaluation, reading
and waiting are not in them. A pre-training step is measured without the old model. With simplex_hoc and er measured the
hours of all of Figure 8 are added up, the other methods counted as the one of the two that they resemble.
"""

import argparse
import statistics
from typing import Any

import numpy as np
import torch
from timing import timed, write_figures

from holdfast.core.environment import describe
from holdfast.train.data import ImageSet
from holdfast.train.data.device_images import DeviceImages
from holdfast.train.data.sampler import steps_per_epoch
from holdfast.train.devices import resolve_device
from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.engine import FitOptions
from holdfast.train.engine.executors import make_executor
from holdfast.train.engine.fit import prepare_step
from holdfast.train.methods import METHODS
from holdfast.train.scenarios import cl2r
from papers.stationary.curve_figures import whole_experiment

EPOCHS, TASKS, PER_TASK, KEPT = 90, 16, 512, 10
CELEBA_IMAGES, CELEBA_PEOPLE = 162_770, 8_192
CASIA_IMAGES, CASIA_PEOPLE = 494_414, 10_575
PRETRAINED = (3_525, 7_050, 10_575)
VIT_B = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_register_tokens": 4,
    "image_size": 224,
    "patch_size": 16,
}
TOY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="What a step costs at the paper's large scale.")
    parser.add_argument("--methods", default="simplex_hoc,er")
    parser.add_argument("--batch", type=int, default=320)
    parser.add_argument("--slots", type=int, default=22_000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--executor", default="eager")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--toy", action="store_true", help="a tiny network on tiny images")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    if options.toy:
        options.batch, options.slots, options.precision = min(options.batch, 16), min(options.slots, 200), "fp32"
    device = resolve_device(options.device)
    environment = describe(str(device))
    side = 32 if options.toy else 224
    where = environment["gpu"] or environment["processor"]
    print(f"{where}, torch {torch.__version__}, {options.precision}, batch {options.batch}, {side} x {side}")
    print(f"K = {options.slots:,}, n = {options.repeats} x {options.steps} steps", end="")
    print("; toy sizes: the hours mean nothing" if options.toy else "")
    images = random_images(options, side)
    rows = []
    for method in options.methods.split(","):
        for fine_tuning in (True, False):
            rows.append(measured(options, method, fine_tuning, images, device))
    hours = [told(row, options.batch) for row in rows]
    whole = whole_experiment(hours)
    if whole:
        print(f"Figure 8, {whole['runs']} runs and their pre-trained models: {whole['hours']:,.1f} hours, of which "
              f"{whole['pretraining_hours']:,.1f} for pre-training; {whole['assumption']}")  # fmt: skip
    if options.json:
        write_figures(options.json, "large_step", environment, options, rows=rows, hours=hours, whole=whole)


def random_images(options: argparse.Namespace, side: int) -> ImageSet:
    """Four batches of 8 people, half of whom are new: as many pictures as the steps can tell apart."""
    count = 8 * max(4, options.batch // 2)
    pixels = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    return ImageSet(pixels, np.arange(count) * 8 // count, tuple(map(str, range(8))), "random")


def measured(
    options: argparse.Namespace, name: str, fine_tuning: bool, images: ImageSet, device: torch.device
) -> dict[str, Any]:
    torch.manual_seed(0)
    simplex = name.startswith("simplex")
    method = METHODS[name](**({"slots": options.slots} if simplex else {}))
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    new, old = encoder(options, method), encoder(options, method) if fine_tuning else None
    # A first task without an old model, or a second one held to it, half of each batch from the buffer.
    kept = len(images) // 8
    both = cl2r(
        images.labels, images.class_names, num_slots=method.num_slots, initial=4, tasks=2, buffer_per_class=kept
    )
    task = both.tasks[1 if fine_tuning else 0]
    fit_options = FitOptions(
        precision=options.precision, batch_size=options.batch, optimizer="adamw", lr=1e-3, crop_padding=8
    )
    on_device = DeviceImages(images, device)
    step, _ = prepare_step(new, method, task, on_device, old=old, options=fit_options)
    run = make_executor(options.executor, step)
    for _ in range(5):
        run()
    times = [timed(run, options.steps, device) for _ in range(options.repeats)]
    batch = step.batches.shape[1]
    return {
        "method": name,
        "step": "fine-tuning" if fine_tuning else "pre-training",
        "feature_dim": new.dim,
        "parameters": sum(p.numel() for p in new.parameters()),
        "batch": batch,
        "median_ms": statistics.median(times),
        "min_ms": min(times),
        "max_ms": max(times),
        "images_per_s": 1000 * batch / statistics.median(times),
        "peak_gb": torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else None,
    }


def encoder(options: argparse.Namespace, method: Any) -> Encoder:
    size = 32 if options.toy else 224
    backbone = build_backbone("hf:dinov3_vit", config=TOY if options.toy else VIT_B)
    preprocess = Preprocess(size=size, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    return Encoder.for_method(method, backbone=backbone, preprocess=preprocess)


def told(row: dict[str, Any], batch: int) -> dict[str, Any]:
    """The hours that one method's runs of one kind would take at this step's cost, printed and given back."""
    if row["step"] == "fine-tuning":
        new = CELEBA_IMAGES * PER_TASK // CELEBA_PEOPLE
        steps = EPOCHS * sum(steps_per_epoch(new, KEPT * PER_TASK * task, batch) for task in range(TASKS))
        what = "16 CelebA tasks"
    else:
        sets = [CASIA_IMAGES * people // CASIA_PEOPLE for people in PRETRAINED]
        steps = EPOCHS * sum(steps_per_epoch(count, 0, batch) for count in sets)
        what = "3 CASIA sets"
    hours = steps * row["median_ms"] / 3.6e6
    memory = f"  {row['peak_gb']:.1f} GB" if row["peak_gb"] else ""
    print(f"{row['method']:12} {row['step']:12} {row['median_ms']:9.2f} ms (min {row['min_ms']:.2f}, max "
          f"{row['max_ms']:.2f})  {row['images_per_s']:8,.0f} images/s{memory}  ->  {what}: {steps:,} steps, "
          f"{hours:,.1f} hours", flush=True)  # fmt: skip
    return {"method": row["method"], "step": row["step"], "what": what, "steps": steps, "hours": hours}


if __name__ == "__main__":
    main()

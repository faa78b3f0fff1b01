"""What one training step costs: second of seven tasks, under each executor and side by side.

    python bench/train_step.py [--method simplex_hoc] [--backbone resnet32] [--stem imagenet] [--image-size 32]
                               [--batch-size 128] [--precision bf16] [--executors eager,graph,fused]
                               [--side-by-side 4,8] [--together auto] [--tap-by-tap] [--steps 200] [--repeats 5]
                               [--profile FILE] [--json FILE]

Random images: the time does not depend on what is in them. Every figure is the median over repeats of ``steps`` steps
by a host clock around a synchronised device, after a warm-up; the eager reference is measured in the same run.
TFLOP/s: floating-point operations of the step's matrix products and convolutions, counted by torch, per second. The
share is of a square matrix product of the same precision, measured in the same run.
"""

import argparse
import statistics
import time

import numpy as np
import torch
from sweep import SideBySide
from timing import synchronize, timed, write_figures
from torch.utils.flop_counter import FlopCounterMode

import papers.networks  # noqa: F401  SENet-18 and RegNetY-400MF
from holdfast.core.environment import describe
from holdfast.train.data import ImageSet
from holdfast.train.data.device_images import DeviceImages
from holdfast.train.devices import resolve_device
from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.engine import FitOptions, KeptFeatures, buffer_features
from holdfast.train.engine.executors import make_executor
from holdfast.train.engine.fit import prepare_step, task_survey
from holdfast.train.methods import METHODS
from holdfast.train.scenarios import cl2r
from papers.kernels import convolution_rows


def main() -> None:
    parser = argparse.ArgumentParser(description="What one training step costs.")
    parser.add_argument("--method", default="simplex_hoc")
    parser.add_argument("--backbone", default="resnet32", help="or resnet18, senet18, regnety_400mf")
    parser.add_argument("--stem", help="of resnet18 and the like: cifar or imagenet; default: the network's own")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--images", type=int, default=50_000, help="random images, of 100 classes")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--executors", default="eager,graph,fused")
    parser.add_argument("--side-by-side", default="", help="how many runs at once, such as 4,8,16")
    parser.add_argument("--together", default="auto", help="the executor of the runs side by side")
    parser.add_argument("--tap-by-tap", action="store_true", help="fused: no convolution row by row")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--cudnn-benchmark", action="store_true", help="let cuDNN try its algorithms")
    parser.add_argument("--profile", help="write the kernels of a step under --together, longest first, to this file")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    convolution_rows.BY_ROWS = not options.tap_by_tap
    device = resolve_device(options.device)
    torch.backends.cudnn.benchmark = options.cudnn_benchmark
    images = DeviceImages(random_images(options.images, options.image_size), device)
    environment = describe(str(device))
    print(f"{environment['gpu'] or environment['processor']}, torch {torch.__version__}, {options.precision}, "
          f"{options.method}, {options.backbone}, {options.image_size} pixels, batch {options.batch_size}, "
          f"{options.steps} steps x {options.repeats}")  # fmt: skip
    work = operations(make_step(options, images, seed=0))
    peak = matrix_product_rate(device, options.precision)
    print(f"{work / 1e9:.1f} GFLOP per step; a square matrix product runs at {peak / 1e12:.2f} TFLOP/s", flush=True)
    rows = []
    for kind in options.executors.split(","):
        reset_peak(device)
        step = make_step(options, images, seed=0)
        started = time.perf_counter()
        run = make_executor(kind, step)
        for _ in range(10):
            run()
        synchronize(device)
        warm_up = time.perf_counter() - started
        times = [timed(run, options.steps, device) for _ in range(options.repeats)]
        rows.append(row(kind, 1, times, warm_up, work, peak))
    if options.profile:
        step = make_step(options, images, seed=0)
        profile(make_executor(options.together, step), options.profile)
    for count in (int(n) for n in options.side_by_side.split(",") if n):
        reset_peak(device)
        started = time.perf_counter()
        steps = [make_step(options, images, seed=s) for s in range(count)]
        together = SideBySide(steps, options.together, device)
        warm_up = time.perf_counter() - started
        times = [together.timed(options.steps) for _ in range(options.repeats)]
        rows.append(row(f"{options.together}, side by side", count, [t / count for t in times], warm_up, work, peak))
        together.close()
    if options.json:
        found = {"operations": work, "matrix_product_tflops": peak / 1e12, "rows": rows}
        write_figures(options.json, "train_step", environment, options, **found)


def operations(step) -> int:
    """Floating-point operations of one step's matrix products and convolutions, forward and backward."""
    run = make_executor("eager", step)
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def matrix_product_rate(device: torch.device, precision: str) -> float:
    """Operations per second of a large square matrix product on random numbers."""
    size = 8192 if device.type == "cuda" else 1024
    numbers = torch.randn(size, size, device=device, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
    timed(lambda: numbers @ numbers, 3, device)
    return 2 * size**3 / (timed(lambda: numbers @ numbers, 10, device) / 1000)


def row(executor: str, runs: int, times: list[float], warm_up: float, work: int, peak: float) -> dict:
    """The figures of one executor. work: operations of a step; peak: operations per second of a matrix product."""
    rate = work / (statistics.median(times) / 1000)
    found = {
        "executor": executor,
        "runs": runs,
        "median_ms": statistics.median(times),
        "min_ms": min(times),
        "max_ms": max(times),
        "warm_up_s": warm_up,
        "tflops": rate / 1e12,
        "share_of_matrix_product": rate / peak,
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else None,
    }
    print(f"{executor:20} runs {runs:3}  {found['median_ms']:8.3f} ms per step and run  "
          f"(min {min(times):.3f}, max {max(times):.3f})  {rate / 1e12:.2f} TFLOP/s ({rate / peak:.1%})  "
          f"warm-up {warm_up:.1f} s  peak {found['peak_gb'] or 0:.1f} GB",
          flush=True)  # fmt: skip
    return found


def random_images(count: int, size: int) -> ImageSet:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    labels = np.arange(count) * 100 // count
    return ImageSet(pixels, labels, tuple(map(str, range(100))), "random")


def make_step(wanted: argparse.Namespace, images: DeviceImages, seed: int):
    method = wanted.method
    torch.manual_seed(seed)
    scenario = cl2r(images.labels.cpu().numpy(), tuple(map(str, range(100))), initial=10, tasks=7)
    preprocess = Preprocess(size=wanted.image_size, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    made = METHODS[method](**({"slots": 100} if method.startswith("simplex") else {}))

    def encoder() -> Encoder:
        backbone = build_backbone(wanted.backbone, **({} if wanted.stem is None else {"stem": wanted.stem}))
        return Encoder.for_method(made, backbone=backbone, preprocess=preprocess)

    new, old = encoder(), encoder()
    options = FitOptions(precision=wanted.precision, batch_size=wanted.batch_size, seed=seed, lr=0.01)
    first, _ = prepare_step(old, made, scenario.tasks[0], images, old=None, options=options)
    made.finish(scenario.tasks[0], task_survey(first, scenario.tasks[0]))  # centres and radii, where a method has some
    second = scenario.tasks[1]
    kept = KeptFeatures(second, images, [buffer_features(old, images, second.buffer_indices)])
    step, _ = prepare_step(new, made, second, images, old=old, kept=kept, options=options)
    return step


def reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def profile(step, path: str) -> None:
    for _ in range(5):
        step()
    with torch.profiler.profile() as recorded:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
    table = recorded.key_averages().table(sort_by="self_device_time_total", row_limit=60, max_name_column_width=90)
    with open(path, "w", encoding="utf-8") as file:
        file.write(table)


if __name__ == "__main__":
    main()

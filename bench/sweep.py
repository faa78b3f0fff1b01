"""What many runs side by side on one device take: R = 1, 2, 4, 8, 16 training runs, each a thread with its own stream.

    python bench/sweep.py [--runs 1,2,4,8,16] [--method simplex_hoc] [--precision bf16] [--executor auto]
                          [--steps 200] [--repeats 5] [--device auto] [--toy] [--json FILE]

ResNet-32, batch 128, second of seven tasks, random images shared by all runs, seeds 0 to R - 1. The reference is one
eager run, measured first and in the same process. Every figure is the median over repeats of ``steps`` steps of every
run, by a host clock around a synchronised device. Memory is the device's peak beside the shared images, against what
``holdfast sweep`` predicts before it starts. ``--toy`` is small enough for a CPU: it shows that the script works.
"""

import argparse
import statistics
import threading
import time
from collections.abc import Callable

import numpy as np
import torch
from timing import write_figures

from holdfast.core.environment import describe
from holdfast.train.data import ImageSet, OpenSet
from holdfast.train.data.device_images import DeviceImages
from holdfast.train.devices import resolve_device
from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.engine import FitOptions
from holdfast.train.engine.executors import make_executor
from holdfast.train.engine.fit import prepare_step, task_survey
from holdfast.train.engine.step import TrainingStep
from holdfast.train.experiments.assemble import Experiment
from holdfast.train.methods import METHODS
from holdfast.train.scenarios import cl2r
from papers.sweeps.gpu_memory import bytes_per_run

WARM_UP = 10


def main() -> None:
    parser = argparse.ArgumentParser(description="What many runs side by side take.")
    parser.add_argument("--runs", default="1,2,4,8,16")
    parser.add_argument("--method", default="simplex_hoc")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--executor", default="auto")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--toy", action="store_true", help="a small network on few images")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    device = resolve_device(options.device)
    environment = describe(str(device))
    images = DeviceImages(random_images(options.toy), device)
    work = Workload(options, images)
    predicted = bytes_per_run(work.experiment(seed=0), images) if device.type == "cuda" else None
    print(f"{environment['gpu'] or environment['processor']}, torch {torch.__version__}, {options.precision}, "
          f"{options.method}, {options.steps} steps x {options.repeats}")  # fmt: skip
    print(f"{'executor':10} {'runs':>4} {'steps/s':>9} {'ms/step/run':>12} {'min':>8} {'max':>8} {'x eager':>8} "
          f"{'peak GB':>8} {'predicted':>9}")  # fmt: skip
    rows: list[dict] = []
    for kind, count in [("eager", 1), *((options.executor, int(n)) for n in options.runs.split(","))]:
        rows.append(measured(kind, count, work, options, rows[0] if rows else None, predicted))
    if options.json:
        write_figures(options.json, "sweep", environment, options, rows=rows)


def measured(
    kind: str, count: int, work: "Workload", options: argparse.Namespace, eager: dict | None, predicted: int | None
) -> dict:
    device = work.images.device
    before = 0
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_reserved(device)
    together = SideBySide([work.step(seed) for seed in range(count)], kind, device)
    try:
        times = [together.timed(options.steps) / count for _ in range(options.repeats)]
    finally:
        together.close()
    median = statistics.median(times)
    row = {
        "executor": kind,
        "runs": count,
        "steps_per_s": 1000 / median,
        "median_ms": median,
        "min_ms": min(times),
        "max_ms": max(times),
        "times_eager": eager["median_ms"] / median if eager else 1.0,
        # Reserved, not allocated: memory that the graphs keep is not free for others.
        "peak_gb": (torch.cuda.max_memory_reserved(device) - before) / 1e9 if device.type == "cuda" else None,
        "predicted_gb": None if predicted is None else count * predicted / 1e9,
    }
    memory = [f"{row[name]:.2f}" if row[name] is not None else "-" for name in ("peak_gb", "predicted_gb")]
    print(f"{kind:10} {count:4} {row['steps_per_s']:9.1f} {median:12.3f} {min(times):8.3f} {max(times):8.3f} "
          f"{row['times_eager']:8.2f} {memory[0]:>8} {memory[1]:>9}", flush=True)  # fmt: skip
    return row


def random_images(toy: bool) -> ImageSet:
    """100 classes of 500 images as in CIFAR-100, or 14 of 20 small ones."""
    classes, each, size = (14, 20, 12) if toy else (100, 500, 32)
    pixels = np.random.default_rng(0).integers(0, 256, (classes * each, size, size, 3), dtype=np.uint8)
    return ImageSet(pixels, np.repeat(np.arange(classes), each), tuple(map(str, range(classes))), "00")


class Workload:
    """The second of seven tasks with random networks, for as many seeds as there are runs."""

    def __init__(self, options: argparse.Namespace, images: DeviceImages) -> None:
        self.images, self._options = images, options
        self._classes = int(images.labels.max()) + 1
        self._batch = 16 if options.toy else 128
        self._network: tuple[str, dict] = ("small", {"in_channels": 3, "width": 8}) if options.toy else ("resnet32", {})
        initial = self._classes // 10 if not options.toy else 2
        names = tuple(map(str, range(self._classes)))
        self._scenario = cl2r(images.labels.cpu().numpy(), names, initial=initial, tasks=7)

    def experiment(self, seed: int) -> Experiment:
        def make_method():
            return METHODS[self._options.method](
                **({"slots": self._classes} if self._options.method.startswith("simplex") else {})
            )

        def make_encoder() -> Encoder:
            name, arguments = self._network
            backbone = build_backbone(name, **arguments)
            size = tuple(self.images.pixels.shape[-2:])
            preprocess = Preprocess(size=size, mean=(0.5,) * 3, std=(0.25,) * 3)
            return Encoder.for_method(make_method(), backbone=backbone, preprocess=preprocess)

        train = FitOptions(precision=self._options.precision, batch_size=self._batch, seed=seed, lr=0.01)
        nothing = ImageSet(np.zeros((0, 1, 1, 3), np.uint8), np.zeros(0, np.int64), (), "00")
        data = OpenSet(nothing, nothing, nothing)
        return Experiment(make_encoder, make_method, train, data=data, scenario=self._scenario)

    def step(self, seed: int) -> TrainingStep:
        torch.manual_seed(seed)
        run = self.experiment(seed)
        first, second = run.scenario.tasks[:2]
        new, old, method = run.make_encoder(), run.make_encoder(), run.make_method()
        before, _ = prepare_step(old, method, first, self.images, old=None, options=run.options)
        method.finish(first, task_survey(before, first))  # centres and radii, where a method has some
        step, _ = prepare_step(new, method, second, self.images, old=old, options=run.options)
        return step


class SideBySide:
    """Several runs in one process, each in a thread of its own; on a GPU also with a stream and a graph of its own."""

    def __init__(self, steps: list[TrainingStep], kind: str, device: torch.device) -> None:
        self._kind, self._device = kind, device
        self._go, self._done = threading.Barrier(len(steps) + 1), threading.Barrier(len(steps) + 1)
        self._count = WARM_UP
        self._threads = [threading.Thread(target=self._start, args=(step,), daemon=True) for step in steps]
        for thread in self._threads:
            thread.start()
        self._round()

    def _start(self, step: TrainingStep) -> None:
        try:
            if self._device.type == "cuda":
                with torch.cuda.stream(torch.cuda.Stream(self._device)):
                    self._work(make_executor(self._kind, step))
            else:
                self._work(make_executor(self._kind, step))
        except BaseException:
            self._go.abort()
            self._done.abort()  # or everybody would wait for this one
            raise

    def _work(self, run: Callable[[], None]) -> None:
        while True:
            self._go.wait()
            if not self._count:
                return
            for _ in range(self._count):
                run()
            if self._device.type == "cuda":
                torch.cuda.current_stream(self._device).synchronize()
            self._done.wait()

    def _round(self) -> None:
        self._go.wait()
        self._done.wait()

    def timed(self, steps: int) -> float:
        """Milliseconds for one step of every run."""
        self._count = steps
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        started = time.perf_counter()
        self._round()
        return 1000 * (time.perf_counter() - started) / steps

    def close(self) -> None:
        if not self._go.broken:
            self._count = 0
            self._go.wait()
        for thread in self._threads:
            thread.join()


if __name__ == "__main__":
    main()

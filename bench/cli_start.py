"""How long short commands take from start to end, beside the import of torch that some of them need.

    python bench/cli_start.py [--repeats 5] [--json FILE]

Each command is a process of its own: ``holdfast --help``, ``holdfast doctor``, and ``holdfast gallery search`` by an
image in a gallery of 200 images (a small network of 64 numbers on the embedded engine). ``import torch`` and ``python``
alone are measured in turn with them. "cpu" is user and system time of the process, which other work on the machine
changes less than the time on the clock; "beyond torch" is the median of the differences to ``import torch`` in the same
round. Bytecode is compiled once, before the first round, as an installation does.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from timing import write_figures

from holdfast import Encoder, Gallery, Item, Preprocess, build_backbone
from holdfast.core.environment import describe

IMAGES = 200
TORCH = "import torch"


def main() -> None:
    parser = argparse.ArgumentParser(description="How long short commands take from start to end.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    environment, load = describe("cpu"), os.getloadavg()
    print(f"{environment['processor']}, torch {torch.__version__}; load before the start: {load[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        rows = measure(Path(name), options.repeats)
    print(f"{'':28} {'wall s':>8} {'cpu s':>8} {'cpu beyond torch':>18}")
    for row in rows:
        beyond = "" if row["cpu_beyond_torch_s"] is None else f"{row['cpu_beyond_torch_s']:.2f}"
        print(f"{row['command']:28} {row['wall_s']['median']:8.2f} {row['cpu_s']['median']:8.2f} {beyond:>18}")
    if options.json:
        write_figures(options.json, "cli_start", environment, options, load=load[0], images=IMAGES, rows=rows)


def measure(folder: Path, repeats: int) -> list[dict[str, Any]]:
    gallery, query = make_gallery(folder)
    holdfast = [sys.executable, "-m", "holdfast"]
    commands = {
        "python": [sys.executable, "-c", ""],
        TORCH: [sys.executable, "-c", "import torch"],
        "holdfast --help": [*holdfast, "--help"],
        "holdfast doctor": [*holdfast, "doctor"],
        "holdfast gallery search": [*holdfast, "gallery", "search", str(gallery), str(query)],
    }
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for command in commands.values():
        run(command, environment)
    rounds = [{name: run(command, environment) for name, command in commands.items()} for _ in range(repeats)]
    return [summary(name, rounds) for name in commands]


def make_gallery(folder: Path) -> tuple[Path, Path]:
    """A gallery of random images, and one of them as the query."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    preprocess = Preprocess(size=32, mean=(0.5,), std=(0.25,), colour="grey")
    Encoder(build_backbone("small", width=16), preprocess=preprocess).save_pretrained(folder / "model")
    files = [folder / f"{row}.png" for row in range(IMAGES)]
    for file in files:
        Image.fromarray(rng.integers(0, 256, (32, 32), dtype=np.uint8)).save(file)
    with Gallery.create(folder / "gallery", folder / "model") as gallery:
        gallery.add(Item(file.name, path=file) for file in files)
    return folder / "gallery", files[0]


def run(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds on the clock, and user and system seconds, of one process."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def summary(name: str, rounds: list[dict[str, tuple[float, float]]]) -> dict[str, Any]:
    wall, cpu = ([one[name][which] for one in rounds] for which in (0, 1))
    beyond = statistics.median(one[name][1] - one[TORCH][1] for one in rounds)
    return {
        "command": name,
        "n": len(rounds),
        "wall_s": spread(wall),
        "cpu_s": spread(cpu),
        "cpu_beyond_torch_s": beyond if name == "holdfast gallery search" else None,
    }


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


if __name__ == "__main__":
    main()

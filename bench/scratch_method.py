"""The method of ``start`` and ``update`` for a network without trained weights, compared on validation classes.

    python bench/scratch_method.py --data cifar100.npz [--seeds 0,1] [--jobs 1] [--threads 2] [--json FILE]

cifar100.npz: train_x (uint8, N x 32 x 32 x 3) and train_y (N), CIFAR-100. Only the validation classes of
bench/first_model.py are used: 20 for each seed are trained, and the 20 of the other seed are searched without training.

`start` trains on 15 classes with 100 images each, `update` on 40 further images of each and 100 images of each of the 5
other classes. Settings are the defaults of these commands except for the method, one try each: d-Simplex-HOC (the
default), distillation with the weights that the validation set of Table 2 chose (docs/results/search.md), and
cross-entropy alone, which is distillation with weights of 0 and shares its version 1.

The index has the 1,500 images of version 1 and 50 images of each class that is not trained. Queries are 100 other
images of each trained class and 50 of each other one. A query is right if its nearest neighbour by cosine is of its
class.
The bridge is fitted on 1,000 items of the index with their classes, as `gallery register` does.
"""

import argparse
import functools
import json
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from first_model import classes_of, features_of
from update_steps import FIRST, KNOWN, MORE, QUERIES, accuracy, write_parts

import holdfast
from holdfast import Bridge, Encoder
from holdfast.core.environment import describe
from holdfast.core.storage import write_json

OTHERS, PAIRS = 50, 1000
"""Images of a class that is not trained in the index, and as queries; items that a bridge is fitted on."""
METHODS: dict[str, tuple[str, dict[str, float]]] = {
    "d-Simplex-HOC": ("simplex_hoc", {"lambda": 0.3}),
    "distillation": ("distillation", {"features_weight": 5.0, "logits_weight": 5.0}),
    "cross-entropy alone": ("distillation", {"features_weight": 0.0, "logits_weight": 0.0}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Methods for a network without trained weights.")
    parser.add_argument("--data", required=True, type=Path, help="npz with train_x and train_y of CIFAR-100")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--jobs", type=int, default=1, help="seeds at a time")
    parser.add_argument("--threads", type=int, default=2, help="of each job")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    environment, rows = describe("cpu"), []
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        seeds = [int(seed) for seed in options.seeds.split(",")]
        for found in pool.map(functools.partial(rows_of_seed, options), seeds):
            rows += found
    if options.json:
        command = f"python bench/scratch_method.py --data {options.data.name} --seeds {options.seeds}"
        command += f" --jobs {options.jobs} --threads {options.threads} --json {options.json.name}"
        record = {"bench": "scratch_method", "command": command, "environment": environment, "rows": rows}
        write_json(options.json, record)


def rows_of_seed(options: argparse.Namespace, seed: int) -> list[dict[str, Any]]:
    """One seed, in a process of its own."""
    torch.set_num_threads(options.threads)
    with np.load(options.data) as arrays:
        return measure(arrays["train_x"], arrays["train_y"], seed)


def measure(pixels: np.ndarray, labels: np.ndarray, seed: int) -> list[dict[str, Any]]:
    """The figures of every method with one seed."""
    draw = np.random.default_rng(seed)
    classes, others = classes_of("validation", seed), classes_of("validation", 1 - seed)
    images = {int(one): draw.permutation(np.flatnonzero(labels == one)) for one in [*classes, *others]}
    known, new = classes[:KNOWN], classes[KNOWN:]
    first = np.concatenate([images[one][:FIRST] for one in known])
    second = np.concatenate([images[one][FIRST : FIRST + MORE] for one in known] + [images[one][:FIRST] for one in new])
    asked = {
        "known": np.concatenate([images[one][FIRST + MORE :][:QUERIES] for one in known]),
        "new": np.concatenate([images[one][FIRST + MORE :][:QUERIES] for one in new]),
        "others": np.concatenate([images[one][OTHERS : 2 * OTHERS] for one in others]),
    }
    index = np.concatenate([first, *(images[one][:OTHERS] for one in others)])
    pairs = draw.permutation(len(index))[:PAIRS]
    rows = []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        usual = write_parts(folder, pixels, labels, first, second, seed=seed)
        for training, (method, given) in METHODS.items():
            settings = usual.changed(method={"name": method, **given})
            v1, v2 = folder / f"{method}-1", folder / f"{training}-2"
            if not v1.exists():
                holdfast.start(folder / "spring", v1, settings=settings, device="cpu")
            began = time.perf_counter()
            changes = [f"method.{key}={json.dumps(value)}" for key, value in given.items()]
            holdfast.update(v1, folder / "summer", v2, changes=changes, device="cpu")
            seconds = time.perf_counter() - began
            old, updated = Encoder.from_pretrained(v1), Encoder.from_pretrained(v2)
            stored, grown = features_of(old, pixels[index]), np.concatenate([index, second])
            again, added = features_of(updated, pixels[index]), features_of(updated, pixels[second])
            bridge = Bridge.fit(
                new=again[pairs], old=stored[pairs], labels=labels[index[pairs]], items=len(index), seed=seed
            )
            row: dict[str, Any] = {"seed": seed, "training": training, "settings": {"method": method, **given}}
            row |= {"seconds of update": round(seconds, 1), "bridge": bridge.kind}
            for group, chosen in asked.items():
                queries, answer = features_of(updated, pixels[chosen]), labels[chosen]
                new_gallery = np.concatenate([again, added])
                row[f"{group}: all embedded by version 2"] = accuracy(queries, answer, new_gallery, labels[grown])
                if group == "new":
                    continue
                before = features_of(old, pixels[chosen])
                row[f"{group}: version 1"] = accuracy(before, answer, stored, labels[index])
                row[f"{group}: re-embedded by version 2"] = accuracy(queries, answer, again, labels[index])
                row[f"{group}: version 2, old index"] = accuracy(queries, answer, stored, labels[index])
                bridged = bridge(queries)
                row[f"{group}: version 2, old index, bridge"] = accuracy(bridged, answer, stored, labels[index])
            print(json.dumps(row), flush=True)
            rows.append(row)
    return rows


if __name__ == "__main__":
    main()

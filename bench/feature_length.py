"""How long the raw features of a run's models are: the contrast does not see it, and cross-entropy does.

    python bench/feature_length.py RUN [RUN ...] --data DIR [--images 2000] [--json FILE]

RUN: folders of finished runs (`holdfast run --out`). The gradient of cross-entropy does not shrink as features get
longer, that of a contrast of cosines does: so with the same lambda long features follow the labels, short ones the old
model. Per model: the mean length before features are made unit vectors, over gallery images spread evenly over the
set, and the largest singular value of the projection.
"""

import argparse
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.core.environment import describe
from holdfast.core.run_folder import RunFolder
from holdfast.core.storage import write_json
from holdfast.train.data import ImageSet
from holdfast.train.data.device_images import DeviceImages
from holdfast.train.devices import resolve_device
from holdfast.train.encoders import Encoder
from holdfast.train.engine.survey import image_features
from holdfast.train.experiments.assemble import SharedData
from holdfast.train.experiments.schema import check_recipe


def main() -> None:
    parser = argparse.ArgumentParser(description="How long the raw features of a run's models are.")
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--data", help="where the data sets are")
    parser.add_argument("--images", type=int, default=2_000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    device = resolve_device(options.device)
    shared = SharedData(Path(options.data) if options.data else None, Path("models"))
    rows = [row for run in options.runs for row in of_run(RunFolder(Path(run)), shared, options.images, device)]
    for row in rows:
        print("{run:50} model {model:2}  length {length:8.3f}  projection {projection:7.3f}".format(**row))
    if options.json:
        record = {
            "bench": "feature_length",
            "environment": describe(str(device)),
            "images": options.images,
            "rows": rows,
        }
        write_json(Path(options.json), record)


def of_run(folder: RunFolder, shared: SharedData, count: int, device: torch.device) -> list[dict[str, Any]]:
    recipe = check_recipe(tomllib.loads(folder.recipe.read_text(encoding="utf-8")))
    gallery = shared.open_set(recipe).gallery
    rows = []
    for number in range(1, recipe["scenario"]["tasks"] + 1):
        encoder = Encoder.from_pretrained(folder.model(number), device=device)
        length, projection = mean_length(encoder, gallery, count), largest_singular_value(encoder)
        rows.append({"run": folder.path.name, "model": number, "length": length, "projection": projection})
    return rows


@torch.no_grad()
def mean_length(encoder: Encoder, images: ImageSet, count: int) -> float:
    device = next(encoder.parameters()).device
    chosen = np.linspace(0, len(images) - 1, min(count, len(images))).astype(int)
    assert encoder.preprocess is not None
    raw = image_features(encoder, encoder.preprocess, DeviceImages(images, device), torch.from_numpy(chosen).to(device))
    return raw.norm(dim=1).mean().item()


def largest_singular_value(encoder: Encoder) -> float:
    """Of the projection; 1 where there is none."""
    if encoder.projection is None:
        return 1.0
    return torch.linalg.matrix_norm(encoder.projection.weight.detach().float(), 2).item()


if __name__ == "__main__":
    main()

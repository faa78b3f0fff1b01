"""Compatibility of models that are trained with pairs only: with and without ``CompatibilityLoss``'s term.

    python bench/label_free.py --out DIR --data DIR [--seeds 3] [--weights 0,1] [--epochs 70] [--precision bf16]
                               [--parallel 1] [--json FILE]

CL2R on CIFAR100/10 with 7 tasks, as in Table 2. Labels are hidden: a batch tells only which two of its images belong
together (two images of one class, drawn at random), so other images of the class are among the negatives of both
losses. The loss is multiple negatives on the pairs; the term is that of ``holdfast.CompatibilityLoss``, with a pair as
a group. Printed for each weight and seed: AC, AA and ACA of the instance protocol. A run that is done is not repeated.
"""

import argparse
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.core.environment import describe
from holdfast.core.errors import HoldfastError
from holdfast.core.storage import write_json
from holdfast.train.devices import resolve_device
from holdfast.train.events import Event, TaskEnded
from holdfast.train.experiments.assemble import SharedData
from holdfast.train.experiments.load import read_recipe
from holdfast.train.experiments.schema import check_recipe
from holdfast.train.geometry import unit
from holdfast.train.losses import compatibility_contrast
from holdfast.train.methods import Batch, Method, Progress
from holdfast.train.methods.interface import OldFeatures, TaskView
from papers.sweeps.plan import PlannedRun
from papers.sweeps.sweep import SweepOptions, run_all


class PairLoss(Method):
    """Multiple negatives on pairs, and the label-free contrast with the old model.

    weight: of the contrast; 0 trains without it.
    rho: factor of the cosines in the contrast.
    scale: factor of the cosines of pairs.
    """

    old_features: OldFeatures = "all"

    def __init__(self, *, weight: float = 1.0, rho: float = 5.0, scale: float = 16.0) -> None:
        super().__init__()
        self.weight = weight
        self.rho = rho
        self.scale = scale

    def begin(self, task: TaskView, dim: int) -> None:
        pass

    def loss(
        self,
        z: Tensor,
        batch: Batch,
        *,
        z_old: Tensor | None = None,
        z_view: Tensor | None = None,
        z_kept: Tensor | None = None,
        progress: Progress,
    ) -> dict[str, Tensor]:
        first, second, belong, groups = random_pairs(batch.labels)
        scores = self.scale * unit(z[first]) @ unit(z[second]).T
        each = F.cross_entropy(scores, torch.arange(len(first), device=z.device), reduction="none")
        terms = {"pairs": each.where(belong, 0.0).sum() / belong.sum().clamp(min=1)}
        if z_old is not None and self.weight:
            terms["compatibility"] = self.weight * compatibility_contrast(z, z_old, groups, rho=self.rho)
        return terms


def random_pairs(labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of the first and the second item of each pair, whether they belong together, and a number for each pair.

    labels: N; each item is in at most one pair, except that of an odd number one is left out. No value is copied back
    to the host, so that a CUDA graph can be captured.
    """
    order = torch.argsort(labels.double() + torch.rand(len(labels), device=labels.device, dtype=torch.double))
    pairs = len(labels) // 2
    first, second = order[0 : 2 * pairs : 2], order[1 : 2 * pairs : 2]
    belong = labels[first] == labels[second]
    numbers = torch.arange(pairs, device=labels.device)
    groups = torch.full_like(labels, 2 * pairs)
    groups[first] = numbers
    groups[second] = torch.where(belong, numbers, pairs + numbers)
    return first, second, belong, groups


def main() -> None:
    parser = argparse.ArgumentParser(description="Compatibility of models that are trained with pairs only.")
    parser.add_argument("--out", required=True, help="folder of the runs")
    parser.add_argument("--data", help="where the data sets are")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--weights", default="0,1")
    parser.add_argument("--rho", type=float, default=5.0)
    parser.add_argument("--epochs", type=int, default=70)
    parser.add_argument("--network", default="resnet32")
    parser.add_argument("--per-class", type=int, help="training images of each class; default: all")
    parser.add_argument("--queries", type=int, help="queries, and gallery items, of each class; default: all")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="bf16 is faster on a GPU")
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time; on a GPU only 1")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    runs = [
        (weight, seed, PlannedRun(f"weight-{weight:g}-seed-{seed}", check_recipe(tables(options, weight, seed)), ""))
        for weight in map(float, options.weights.split(","))
        for seed in range(options.seeds)
    ]
    found = run_all(
        [run for _, _, run in runs],
        Path(options.out),
        SweepOptions(resolve_device(options.device), options.parallel),
        shared=SharedData(Path(options.data) if options.data else None),
        watch=print_end_of_task,
    )
    rows = [{"weight": weight, "seed": seed, **scores(found[run.name])} for weight, seed, run in runs]
    for row in rows:
        print("weight {weight:g}  seed {seed}  AC {AC:.3f}  AA {AA:.3f}  ACA {ACA:.3f}".format(**row))
    for weight in dict.fromkeys(row["weight"] for row in rows):
        own = [row for row in rows if row["weight"] == weight]
        means = "  ".join(f"{name} {mean(row[name] for row in own):.3f}" for name in ("AC", "AA", "ACA"))
        print(f"weight {weight:g}  mean of {len(own)}  {means}")
    if options.json:
        record = {
            "bench": "label_free",
            "environment": describe(str(resolve_device(options.device))),
            "options": {key: value for key, value in vars(options).items() if key not in ("out", "data", "json")},
            "rows": rows,
        }
        write_json(Path(options.json), record)


def print_end_of_task(name: str, event: Event) -> None:
    if isinstance(event, TaskEnded):
        print(f"{name}: task {event.task} is done", flush=True)


def scores(outcome: dict[str, Any] | HoldfastError) -> dict[str, float]:
    if isinstance(outcome, HoldfastError):
        raise outcome
    found = outcome["protocols"]["instance"]
    return {name: found[name] for name in ("AC", "AA", "ACA")}


def tables(options: argparse.Namespace, weight: float, seed: int) -> dict[str, Any]:
    """The recipe of ER at 7 tasks with another method."""
    recipe = read_recipe("cifar100-10/er")
    data = {name: dict(table) for name, table in recipe["data"].items()}
    data["train"]["per_class"] = options.per_class
    for split in ("query", "gallery"):
        data[split]["per_class"] = options.queries
    return {
        **recipe,
        "title": "Pairs only",
        "seed": seed,
        "data": data,
        "backbone": {"name": options.network},
        "method": {"name": "label_free:PairLoss", "weight": weight, "rho": options.rho},
        "train": {**recipe["train"], "epochs": options.epochs, "executor": "auto", "precision": options.precision},
    }


if __name__ == "__main__":
    main()

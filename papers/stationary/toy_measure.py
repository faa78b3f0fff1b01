"""What the record of a run of the toy has besides its scores: losses over the epochs, and features before and after."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.core.run_folder import RunFolder
from holdfast.train.encoders import Encoder
from holdfast.train.encoders.encode_loop import batch_size_for, compute_features, input_reader
from holdfast.train.events import read_events
from holdfast.train.experiments.assemble import SharedData, assemble
from holdfast.train.experiments.schema import Recipe
from holdfast.train.geometry import DSimplex, unit
from holdfast.train.losses import simplex_cross_entropy
from holdfast.train.scenarios import Scenario

IMAGES = 2_000
"""New and old training images that are looked at, at most so many of each."""

UPDATE = 2
"""Number of the task that fine-tunes."""


def loss_curves(folder: RunFolder, lambda_: float) -> dict[str, list[float]]:
    """Per epoch of the second task: the loss, and its two terms divided by their weights."""
    events = [event for event in read_events(folder.log) if event["event"] == "epoch" and event["task"] == UPDATE]
    curves = {"loss": [event["loss"] for event in events]}
    for name, weight in (("ce", lambda_), ("nce", 1 - lambda_)):
        if weight > 0:
            curves[name] = [event["terms"][name] / weight for event in events]
    return curves


def toy_numbers(folder: RunFolder, recipe: Recipe, shared: SharedData, device: torch.device) -> dict[str, Any]:
    """Curves of the second task, and its new classes under the first model (before) and the second (after).

    length: mean length of the raw features.
    accuracy: share of images whose own vertex is the nearest of all K.
    own_vertex: mean cosine of a feature with the vertex of its class.
    ce: cross-entropy of the new classes' images; the curve also has the buffer's.
    old_feature: mean cosine of a feature with the first model's feature of the same image.
    old_classes: accuracy on images of the classes of the first task.
    """
    experiment = assemble(recipe, shared)
    train, scenario = experiment.data.train, experiment.scenario
    slots = experiment.make_method().num_slots
    if slots is None:
        raise ValueError(f"{recipe.method} has no simplex")
    simplex = DSimplex(slots)
    rows = {name: _rows(scenario, task) for name, task in (("new", UPDATE), ("old", 1))}
    vertices = {name: _vertices(scenario, train.labels[own]) for name, own in rows.items()}

    def features(task: int, name: str) -> Tensor:
        encoder = Encoder.from_pretrained(folder.model(task)).to(device)
        if encoder.preprocess is None:
            raise ValueError(f"{folder.model(task)} has no preprocess")
        images = train.images[rows[name]]
        read = input_reader(encoder.preprocess, images, device)
        size = batch_size_for(device, images.shape[1:3])
        return compute_features(encoder, len(images), read, device=device, batch_size=size).cpu()

    before = features(1, "new")

    def described(task: int) -> dict[str, float]:
        z = before if task == 1 else features(task, "new")
        found = {
            "ce": simplex_cross_entropy(z, vertices["new"], simplex, length=recipe["method"]["length"]),
            "length": z.norm(dim=1).mean(),
            "accuracy": _accuracy(z, vertices["new"], simplex),
            "own_vertex": (unit(z) * simplex.prototypes(vertices["new"])).sum(1).mean(),
            "old_feature": (unit(z) * unit(before)).sum(1).mean(),
            "old_classes": _accuracy(features(task, "old"), vertices["old"], simplex),
        }
        return {name: round(float(value), 5) for name, value in found.items()}

    curves = loss_curves(folder, float(recipe["method"]["lambda"]))
    return {
        "slots": slots,
        "images": len(rows["new"]),
        "curves": {name: [round(value, 5) for value in values] for name, values in curves.items()},
        "before": described(1),
        "after": described(UPDATE),
    }


def _rows(scenario: Scenario, task: int) -> np.ndarray:
    """Rows of the task's new training images, evenly spaced in their order, at most ``IMAGES``."""
    own = np.sort(scenario.tasks[task - 1].new_indices)
    return own[np.linspace(0, len(own) - 1, min(IMAGES, len(own))).round().astype(int)]


def _vertices(scenario: Scenario, labels: np.ndarray) -> Tensor:
    last = scenario.tasks[-1]
    vertex = dict(zip(last.seen_classes, last.slots, strict=True))
    return torch.tensor([vertex[int(label)] for label in labels])


def _accuracy(z: Tensor, vertices: Tensor, simplex: DSimplex) -> Tensor:
    return (simplex.logits(z).argmax(1) == vertices).double().mean()

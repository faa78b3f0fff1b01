"""The scores of a run's models read in other ways: from the backbone, and with rotated queries.

A run's own record has the scores of the feature that its recipe names, without any map. A reading is the same
evaluation of the same models with another readout (``Encoder.readout``), with a rotation of the queries, or with both.
The rotation is used in every cell t > k and never chosen cell by cell, so the AC of a rotated reading is AC-R.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from holdfast.bridges.maps import Rotation
from holdfast.data import ImageSet
from holdfast.encoders import Encoder, FeatureStore, ModelFeatures, Readout, extract, read_space_maps
from holdfast.evaluation import evaluate_run
from holdfast.experiments.assemble import SharedData
from holdfast.experiments.schema import Recipe, dataset_section
from holdfast.geometry import unit
from holdfast.run_folder import RunFolder

PAIRS = 1000
PLAIN, GALLERY_PAIRS, OTHER_PAIRS = "plain", "rotation_gallery", "rotation_other"
"""Maps of a reading: none; a rotation fitted on gallery images (protocol A); on images of other classes (B)."""

OTHER_IMAGES = {"name": "tinyimagenet32_validation", "split": "train", "part": "gallery"}
"""The images of protocol B: classes of TinyImageNet that no model was trained on, for models of CIFAR100."""


def readings(folder: RunFolder, recipe: Recipe, shared: SharedData, device: torch.device) -> dict[str, Any]:
    """Scores of a finished run by readout and map: ``found[readout][map][protocol]`` as ``evaluate_run`` returns them.

    The features of the run must still be in its folder. A run without a projection has the readout "simplex" only,
    which is its one feature. If a method learns maps of galleries, "plain" uses them and the rotations replace them.
    """
    numbers = _model_numbers(folder)
    learned = read_space_maps(folder, len(numbers))
    encoders = [Encoder.from_pretrained(folder.model(number)) for number in numbers]
    store = FeatureStore(folder.features)
    data = shared.open_set(recipe)
    readouts: list[Readout] = ["simplex"] if encoders[0].projection is None else ["simplex", "backbone"]
    found: dict[str, Any] = {}
    for readout in readouts:
        if readout == recipe["evaluation"]["readout"] and not recipe["evaluation"]["compact"]:
            models = store.read_all()
        else:
            models = [
                ModelFeatures(*(_extracted(one, readout, images, device) for images in (data.query, data.gallery)))
                for one in encoders
            ]
        pairs = {GALLERY_PAIRS: [model.gallery[_sample(len(model.gallery))] for model in models]}
        other = _other_images(recipe, shared)
        if other is not None:
            pairs[OTHER_PAIRS] = [_extracted(one, readout, other, device) for one in encoders]
        maps = {name: rotations(features, device) for name, features in pairs.items()}
        own = evaluate_run(models, *store.labels(), maps=learned, device=device)
        rotated = {
            name: evaluate_run(models, *store.labels(), query_maps=given, device=device) for name, given in maps.items()
        }
        found[readout] = {name: _rounded(scores) for name, scores in ({PLAIN: own} | rotated).items()}
    return found


def _model_numbers(folder: RunFolder) -> list[int]:
    """Numbers of the models in a run folder, oldest first."""
    return list(itertools.takewhile(lambda number: folder.model(number).is_dir(), itertools.count(1)))


def rotations(pairs: Sequence[np.ndarray], device: torch.device) -> dict[tuple[int, int], Rotation]:
    """A rotation from each model's space to each earlier one's.

    pairs: features of the same images by each model, N x d_t, oldest first.
    """
    vectors = [unit(torch.tensor(features).float()) for features in pairs]

    def rotation(t: int, k: int) -> Rotation:
        fitted = Rotation.fit(vectors[t], vectors[k])
        return Rotation.from_tensors({name: tensor.to(device) for name, tensor in fitted.tensors().items()})

    return {(t, k): rotation(t, k) for t in range(len(vectors)) for k in range(t)}


def _extracted(encoder: Encoder, readout: Readout, images: ImageSet, device: torch.device) -> np.ndarray:
    encoder.readout = readout
    return extract(encoder, images, device=device)


def _sample(count: int) -> np.ndarray:
    return np.sort(np.random.default_rng(0).choice(count, min(count, PAIRS), replace=False))


def _other_images(recipe: Recipe, shared: SharedData) -> ImageSet | None:
    names = {split: recipe["data"][split]["name"] for split in ("train", "query")}
    if names["train"] != "cifar100" or names["query"] == OTHER_IMAGES["name"]:
        return None
    images = shared.one_set(dataset_section(OTHER_IMAGES, "data"))
    rows = _sample(len(images))
    return replace(images, images=images.images[rows], labels=images.labels[rows], names=None)


def _rounded(results: Any) -> Any:
    """Scores with five decimals, which is exact for 50,000 queries; NaN as None."""
    if isinstance(results, dict):
        return {name: _rounded(value) for name, value in results.items()}
    if isinstance(results, list):
        return [_rounded(value) for value in results]
    if isinstance(results, float):
        return None if np.isnan(results) else round(results, 5)
    return results

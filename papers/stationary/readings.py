"""The scores of a run's models read in other ways: from the backbone, and with rotated queries.

A run's own record has the scores of the feature that its recipe names, without any map. A reading is the same
evaluation of the same models with another readout (``Encoder.readout``), with a rotation of the queries, or with both.
The rotation is used in every cell t > k and never chosen cell by cell, so the AC of a rotated reading is AC-R.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.bridges.maps import Rotation
from holdfast.core.run_folder import RunFolder
from holdfast.train.data import ImageSet
from holdfast.train.encoders import Encoder, FeatureStore, ModelFeatures, Readout, extract, read_space_maps
from holdfast.train.evaluation import evaluate_run
from holdfast.train.evaluation.matrix import FeatureMap
from holdfast.train.experiments.assemble import SharedData
from holdfast.train.experiments.schema import Recipe, dataset_section
from holdfast.vectors.lengths import unit

PAIRS = 1000
PLAIN, GALLERY_PAIRS, OTHER_PAIRS = "plain", "rotation_gallery", "rotation_other"
"""Maps of a reading: none; a rotation fitted on gallery images (protocol A); on images of other classes (B)."""

OTHER_IMAGES = {"name": "tinyimagenet32_validation", "split": "train", "part": "gallery"}
"""The images of protocol B: classes of TinyImageNet that no model was trained on, for models of CIFAR100."""


class RunModels:
    """The models of a finished run, and their features of the images it is tested on.

    The features of the run must still be in its folder.
    """

    def __init__(self, folder: RunFolder, recipe: Recipe, shared: SharedData, device: torch.device) -> None:
        numbers = _model_numbers(folder)
        self.learned = read_space_maps(folder, len(numbers))
        self._encoders = [Encoder.from_pretrained(folder.model(number)) for number in numbers]
        self._store = FeatureStore(folder.features)
        self._recipe, self._shared, self._device = recipe, shared, device

    @property
    def readouts(self) -> list[Readout]:
        """A run without a projection has the readout "simplex" only, which is its one feature."""
        return ["simplex"] if self._encoders[0].projection is None else ["simplex", "backbone"]

    @property
    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        """Classes of the queries and of the gallery."""
        return self._store.labels()

    def features(self, readout: Readout) -> list[ModelFeatures]:
        evaluation = self._recipe["evaluation"]
        if readout == evaluation["readout"] and not evaluation["compact"]:
            return self._store.read_all()
        data = self._shared.open_set(self._recipe)
        query, gallery = (self.vectors(readout, images) for images in (data.query, data.gallery))
        return [ModelFeatures(*pair) for pair in zip(query, gallery, strict=True)]

    def vectors(self, readout: Readout, images: ImageSet) -> list[np.ndarray]:
        """Features of other images by each model, oldest first."""
        for encoder in self._encoders:
            encoder.readout = readout
        return [extract(encoder, images, device=self._device) for encoder in self._encoders]


def readings(folder: RunFolder, recipe: Recipe, shared: SharedData, device: torch.device) -> dict[str, Any]:
    """Scores of a finished run by readout and map: ``found[readout][map][protocol]`` as ``evaluate_run`` returns them.

    If a method learns maps of galleries, "plain" uses them and the rotations replace them.
    """
    run = RunModels(folder, recipe, shared, device)
    other = other_images(recipe, shared)
    found: dict[str, Any] = {}
    for readout in run.readouts:
        models = run.features(readout)
        pairs = {GALLERY_PAIRS: [model.gallery[sample(len(model.gallery))] for model in models]}
        if other is not None:
            pairs[OTHER_PAIRS] = run.vectors(readout, chosen_images(other, sample(len(other))))
        own = evaluate_run(models, *run.labels, maps=run.learned, device=device)
        rotated = {
            name: evaluate_run(models, *run.labels, query_maps=rotations(features, device), device=device)
            for name, features in pairs.items()
        }
        found[readout] = {name: rounded(scores) for name, scores in ({PLAIN: own} | rotated).items()}
    return found


def _model_numbers(folder: RunFolder) -> list[int]:
    """Numbers of the models in a run folder, oldest first."""
    return list(itertools.takewhile(lambda number: folder.model(number).is_dir(), itertools.count(1)))


Rotations = Mapping[tuple[int, int], Tensor]
"""By (t, k), k < t: the matrix R, d_t x d_k, that turns queries of model t into the space of model k."""


def rotation_matrices(pairs: Sequence[np.ndarray], device: torch.device) -> dict[tuple[int, int], Tensor]:
    """A rotation from each model's space to each earlier one's.

    pairs: features of the same images by each model, N x d_t, oldest first.
    """
    vectors = [unit(features) for features in pairs]
    cells = [(t, k) for t in range(len(vectors)) for k in range(t)]
    fitted = {(t, k): torch.from_numpy(Rotation.fit(vectors[t], vectors[k]).weight) for t, k in cells}
    # One copy to the device for all: beside training, hundreds of small ones would wait for each other.
    flat = torch.cat([matrix.flatten() for matrix in fitted.values()] or [torch.empty(0)]).to(device)
    parts = flat.split([matrix.numel() for matrix in fitted.values()])
    return {cell: part.view(fitted[cell].shape) for cell, part in zip(fitted, parts, strict=True)}


def rotations(pairs: Sequence[np.ndarray], device: torch.device) -> dict[tuple[int, int], FeatureMap]:
    """``rotation_matrices`` as maps of queries."""
    matrices = rotation_matrices(pairs, device)
    return {cell: functools.partial(_turned, matrix) for cell, matrix in matrices.items()}


def _turned(matrix: Tensor, queries: Tensor) -> Tensor:
    return queries @ matrix


def sample(count: int, *, size: int | None = None, seed: int = 0) -> np.ndarray:
    """Rows of ``size`` of ``count`` images, in ascending order; by default of ``PAIRS``."""
    return np.sort(np.random.default_rng(seed).choice(count, min(count, size or PAIRS), replace=False))


def chosen_images(images: ImageSet, rows: np.ndarray) -> ImageSet:
    return replace(images, images=images.images[rows], labels=images.labels[rows])


def other_images(recipe: Recipe, shared: SharedData) -> ImageSet | None:
    """The images of protocol B; None unless the models are of CIFAR100 and tested on other classes."""
    names = {split: recipe["data"][split]["name"] for split in ("train", "query")}
    if names["train"] != "cifar100" or names["query"] == OTHER_IMAGES["name"]:
        return None
    return shared.one_set(dataset_section(OTHER_IMAGES, "data"))


def rounded(results: Any, digits: int = 5) -> Any:
    """Numbers with so many decimals; five are exact for shares of 50,000 queries. NaN as None."""
    if isinstance(results, dict):
        return {name: rounded(value, digits) for name, value in results.items()}
    if isinstance(results, list):
        return [rounded(value, digits) for value in results]
    if isinstance(results, float):
        return None if np.isnan(results) else round(results, digits)
    return results

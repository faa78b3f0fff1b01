"""The scores of a run's models with rotated queries, in all the ways that page ``bridged`` shows.

Every method is read from its network's own feature: with a simplex that is the feature before the projection. The
rotation is used in every cell t > k and never chosen cell by cell, so the AC of rotated queries is AC-R.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.bridges.maps import Rotation
from holdfast.encoders import ModelFeatures
from holdfast.evaluation.matrix import FeatureMap, QueryMaps, compatibility_matrix, mapped
from holdfast.evaluation.protocols import gallery_of, top_k
from holdfast.experiments.assemble import SharedData
from holdfast.experiments.schema import Recipe, dataset_section
from holdfast.geometry import unit
from holdfast.metrics import compatibility_summary
from holdfast.run_folder import RunFolder
from papers.stationary.readings import (
    GALLERY_PAIRS,
    OTHER_PAIRS,
    PLAIN,
    RunModels,
    other_images,
    rotations,
    rounded,
    sample,
)

DRAWS = 5
PAIR_COUNTS = (100, 200, 500, 1000, 2000, 5000)
PROTOCOLS = ("template", "instance")
SECOND_TEST = {"name": "miniimagenet20", "classes": "outside_cifar", "size": 32}
"""A test of models of CIFAR100 on classes that no setting was chosen by."""


def bridge_scores(folder: RunFolder, recipe: Recipe, shared: SharedData, device: torch.device) -> dict[str, Any]:
    """Scores of a finished run, each AC, AA, ACA, and the means of its self-tests and cross-tests.

    plain: without a rotation, with the maps of galleries that the method learned, by protocol, with the matrix.
    rotation_gallery, rotation_other: with one fitted on 1,000 gallery images (protocol A) or on 1,000 images of other
        classes (B), in place of learned maps, by protocol, with the matrix. B is for models of CIFAR100 only.
    draws: the same by template for five draws of the pairs, by name.
    counts: A by template for other numbers of pairs, by number.
    without_pairs: plain and A on the gallery without the images of the pairs, by protocol.
    reembedded: as plain, but with the gallery images of the pairs embedded by the new model, by protocol.
    map_and_rotation: for learned maps, with a rotation to the mapped gallery, fitted as in A, by protocol.
    second_test: plain, A and B on ``SECOND_TEST``, by name and protocol. For models of CIFAR100 only.
    """
    run = RunModels(folder, recipe, shared, device)
    readout = run.readouts[-1]
    models = run.features(readout)
    test = _Test(models, run.labels, device)
    rows = sample(len(models[0].gallery))
    found: dict[str, Any] = {PLAIN: test.scores(maps=run.learned, with_matrix=True)}

    def gallery_rotations(size: int | None = None, seed: int = 0) -> QueryMaps:
        chosen = sample(len(models[0].gallery), size=size, seed=seed)
        return rotations([model.gallery[chosen] for model in models], device)

    found[GALLERY_PAIRS] = test.scores(query_maps=gallery_rotations(), with_matrix=True)
    found["draws"] = {GALLERY_PAIRS: [test.by_template(gallery_rotations(seed=seed)) for seed in range(DRAWS)]}
    counts = [count for count in PAIR_COUNTS if count <= len(models[0].gallery)]
    found["counts"] = {str(count): test.by_template(gallery_rotations(size=count)) for count in counts}
    found["without_pairs"] = test.without(rows).both(run.learned, gallery_rotations())
    found["reembedded"] = test.reembedded(run.learned, rows)
    if any(one is not None for one in run.learned):
        found["map_and_rotation"] = test.mapped_and_rotated(run.learned, rows)
    other = other_images(recipe, shared)
    if other is None:
        return dict(rounded(found))
    vectors = run.vectors(readout, other)

    def other_rotations(seed: int = 0) -> QueryMaps:
        chosen = sample(len(other), seed=seed)
        return rotations([one[chosen] for one in vectors], device)

    found[OTHER_PAIRS] = test.scores(query_maps=other_rotations(), with_matrix=True)
    found["draws"][OTHER_PAIRS] = [test.by_template(other_rotations(seed)) for seed in range(DRAWS)]
    query, gallery = (
        shared.one_set(dataset_section({**SECOND_TEST, "split": split}, "data")) for split in ("train", "val")
    )
    pairs = zip(run.vectors(readout, query), run.vectors(readout, gallery), strict=True)
    second = _Test([ModelFeatures(*pair) for pair in pairs], (query.labels, gallery.labels), device)
    chosen = sample(len(gallery))
    found["second_test"] = {
        **second.both(run.learned, rotations([model.gallery[chosen] for model in second.models], device)),
        OTHER_PAIRS: second.scores(query_maps=other_rotations()),
    }
    return dict(rounded(found))


Scores = dict[str, Any]


class _Test:
    """Models' features of one set of queries and one gallery."""

    def __init__(
        self, models: Sequence[ModelFeatures], labels: tuple[np.ndarray, np.ndarray], device: torch.device
    ) -> None:
        self.models, self._labels, self._device = models, labels, device

    def scores(
        self,
        *,
        maps: Sequence[FeatureMap | None] = (),
        query_maps: QueryMaps | None = None,
        with_matrix: bool = False,
    ) -> dict[str, Scores]:
        """By protocol."""
        found = {}
        for protocol in PROTOCOLS:
            matrix = compatibility_matrix(
                self.models, *self._labels, protocol=protocol, maps=maps, query_maps=query_maps, device=self._device
            )
            found[protocol] = _summary(matrix) | ({"matrix": matrix.tolist()} if with_matrix else {})
        return found

    def by_template(self, query_maps: QueryMaps) -> Scores:
        return _summary(compatibility_matrix(self.models, *self._labels, query_maps=query_maps, device=self._device))

    def both(self, maps: Sequence[FeatureMap | None], query_maps: QueryMaps) -> dict[str, dict[str, Scores]]:
        """With learned maps, and with a rotation fitted on gallery images in their place, by protocol."""
        return {PLAIN: self.scores(maps=maps), GALLERY_PAIRS: self.scores(query_maps=query_maps)}

    def without(self, rows: np.ndarray) -> "_Test":
        """The same test without these gallery images."""
        kept = np.setdiff1d(np.arange(len(self._labels[1])), rows)
        models = [ModelFeatures(model.query, model.gallery[kept]) for model in self.models]
        return _Test(models, (self._labels[0], self._labels[1][kept]), self._device)

    def reembedded(self, maps: Sequence[FeatureMap | None], rows: np.ndarray) -> dict[str, Scores]:
        """Plain queries on galleries in which the new model has embedded these images; the others are mapped."""

        def cell(t: int, k: int) -> tuple[Tensor, Tensor]:
            gallery = self._carried(maps, t, k).clone()
            gallery[rows] = self._unit(self.models[t].gallery[rows])
            return self._unit(self.models[t].query), gallery

        return self._cells(cell)

    def mapped_and_rotated(self, maps: Sequence[FeatureMap | None], rows: np.ndarray) -> dict[str, Scores]:
        """Galleries through the learned maps, queries through a rotation fitted on these images, mapped."""

        def cell(t: int, k: int) -> tuple[Tensor, Tensor]:
            gallery, query = self._carried(maps, t, k), self._unit(self.models[t].query)
            if k < t:
                fitted = Rotation.fit(self._unit(self.models[t].gallery[rows]).cpu(), gallery[rows].cpu())
                query = unit(fitted(query.cpu())).to(self._device)
            return query, gallery

        return self._cells(cell)

    def _carried(self, maps: Sequence[FeatureMap | None], t: int, k: int) -> Tensor:
        """The gallery of model k through the learned maps up to model t; as it is without maps."""
        gallery = self._unit(self.models[k].gallery)
        for step in maps[k + 1 : t + 1]:
            carried = gallery if step is None else mapped(gallery, step)
            if carried is None:
                raise AssertionError("a learned map takes features of another size")
            gallery = carried
        return gallery

    def _unit(self, features: np.ndarray) -> Tensor:
        return unit(torch.tensor(features, device=self._device).float())

    def _cells(self, cell: Callable[[int, int], tuple[Tensor, Tensor]]) -> dict[str, Scores]:
        """Scores by protocol of the matrix whose queries and galleries ``cell`` returns."""
        query_labels, gallery_labels = (torch.tensor(labels, device=self._device) for labels in self._labels)
        matrices = {protocol: np.full((len(self.models), len(self.models)), np.nan) for protocol in PROTOCOLS}
        for t in range(len(self.models)):
            for k in range(t + 1):
                query, gallery = cell(t, k)
                for protocol, matrix in matrices.items():
                    searched, classes = gallery_of(protocol, gallery, gallery_labels)
                    matrix[t, k] = top_k(query, query_labels, searched, classes)
        return {protocol: _summary(matrix) for protocol, matrix in matrices.items()}


def _summary(matrix: np.ndarray) -> Scores:
    """AC, AA and ACA, and the means of the self-tests and of the cross-tests."""
    found: Mapping[str, Any] = compatibility_summary(matrix)
    return {
        **{name: found[name] for name in ("AC", "AA", "ACA")},
        "self": float(np.diagonal(matrix).mean()),
        "cross": float(matrix[np.tril_indices(len(matrix), -1)].mean()),
    }

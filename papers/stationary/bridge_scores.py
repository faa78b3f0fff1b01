"""The scores of a run's models with rotated queries, in all the ways that page ``table2`` shows.

Every method is read from its network's own feature: with a simplex that is the feature before the projection. The
rotation is used in every cell t > k and never chosen cell by cell, so the AC of rotated queries is AC-R.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.bridges.maps import Rotation
from holdfast.core.run_folder import RunFolder
from holdfast.metrics import compatibility_summary
from holdfast.train.data import ImageSet
from holdfast.train.encoders import ModelFeatures, Readout
from holdfast.train.evaluation.matrix import FeatureMap, mapped
from holdfast.train.experiments.assemble import SharedData
from holdfast.train.experiments.schema import Recipe, dataset_section
from holdfast.train.geometry import unit
from papers.stationary.readings import (
    GALLERY_PAIRS,
    OTHER_PAIRS,
    PLAIN,
    Rotations,
    RunModels,
    chosen_images,
    other_images,
    rotation_matrices,
    rounded,
    sample,
)

DRAWS = 5
PAIR_COUNTS = (100, 200, 500, 1000, 2000, 5000)
TEMPLATE, INSTANCE = "template", "instance"
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
    images = len(models[0].gallery)
    galleries = [model.gallery for model in models]
    # One draw of each size, and further draws of the usual size. The first is protocol A.
    sizes = {GALLERY_PAIRS: sample(images)}
    sizes |= {f"{GALLERY_PAIRS} {draw}": sample(images, seed=draw) for draw in range(1, DRAWS)}
    sizes |= {f"count {size}": sample(images, size=size) for size in PAIR_COUNTS if size <= images}
    pairs = {name: [gallery[rows] for gallery in galleries] for name, rows in sizes.items()}
    other = other_images(recipe, shared)
    if other is not None:
        pairs |= _pairs_of_other_images(run, readout, other)
    by_name = {name: rotation_matrices(features, device) for name, features in pairs.items()}
    test = Searches(models, run.labels, sizes[GALLERY_PAIRS], learned=run.learned, device=device)
    found = test.scores(by_name, by_instance=(GALLERY_PAIRS, OTHER_PAIRS))
    scores = {
        **{name: _with_matrix(found[name]) for name in (PLAIN, GALLERY_PAIRS, OTHER_PAIRS) if name in found},
        "draws": {
            name: [_summary(found[f"{name} {draw}" if draw else name][TEMPLATE]) for draw in range(DRAWS)]
            for name in (GALLERY_PAIRS, OTHER_PAIRS)
            if name in found
        },
        "counts": {
            str(size): _summary(found[f"count {size}"][TEMPLATE]) for size in PAIR_COUNTS if f"count {size}" in found
        },
        "without_pairs": {name: _summaries(found[without_pairs(name)]) for name in (PLAIN, GALLERY_PAIRS)},
        **{name: _summaries(found[name]) for name in (REEMBEDDED, MAP_AND_ROTATION) if name in found},
    }
    if other is not None:
        scores["second_test"] = _second_test(run, readout, shared, by_name[OTHER_PAIRS], device)
    return dict(rounded(scores))


def _pairs_of_other_images(run: RunModels, readout: Readout, other: ImageSet) -> dict[str, list[np.ndarray]]:
    """Features of five draws of 1,000 images. Only the images that a draw has are embedded."""
    draws = [sample(len(other), seed=draw) for draw in range(DRAWS)]
    needed = np.unique(np.concatenate(draws))
    vectors = run.vectors(readout, chosen_images(other, needed))
    return {
        f"{OTHER_PAIRS} {draw}" if draw else OTHER_PAIRS: [one[np.searchsorted(needed, rows)] for one in vectors]
        for draw, rows in enumerate(draws)
    }


def _second_test(
    run: RunModels, readout: Readout, shared: SharedData, other_rotations: Rotations, device: torch.device
) -> dict[str, Any]:
    query, gallery = (
        shared.one_set(dataset_section({**SECOND_TEST, "split": split}, "data")) for split in ("train", "val")
    )
    vectors = zip(run.vectors(readout, query), run.vectors(readout, gallery), strict=True)
    models = [ModelFeatures(*pair) for pair in vectors]
    rows = sample(len(gallery))
    rotations = {
        GALLERY_PAIRS: rotation_matrices([model.gallery[rows] for model in models], device),
        OTHER_PAIRS: other_rotations,
    }
    test = Searches(models, (query.labels, gallery.labels), rows, learned=run.learned, device=device)
    found = test.scores(rotations, by_instance=tuple(rotations))
    return {name: _summaries(found[name]) for name in (PLAIN, *rotations)}


REEMBEDDED, MAP_AND_ROTATION = "reembedded", "map_and_rotation"


def without_pairs(name: str) -> str:
    return f"{name} without pairs"


Matrices = dict[str, dict[str, np.ndarray]]
"""Compatibility matrices by way of search and protocol."""


class Searches:
    """Searches of every model's queries on every older model's gallery, in many ways at once.

    The scores are those of ``compatibility_matrix`` up to rounding. One search for each way and cell would take longer
    than training the models. Here the class means of all ways and of all galleries are searched with one product for
    each query model, and single images once for the ways that share them. A rotation R is applied to the gallery
    instead of the queries: q R times g is q times R g.
    """

    def __init__(
        self,
        models: Sequence[ModelFeatures],
        labels: tuple[np.ndarray, np.ndarray],
        pairs: np.ndarray,
        *,
        learned: Sequence[FeatureMap | None] = (),
        device: torch.device,
    ) -> None:
        """labels: classes of the queries and of the gallery.

        pairs: rows of the gallery images that a rotation is fitted on.
        learned: for each model the map of older galleries into its space, or None; empty for none.
        """
        classes = np.unique(np.concatenate(labels))
        query_classes, gallery_classes = (np.searchsorted(classes, one) for one in labels)
        is_pair = np.isin(np.arange(len(gallery_classes)), pairs)
        order = np.lexsort((gallery_classes, is_pair))  # first those that are not pairs, each part by class
        in_order = torch.tensor(gallery_classes[order], device=device)
        self._kept = int((~is_pair).sum())
        self._parts = [_segments(part, len(classes)) for part in np.split(gallery_classes[order], [self._kept])]
        self._members = (in_order == torch.arange(len(classes), device=device)[:, None]).float()  # classes x images
        self._right = torch.tensor(query_classes, device=device)
        self._learned = learned or [None] * len(models)

        def on_device(features: np.ndarray) -> Tensor:
            return unit(torch.tensor(np.asarray(features), device=device).float())

        self._queries = [on_device(model.query) for model in models]
        self._galleries = [on_device(model.gallery)[torch.tensor(order, device=device)] for model in models]

    @torch.no_grad()
    def scores(self, rotations: Mapping[str, Rotations], *, by_instance: Sequence[str]) -> Matrices:
        """The matrices of: plain, each of ``rotations``, plain and A without the pairs, re-embedded pairs, and, for
        learned maps, a map and a rotation.

        by_instance: names of rotations that also search single images; the others search class means only.
        """
        size = len(self._queries)
        shares: dict[tuple[str, str], list[list[Tensor]]] = {}
        carried: list[Tensor] = []
        for t, learned in enumerate(self._learned):
            if learned is not None:
                carried = [_mapped(gallery, learned) for gallery in carried]
            carried.append(self._galleries[t])
            on_mapped = [self._rotation_to_mapped(t, k, carried[k]) for k in range(t + 1)]
            means = [self._class_means(t, k, carried[k], rotations, on_mapped[k]) for k in range(t + 1)]
            for name in means[0]:
                shares.setdefault((name, TEMPLATE), []).append(self._shares_of_means(t, [one[name] for one in means]))
            for k in range(t + 1):
                for name, best in self._best_of_images(t, k, carried[k], rotations, on_mapped[k], by_instance):
                    rows = shares.setdefault((name, INSTANCE), [[] for _ in self._queries])
                    rows[t].append(self._share(best))
        found: Matrices = {}
        for (name, protocol), rows in shares.items():
            matrix = np.full((size, size), np.nan)
            for t, row in enumerate(rows):
                matrix[t, : t + 1] = torch.stack(row).cpu().numpy()
            found.setdefault(name, {})[protocol] = matrix
        return found

    def _turned(self, vectors: Tensor, rotations: Rotations, t: int, k: int) -> Tensor:
        """Vectors of model k's space in that of model t's queries."""
        return vectors if k == t else vectors @ rotations[t, k].T

    def _with_pairs_again(self, t: int, gallery: Tensor) -> Tensor:
        return torch.cat([gallery[: self._kept], self._galleries[t][self._kept :]])

    def _rotation_to_mapped(self, t: int, k: int, carried: Tensor) -> Rotations | None:
        """The rotation to gallery k as learned maps have carried it to model t; None if the method learns none."""
        if all(one is None for one in self._learned):
            return None
        new, old = (vectors[self._kept :].cpu().numpy() for vectors in (self._galleries[t], carried))
        return {(t, k): torch.from_numpy(Rotation.fit(new, old).weight).to(carried.device)} if k < t else {}

    def _class_means(
        self, t: int, k: int, carried: Tensor, rotations: Mapping[str, Rotations], on_mapped: Rotations | None
    ) -> dict[str, Tensor]:
        """By way of search: the class means of gallery k in the space of model t's queries, C x d."""
        stored = self._galleries[k]
        means, kept = self._means(stored), self._means(stored[: self._kept])
        found = {PLAIN: self._means(carried), without_pairs(PLAIN): self._means(carried[: self._kept])}
        found |= {name: self._turned(means, one, t, k) for name, one in rotations.items()}
        found[without_pairs(GALLERY_PAIRS)] = self._turned(kept, rotations[GALLERY_PAIRS], t, k)
        found[REEMBEDDED] = self._means(self._with_pairs_again(t, carried))
        if on_mapped is not None:
            found[MAP_AND_ROTATION] = self._turned(found[PLAIN], on_mapped, t, k)
        return found

    def _means(self, vectors: Tensor) -> Tensor:
        """Unit means of the classes, of a gallery or of its part without pairs; zero for a class without images."""
        return unit(self._members[:, : len(vectors)] @ vectors)

    def _shares_of_means(self, t: int, means: Sequence[Tensor]) -> list[Tensor]:
        """For each gallery the share of model t's queries whose nearest class mean is of their class."""
        classes = len(means[0])
        cosines = (torch.cat(list(means)) @ self._queries[t].T).view(len(means), classes, -1)
        empty = torch.stack(list(means)).eq(0).all(2)
        cosines.masked_fill_(empty[:, :, None], -torch.inf)
        return list((cosines.argmax(1) == self._right).double().mean(1))

    def _best_of_images(
        self,
        t: int,
        k: int,
        carried: Tensor,
        rotations: Mapping[str, Rotations],
        on_mapped: Rotations | None,
        by_instance: Sequence[str],
    ) -> Iterator[tuple[str, Tensor]]:
        """By way of search: the highest cosine of each query with an image of each class, C x Q."""
        kept, pairs = self._best(t, carried)
        yield PLAIN, torch.maximum(kept, pairs)
        yield without_pairs(PLAIN), kept
        yield REEMBEDDED, torch.maximum(kept, self._best_in(t, self._galleries[t][self._kept :], self._parts[1]))
        for name in by_instance:
            if name in rotations:
                turned = self._turned(self._galleries[k], rotations[name], t, k)
                kept, pairs = self._best(t, turned)
                yield name, torch.maximum(kept, pairs)
                if name == GALLERY_PAIRS:
                    yield without_pairs(name), kept
        if on_mapped is not None:
            yield MAP_AND_ROTATION, torch.maximum(*self._best(t, self._turned(carried, on_mapped, t, k)))

    def _best(self, t: int, gallery: Tensor) -> tuple[Tensor, Tensor]:
        """For the images that are not pairs, and for the pairs."""
        kept, pairs = gallery[: self._kept], gallery[self._kept :]
        return self._best_in(t, kept, self._parts[0]), self._best_in(t, pairs, self._parts[1])

    def _best_in(self, t: int, images: Tensor, segments: Sequence[slice]) -> Tensor:
        queries = self._queries[t]
        best = queries.new_full((len(segments), len(queries)), -torch.inf)
        at_once = max(1, COSINES_AT_ONCE // max(1, len(images)))
        for start in range(0, len(queries), at_once):
            cosines = images @ queries[start : start + at_once].T
            for number, rows in enumerate(segments):
                if rows.stop > rows.start:
                    torch.amax(cosines[rows], 0, out=best[number, start : start + at_once])
        return best

    def _share(self, best: Tensor) -> Tensor:
        return (best.argmax(0) == self._right).double().mean()


COSINES_AT_ONCE = 1 << 29
"""2 GB of float32."""


def _segments(classes: np.ndarray, count: int) -> list[slice]:
    """The rows of each class, in sorted classes 0 to ``count`` - 1."""
    starts = np.searchsorted(classes, np.arange(count + 1))
    return [slice(int(start), int(stop)) for start, stop in itertools.pairwise(starts)]


def _mapped(gallery: Tensor, learned: FeatureMap) -> Tensor:
    found = mapped(gallery, learned)
    if found is None:
        raise AssertionError("a learned map takes features of another size")
    return found


Scores = dict[str, Any]


def _summaries(matrices: Mapping[str, np.ndarray]) -> dict[str, Scores]:
    return {protocol: _summary(matrix) for protocol, matrix in matrices.items()}


def _with_matrix(matrices: Mapping[str, np.ndarray]) -> dict[str, Scores]:
    return {protocol: {**_summary(matrix), "matrix": matrix.tolist()} for protocol, matrix in matrices.items()}


def _summary(matrix: np.ndarray) -> Scores:
    """AC, AA and ACA, and the means of the self-tests and of the cross-tests."""
    found: Mapping[str, Any] = compatibility_summary(matrix)
    return {
        **{name: found[name] for name in ("AC", "AA", "ACA")},
        "self": float(np.diagonal(matrix).mean()),
        "cross": float(matrix[np.tril_indices(len(matrix), -1)].mean()),
    }

"""The compatibility matrix: every model's queries on every earlier model's gallery."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike

from holdfast.errors import HoldfastError
from holdfast.evaluation.protocols import gallery_of, on_device, score_of
from holdfast.features import ModelFeatures


def compatibility_matrix(
    models: Sequence[ModelFeatures | tuple[ArrayLike, ArrayLike]],
    query_labels: ArrayLike,
    gallery_labels: ArrayLike,
    *,
    protocol: str = "template",
    score: str = "top1",
    device: torch.device | str = "cpu",
    progress: Callable[[int], None] = lambda cells: None,
) -> np.ndarray:
    """C[t, k], T x T: the score of model t's queries on model k's gallery for k <= t, in [0, 1].

    models: per model a pair (query features Q x d, gallery features G x d), unit rows, oldest first; every model over
    the same images, whose classes are ``query_labels`` (Q) and ``gallery_labels`` (G).
    NaN above the diagonal, and where two models' features have different sizes and so cannot be compared.
    protocol: "template" averages the gallery per class, as the paper does; "instance" searches every image.
    """
    query_y = on_device(np.asarray(query_labels), device)
    gallery_y = on_device(np.asarray(gallery_labels), device)
    judge = score_of(score)
    # The galleries stay on the device (small as templates); the queries, the larger part, pass through once.
    galleries = [
        gallery_of(protocol, on_device(_checked(gallery, len(gallery_y), f"gallery of model {t}"), device), gallery_y)
        for t, (_, gallery) in enumerate(models, 1)
    ]
    matrix = np.full((len(models), len(models)), np.nan)
    for t, (features, _) in enumerate(models):
        query = on_device(_checked(features, len(query_y), f"queries of model {t + 1}"), device)
        for k, (gallery, labels) in enumerate(galleries[: t + 1]):
            if gallery.shape[1] == query.shape[1]:
                matrix[t, k] = judge(query, query_y, gallery, labels)
            progress(1)
    return matrix


def _checked(features: ArrayLike, rows: int, what: str) -> np.ndarray:
    array = np.asarray(features)
    if array.ndim != 2 or len(array) != rows:
        raise HoldfastError(f"{what}: features of shape {array.shape}, but {rows} labels")
    return array

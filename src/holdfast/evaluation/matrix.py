"""The compatibility matrix: every model's queries on every earlier model's gallery.

A compatibility matrix as an array that shows itself in a notebook.

From features to the numbers of a run: matrices under each protocol and what follows from them.
"""

import html
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from holdfast.encoders import ModelFeatures, carried_query
from holdfast.errors import HoldfastError
from holdfast.evaluation.protocols import gallery_of, on_device, score_of
from holdfast.geometry import unit
from holdfast.metrics import compatibility_summary, compatible_pairs
from holdfast.space_map import SpaceMap, carry


def compatibility_matrix(
    models: Sequence[ModelFeatures | tuple[ArrayLike, ArrayLike]],
    query_labels: ArrayLike,
    gallery_labels: ArrayLike,
    *,
    protocol: str = "template",
    score: str = "top1",
    maps: Sequence[SpaceMap | None] = (),
    device: torch.device | str = "cpu",
    progress: Callable[[int], None] = lambda cells: None,
) -> np.ndarray:
    """C[t, k], T x T: the score of model t's queries on model k's gallery for k <= t, in [0, 1].

    models: per model a pair (query features Q x d, gallery features G x d), oldest first; every model over the same
    images, whose classes are ``query_labels`` (Q) and ``gallery_labels`` (G). Rows are scaled to length 1, because
    cosines are compared; NaN and infinite features are refused. Compact features bring their basis, and give the same
    scores as full ones.
    NaN above the diagonal, and where two models' features have different sizes and so cannot be compared.
    maps: for methods that learn one, per model the map from the previous model's features to its own (None: both live
    in one space). Model k's gallery is then carried image by image through the maps of models k+1 .. t before it is
    averaged or searched.
    protocol: "template" averages the gallery per class, as the paper does; "instance" searches every image.
    """
    judge = score_of(score)
    matrix = np.full((len(models), len(models)), np.nan)
    cells = matrix_cells(models, query_labels, gallery_labels, protocol=protocol, maps=maps, device=device)
    for cell in cells:
        if cell.gallery is not None:
            matrix[cell.t, cell.k] = judge(cell.query, cell.query_labels, cell.gallery, cell.gallery_labels)
        progress(1)
    return matrix.view(ShownMatrix)


class Cell(NamedTuple):
    """What one cell of the matrix compares: unit features and labels. No gallery where the two have unequal sizes."""

    t: int
    k: int
    query: Tensor
    query_labels: Tensor
    gallery: Tensor | None
    gallery_labels: Tensor


def matrix_cells(
    models: Sequence[ModelFeatures | tuple[ArrayLike, ArrayLike]],
    query_labels: ArrayLike,
    gallery_labels: ArrayLike,
    *,
    protocol: str,
    maps: Sequence[SpaceMap | None] = (),
    device: torch.device | str = "cpu",
) -> Iterator[Cell]:
    """The cells of the lower triangle row by row, each model made ready once; see ``compatibility_matrix``."""
    query_y = on_device(np.asarray(query_labels), device)
    gallery_y = on_device(np.asarray(gallery_labels), device)
    if maps and len(maps) != len(models):
        raise HoldfastError(f"{len(maps)} maps for {len(models)} models; give one (or None) for each model")
    # Galleries stay on the device, in the space of the model at hand; queries, the larger part, pass through once.
    galleries: list[Tensor | None] = []  # None where a chain of maps is broken
    searchable: list[tuple[Tensor, Tensor] | None] = []
    bases: list[Tensor | None] = []
    sizes: list[int] = []
    for t, model in enumerate(models):
        features = ModelFeatures(*(np.asarray(part) for part in model if part is not None))
        query_features, gallery_features = features.query, features.gallery
        own = _unit_features(gallery_features, len(gallery_y), f"gallery of model {t + 1}", device)
        step = maps[t] if maps else None
        if step is not None:
            if any(basis is not None for basis in bases):
                raise HoldfastError("maps between models read full features, but these are compact")
            galleries = [_carried(gallery, step.to(device)) for gallery in galleries]
            searchable = [None if kept is None else gallery_of(protocol, kept, gallery_y) for kept in galleries]
        galleries.append(own)
        searchable.append(gallery_of(protocol, own, gallery_y))
        query = _unit_features(query_features, len(query_y), f"queries of model {t + 1}", device)
        bases.append(None if features.basis is None else on_device(features.basis, device))
        sizes.append(features.full_dim)
        for k, found in enumerate(searchable):
            if found is not None and (found[0].shape[1] if bases[k] is None else sizes[k]) == sizes[t]:
                yield Cell(t, k, carried_query(query, bases[t], bases[k]), query_y, *found)
            else:
                yield Cell(t, k, query, query_y, None, gallery_y)


@torch.no_grad()
def _carried(gallery: Tensor | None, step: SpaceMap) -> Tensor | None:
    """Carried one model on; None, now and for ever, for a gallery whose features do not fit the map."""
    if gallery is None or gallery.shape[1] != step.enter.in_features:
        return None
    return carry(gallery, [step])


def _unit_features(features: ArrayLike, rows: int, what: str, device: torch.device | str) -> Tensor:
    array = np.asarray(features)
    if array.ndim != 2 or len(array) != rows:
        raise HoldfastError(f"{what}: features of shape {array.shape}, but {rows} labels")
    tensor = on_device(array, device).float()
    bad = ~tensor.isfinite().all(1)
    if bool(bad.any()):
        raise HoldfastError(
            f"{what}: row {int(bad.nonzero()[0])} is not finite, {int(bad.sum())} of {rows} rows are not"
        )
    return unit(tensor)


FAILS = "background:#f3b4a6;color:#000"


class ShownMatrix(np.ndarray):
    """An ordinary array; square ones are shown as a table with AC, AA and ACA, anything cut out of one as text."""

    def _repr_html_(self) -> str:
        square = self.ndim == 2 and self.shape[0] == self.shape[1] > 0
        return matrix_html(self) if square else f"<pre>{html.escape(repr(self))}</pre>"


def matrix_html(matrix: ArrayLike) -> str:
    """C[t, k] in per cent, queries of model t in rows, galleries of model k in columns; red where t does not beat k.

    Below it AC, AA % and ACA %. NaN (or None, as in JSON) is a dash below the diagonal, and nothing above it.
    """
    C = np.asarray(matrix, dtype=float)
    kept = compatible_pairs(C)
    heads = "".join(f"<th>gallery {k}</th>" for k in range(1, len(C) + 1))
    rows = "".join(f"<tr><th>queries {t + 1}</th>{''.join(_cells(C, kept, t))}</tr>" for t in range(len(C)))
    found = compatibility_summary(C)
    scores = f"AC {_number(found['AC'], 1)}, AA {_number(found['AA'], 100)} %, ACA {_number(found['ACA'], 100)} %"
    return f"<table><tr><th>%</th>{heads}</tr>{rows}</table><p>{scores}</p>"


def _cells(C: np.ndarray, kept: np.ndarray, t: int) -> Sequence[str]:
    def cell(k: int) -> str:
        if k > t:
            return "<td></td>"
        style = f' style="{FAILS}"' if k < t and not kept[t, k] else ""
        return f"<td{style}>{_number(C[t, k], 100)}</td>"

    return [cell(k) for k in range(len(C))]


def _number(value: Any, factor: int) -> str:
    return "–" if math.isnan(value) else f"{factor * value:.2f}"


def judge_run(
    models: Sequence[ModelFeatures],
    query_labels: np.ndarray,
    gallery_labels: np.ndarray,
    *,
    protocols: Sequence[str] = ("template", "instance"),
    extra_scores: Sequence[str] = (),
    maps: Sequence[SpaceMap | None] = (),
    device: torch.device | str = "cpu",
    progress: Callable[[int], None] = lambda cells: None,
) -> dict[str, Any]:
    """Per protocol: AC, AA, ACA, AC_tau, AA_tau and the matrix of top-1; extra scores as matrices under "extras"."""
    judged: dict[str, Any] = {}
    for protocol in protocols:

        def matrix(score: str, protocol: str = protocol) -> np.ndarray:
            return compatibility_matrix(
                models,
                query_labels,
                gallery_labels,
                protocol=protocol,
                score=score,
                maps=maps,
                device=device,
                progress=progress,
            )

        top1 = matrix("top1")
        judged[protocol] = {**compatibility_summary(top1), "matrix": top1.tolist()}
        if extra_scores:
            judged[protocol]["extras"] = {score: matrix(score).tolist() for score in extra_scores}
    return judged

"""The compatibility matrix: the score of every model's queries on every earlier model's gallery."""

import functools
import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.checks.scores import gallery_of
from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import real_array
from holdfast.core.wording import decimal, per_cent
from holdfast.metrics import compatibility_summary, compatible_pairs
from holdfast.train.encoders import ModelFeatures, change_basis
from holdfast.train.evaluation.cell_scores import score_of
from holdfast.train.geometry import unit

FeatureMap = Callable[[Tensor], Tensor]
"""From features of one model (N x d) to features in another model's space (N x d'); need not be unit vectors."""

QueryMaps = Mapping[tuple[int, int], FeatureMap]
"""By (t, k), numbers from 0: from queries of model t to the space in which model k < t stored its gallery."""

FURTHER_EVALUATIONS: dict[str, Callable[..., Any]] = {}
"""What ``evaluation.protocols`` may name besides protocols; code outside the package adds to it.

Called with (models, query labels, gallery labels, maps=, device=). The result is an entry of the metrics.
"""


def compatibility_matrix(
    models: Sequence[ModelFeatures | tuple[ArrayLike, ArrayLike]],
    query_labels: ArrayLike,
    gallery_labels: ArrayLike,
    *,
    protocol: str = "template",
    score: str = "top1",
    maps: Sequence[FeatureMap | None] = (),
    query_maps: QueryMaps | None = None,
    device: torch.device | str = "cpu",
    progress: Callable[[int], None] = lambda cells: None,
) -> np.ndarray:
    """C[t, k], T x T: the score of model t's queries on model k's gallery for k <= t, in [0, 1].

    models: for each model a pair (query features Q x d, gallery features G x d), oldest first, all over the same
        images. Rows are scaled to length 1; NaN and infinite features are refused. Compact features (``ModelFeatures``
        with a basis) give the same scores as full ones.
    query_labels: the class of each query, Q.
    gallery_labels: the class of each gallery image, G.
    protocol: "template" averages the gallery per class; "instance" searches every image.
    score: a name that ``score_of`` reads.
    maps: for each model a function from the previous model's features to its own, or None if both share a space.
        Model k's gallery passes through the maps of models k+1 .. t, image by image, before it is averaged or searched.
    query_maps: a function for each cell (t, k), t > k, that has bridged queries, such as ``fit_run_bridges(...).maps``;
        galleries stay as they are. It gets and returns tensors on ``device``, and compact features as stored. Cells
        without one use queries as they are. Not together with ``maps``.
    device: where the scores are computed.
    progress: called with 1 after each cell.

    NaN above the diagonal, and for two models with features of different sizes.

    Differs from the paper: the text searches for the nearest gallery features and names no average. The default
    "template" is that of the authors' code.

    >>> import numpy as np
    >>> from holdfast import compatibility_matrix
    >>> queries, gallery = np.eye(3), np.eye(3)  # three classes, one image each
    >>> turned = np.roll(np.eye(3), 1, axis=1)  # a second model with other vectors for the same images
    >>> matrix = compatibility_matrix([(queries, gallery), (turned, turned)], [0, 1, 2], [0, 1, 2])
    >>> matrix.tolist()
    [[1.0, nan], [0.0, 1.0]]
    """
    score_cell = score_of(score)
    matrix = np.full((len(models), len(models)), np.nan)
    cells = matrix_cells(
        models, query_labels, gallery_labels, protocol=protocol, maps=maps, query_maps=query_maps, device=device
    )
    for cell in cells:
        if cell.gallery is not None:
            matrix[cell.t, cell.k] = score_cell(*cell[2:], device=device)
        progress(1)
    shown = matrix.view(NotebookMatrix)
    shown.of_models = True
    return shown


class Cell(NamedTuple):
    """Unit features and labels of one cell. gallery: None if the two models have features of different sizes."""

    t: int
    k: int
    query: np.ndarray
    query_labels: np.ndarray
    gallery: np.ndarray | None
    gallery_labels: np.ndarray


def matrix_cells(
    models: Sequence[ModelFeatures | tuple[ArrayLike, ArrayLike]],
    query_labels: ArrayLike,
    gallery_labels: ArrayLike,
    *,
    protocol: str,
    maps: Sequence[FeatureMap | None] = (),
    query_maps: QueryMaps | None = None,
    device: torch.device | str = "cpu",
) -> Iterator[Cell]:
    """The cells of the lower triangle row by row; see ``compatibility_matrix``. Each model is prepared once."""
    query_y, gallery_y = real_array(query_labels, "query labels"), real_array(gallery_labels, "gallery labels")

    def searched(gallery: Tensor) -> tuple[np.ndarray, np.ndarray]:
        return gallery_of(protocol, gallery.cpu().numpy(), gallery_y)

    refuse_wrong_maps(maps, query_maps, len(models))
    # Galleries stay on the device, in the space of the current model; queries are copied to it once.
    galleries: list[Tensor | None] = []  # None where a chain of maps is broken
    searchable: list[tuple[np.ndarray, np.ndarray] | None] = []
    bases: list[Tensor | None] = []
    sizes: list[int] = []
    for t, model in enumerate(models):
        features = ModelFeatures(*(real_array(part, f"model {t + 1}") for part in model if part is not None))
        query_features, gallery_features = features.query, features.gallery
        own = _unit_features(gallery_features, len(gallery_y), f"gallery of model {t + 1}", device)
        step = maps[t] if maps else None
        if step is not None:
            if any(basis is not None for basis in bases):
                raise HoldfastError("maps between models read full features, but these are compact")
            galleries = [None if gallery is None else mapped(gallery, step) for gallery in galleries]
            searchable = [None if gallery is None else searched(gallery) for gallery in galleries]
        galleries.append(own)
        searchable.append(searched(own))
        query = _unit_features(query_features, len(query_y), f"queries of model {t + 1}", device)
        bases.append(None if features.basis is None else on_device(features.basis, device))
        sizes.append(features.full_dim)
        for k, found in enumerate(searchable):
            if found is not None and query_maps is not None and (t, k) in query_maps:
                carried = carried_queries(query, query_maps[t, k], found[0].shape[1])
                yield Cell(t, k, carried.cpu().numpy(), query_y, *found)
            elif found is not None and (found[0].shape[1] if bases[k] is None else sizes[k]) == sizes[t]:
                yield Cell(t, k, change_basis(query, bases[t], bases[k]).cpu().numpy(), query_y, *found)
            else:
                yield Cell(t, k, query.cpu().numpy(), query_y, None, gallery_y)


def refuse_wrong_maps(maps: Sequence[FeatureMap | None], query_maps: QueryMaps | None, count: int) -> None:
    """Refuse maps that do not fit ``count`` models, and maps of galleries together with maps of queries."""
    if maps and len(maps) != count:
        raise HoldfastError(f"{len(maps)} maps for {count} models; give one (or None) for each model")
    if query_maps and any(one is not None for one in maps):
        raise HoldfastError("maps carry stored vectors and query_maps carry queries; give only one of them")
    wrong = [cell for cell in query_maps or () if not 0 <= cell[1] < cell[0] < count]
    if wrong:
        raise HoldfastError(f"query_maps has a map for {wrong[0]}; each key is (t, k) with 0 <= k < t < {count}")


@torch.no_grad()
def carried_queries(query: Tensor, query_map: FeatureMap, size: int) -> Tensor:
    """Unit queries in the space of an older model, which has ``size`` dimensions."""
    found = unit(query_map(query))
    if found.shape != (len(query), size):
        raise HoldfastError(
            f"a query map gives features of shape {tuple(found.shape)}, but the gallery has {size} columns"
        )
    return found


@torch.no_grad()
def mapped(features: Tensor, feature_map: FeatureMap) -> Tensor | None:
    """Unit features after ``feature_map``; None if it declares ``in_features`` of another size."""
    if getattr(feature_map, "in_features", features.shape[1]) != features.shape[1]:
        return None
    if isinstance(feature_map, nn.Module):
        feature_map = feature_map.to(features.device)
    return F.normalize(feature_map(features), dim=-1)


def on_device(array: object, device: torch.device | str) -> Tensor:
    """A copy of an array, which may be memory-mapped and read-only, as a tensor on ``device``."""
    return torch.tensor(array, device=device)


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


class NotebookMatrix(np.ndarray):
    """An array that a notebook shows as a table with AC, AA and ACA.

    What is computed from it, such as a row or a difference of two matrices, is shown as text: it has no AC.
    """

    of_models = False

    def _repr_html_(self) -> str:
        return matrix_html(self) if self.of_models and self.size else f"<pre>{html.escape(repr(self))}</pre>"


def matrix_html(matrix: ArrayLike) -> str:
    """C[t, k] in per cent as an HTML table, with AC, AA % and ACA % below it.

    Rows are query models, columns are galleries; a cell is red if t does not beat k. NaN (or None, as in JSON) is a
    dash below the diagonal and empty above it.
    """
    C = np.asarray(matrix, dtype=float)
    compatible = compatible_pairs(C)
    heads = "".join(f"<th>gallery {k}</th>" for k in range(1, len(C) + 1))
    rows = "".join(f"<tr><th>queries {t + 1}</th>{''.join(_cells(C, compatible, t))}</tr>" for t in range(len(C)))
    found = compatibility_summary(C)
    scores = f"AC {decimal(found['AC'])}, AA {per_cent(found['AA'])} %, ACA {per_cent(found['ACA'])} %"
    return f"<table><tr><th>%</th>{heads}</tr>{rows}</table><p>{scores}</p>"


def _cells(C: np.ndarray, compatible: np.ndarray, t: int) -> Sequence[str]:
    def cell(k: int) -> str:
        if k > t:
            return "<td></td>"
        style = f' style="{FAILS}"' if k < t and not compatible[t, k] else ""
        return f"<td{style}>{per_cent(C[t, k])}</td>"

    return [cell(k) for k in range(len(C))]


def evaluate_run(
    models: Sequence[ModelFeatures],
    query_labels: np.ndarray,
    gallery_labels: np.ndarray,
    *,
    protocols: Sequence[str] = ("template", "instance"),
    extra_scores: Sequence[str] = (),
    maps: Sequence[FeatureMap | None] = (),
    query_maps: QueryMaps | None = None,
    device: torch.device | str = "cpu",
) -> dict[str, Any]:
    """For each protocol AC, AA, ACA, AC_tau, AA_tau and the top-1 matrix; other scores as matrices in "extras".

    extra_scores: names that ``score_of`` reads. The other parameters are those of ``compatibility_matrix``.
    """
    results: dict[str, Any] = {}
    for protocol in protocols:
        matrix = functools.partial(
            compatibility_matrix,
            models,
            query_labels,
            gallery_labels,
            protocol=protocol,
            maps=maps,
            query_maps=query_maps,
            device=device,
        )
        top1 = matrix(score="top1")
        results[protocol] = {**compatibility_summary(top1), "matrix": top1.tolist()}
        if extra_scores:
            results[protocol]["extras"] = {score: matrix(score=score).tolist() for score in extra_scores}
    return results

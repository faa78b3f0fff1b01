"""A whole history of models: every one's queries on every earlier gallery, with intervals.

The features of a whole history of models, from a run folder or from files.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.encoders import FeatureStore, ModelFeatures, read_space_maps
from holdfast.errors import HoldfastError
from holdfast.evaluation.check import check_options
from holdfast.evaluation.estimates import Estimate
from holdfast.evaluation.feature_set import FeatureSet, some
from holdfast.evaluation.inputs import Source, opened
from holdfast.evaluation.judge import ClassTruth, class_codes
from holdfast.evaluation.matrix import Cell, matrix_cells
from holdfast.evaluation.protocols import average_precisions
from holdfast.evaluation.result import COMPATIBLE, INCOMPATIBLE, NOT_SHOWN, HistoryResult, judge_gain
from holdfast.evaluation.scores import Score, parse_score
from holdfast.evaluation.search import Condition, Progress, float32
from holdfast.geometry import nearest
from holdfast.metrics import (
    average_accuracy,
    average_compatibility,
    average_compatible_accuracy,
    gain_interval,
    mean_interval,
    percentile_interval,
    resampled_means,
)
from holdfast.metrics.resampling import RESAMPLES
from holdfast.run_folder import RunFolder, no_finished_run
from holdfast.scenarios.slot_compatibility import refuse_strangers_in
from holdfast.space_map import SpaceMap

Models = str | Path | Sequence[tuple[Source, Source]]
"""A run folder, or (queries, gallery) of each model, oldest first."""


def read_history(
    models: Models,
) -> tuple[list[str], list[ModelFeatures], np.ndarray, np.ndarray, Sequence[SpaceMap | None]]:
    """Names, features, query and gallery classes, and maps (empty for models that are no run).

    A run whose models' slots do not belong together is refused, where the models are still there.
    """
    if isinstance(models, str | Path):
        folder = RunFolder(models)
        if not folder.features.is_dir():
            if folder.metrics.exists():
                raise HoldfastError(f"{models}: a run without its stored features (no features/ in it)")
            raise no_finished_run(models)
        store = FeatureStore(folder.features)
        stored = store.read_all()
        refuse_strangers_in(folder, len(stored))
        names = [str(number) for number in range(1, len(stored) + 1)]
        maps = read_space_maps(folder, len(stored))
        return names, stored, *store.labels(), maps
    sets = [
        (opened(query, f"queries {t}", "query"), opened(gallery, f"gallery {t}", "gallery"))
        for t, (query, gallery) in enumerate(models, start=1)
    ]
    if not sets:
        raise HoldfastError("a history needs at least two models")
    query, gallery = sets[0]
    if query.labels is None:
        raise HoldfastError(f"{query.name}: has no labels, and a history cannot be judged without")
    codes, (gallery_codes,), _ = class_codes(query.labels, gallery)
    features = [ModelFeatures(_rows_like(query, later[0]), _rows_like(gallery, later[1])) for later in sets]
    return [str(t + 1) for t in range(len(sets))], features, codes, gallery_codes, []


def odd_vectors(features: Sequence[ModelFeatures]) -> list[str]:
    """Notes on zero vectors and on lengths; what is not finite is refused by the matrix, which names it."""
    notes = []
    for t, model in enumerate(features, start=1):
        for what, rows in (("queries", model.query), ("gallery", model.gallery)):
            condition = Condition(f"{what} of model {t}", len(rows))
            condition.look_at(np.arange(len(rows)), float32(np.array(rows), "cpu"))
            notes += replace(condition, not_finite=[]).notes("they are like nothing, and find the first item")
    return notes


def _rows_like(first: FeatureSet, later: FeatureSet) -> np.ndarray:
    """The features of ``later`` in the order of ``first``: by id where both have ids, else row by row."""
    if len(first) != len(later):
        raise HoldfastError(
            f"{later.name} has {len(later)} rows and {first.name} {len(first)}; they must be the same images"
        )
    rows = np.arange(len(later))
    if first.ids is not None and later.ids is not None:
        by_id = {str(name): i for i, name in enumerate(later.ids)}
        missing = [name for name in first.ids if str(name) not in by_id]
        if missing:
            raise HoldfastError(f"{later.name}: lacks {len(missing)} ids of {first.name}: {some(missing)}")
        rows = np.array([by_id[str(name)] for name in first.ids])
    if first.labels is not None and later.labels is not None and (first.labels != later.labels[rows]).any():
        raise HoldfastError(f"{later.name}: its labels are not those of {first.name}; are they the same images?")
    return later.rows.take(rows)


Cells = list[list[Estimate | None]]


def check_history(
    models: Models,
    *,
    score: str = "top1",
    protocol: str = "instance",
    confidence: float = 0.95,
    min_gain: float = 0.0,
    cluster_by_class: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Progress = lambda stage, done, total: None,
) -> HistoryResult:
    """Judge a run folder, or (queries, gallery) of each model, oldest first and all over the same images.

    The matrix equals the evaluation's; each cell below the diagonal gets the verdict that ``check`` would give it. AC,
    AA and ACA get intervals by drawing queries jointly for all cells. The verdict is the newest model's: compatible
    if it is so on every older gallery, incompatible if it is so on any. A run's learned maps are used.
    """
    chosen = parse_score(score)
    check_options(protocol, confidence, min_gain, resamples)
    if chosen.of_pairs:
        raise HoldfastError(f"a history is judged by a score of queries (top1, recall@K or mAP), not {score}")
    names, features, query_codes, gallery_codes, maps = read_history(models)
    total = len(features)
    if total < 2:
        raise HoldfastError("a history needs at least two models")
    truth = ClassTruth(query_codes, np.unique(gallery_codes) if protocol == "template" else gallery_codes)
    chosen.chance(truth.count_right(), truth.size())
    values = np.full((total, total, len(query_codes)), np.nan)
    cells = matrix_cells(features, query_codes, gallery_codes, protocol=protocol, maps=maps, device=device)
    for done, cell in enumerate(cells, start=1):
        if cell.gallery is not None:
            values[cell.t, cell.k] = _outcomes(cell, chosen)
        progress("compatibility matrix", done, total * (total + 1) // 2)
    counts = ~np.isnan(values[0, 0])  # AP is undefined for queries without a match, the same ones in every cell
    values, clusters = values[:, :, counts], query_codes[counts] if cluster_by_class else None
    options: dict[str, Any] = {"resamples": resamples, "seed": seed, "clusters": clusters}
    matrix, gains = _intervals(values, {**options, "confidence": confidence})
    units = values.shape[2] if clusters is None else len(np.unique(clusters))
    what = "classes of queries" if cluster_by_class else "queries"
    verdicts = [[None if gain is None else judge_gain(gain, min_gain, units, what)[0] for gain in row] for row in gains]
    uncertain = [
        {"query_model": names[t], "gallery_model": names[k], "gain": gains[t][k]}
        for t in range(total)
        for k in range(t)
        if verdicts[t][k] == NOT_SHOWN
    ]
    verdict, reason = _newest(verdicts[-1][:-1], names, min_gain)
    summary = _summary(values, units, confidence, options)
    carried = ["old galleries were carried through the maps that the run learned"] if any(maps) else []
    return HistoryResult(
        verdict=verdict,
        reason=reason,
        score=chosen.name,
        protocol=protocol,
        confidence=confidence,
        min_gain=min_gain,
        clustered=cluster_by_class,
        queries=len(query_codes),
        gallery=len(gallery_codes),
        models=names,
        matrix=matrix,
        gains=gains,
        verdicts=verdicts,
        uncertain=uncertain,
        notes=[*carried, *odd_vectors(features)],
        **summary,
    )


def _outcomes(cell: Cell, score: Score) -> np.ndarray:
    """The score of every query in one cell."""
    gallery, labels, wanted = cell.gallery, cell.gallery_labels, cell.query_labels
    assert gallery is not None
    if score.kind == "mAP":
        ranked = average_precisions(
            cell.query, gallery, lambda start, rows: labels[rows] == wanted[start : start + len(rows), None]
        )
        return ranked.cpu().numpy()
    found = labels[nearest(cell.query, gallery, score.k).indices]
    return (found == wanted[:, None]).any(1).double().cpu().numpy()


def _intervals(values: np.ndarray, options: dict[str, Any]) -> tuple[Cells, Cells]:
    """The score of every cell, and its gain over the old model's self-test."""
    total = len(values)
    matrix: Cells = [[None] * total for _ in range(total)]
    gains: Cells = [[None] * total for _ in range(total)]
    for t in range(total):
        for k in range(t + 1):
            cell, own = values[t, k], values[k, k]
            if np.isnan(cell).any():
                continue
            matrix[t][k] = Estimate(float(cell.mean()), *mean_interval(cell, **options))
            if k < t:
                gains[t][k] = Estimate(float(cell.mean() - own.mean()), *gain_interval(own, cell, **options))
    return matrix, gains


def _summary(values: np.ndarray, units: int, confidence: float, options: dict[str, Any]) -> dict[str, Estimate]:
    """AC, AA and ACA, each with the interval of its value over resamples of the queries, drawn once for all cells."""
    total = len(values)
    below = np.tril_indices(total)
    draws = resampled_means(values[below], **options)

    def matrices() -> Any:
        for means in draws:
            matrix = np.full((total, total), np.nan)
            matrix[below] = means.clip(0, 1)  # a mean of ones may end a rounding above 1
            yield matrix

    found = {}
    C = values.mean(axis=2)
    resampled = list(matrices())
    for name, metric in (("AC", average_compatibility), ("AA", average_accuracy), ("ACA", average_compatible_accuracy)):
        low, high = percentile_interval([metric(m) for m in resampled], units, confidence)
        found[name] = Estimate(metric(C), max(low, 0.0), min(high, 1.0))
    return found


def _newest(verdicts: Sequence[str | None], names: Sequence[str], min_gain: float) -> tuple[str, str]:
    """The verdict over one row of cells; models that cannot be compared are not compatible."""
    by_verdict = {
        wanted: [name for name, verdict in zip(names, verdicts) if verdict == wanted]
        for wanted in (None, INCOMPATIBLE, NOT_SHOWN)
    }
    newest, goal = f"model {names[-1]}", f"gain more than {100 * min_gain:+g} points"
    if by_verdict[None]:
        others = some(by_verdict[None], 8)
        return INCOMPATIBLE, f"{newest} has features of another size than the gallery of model {others}"
    if by_verdict[INCOMPATIBLE]:
        fails = "does worse than the old model" if min_gain == 0 else f"does not {goal}"
        return INCOMPATIBLE, f"{newest} {fails} on the gallery of model {some(by_verdict[INCOMPATIBLE], 8)}"
    if by_verdict[NOT_SHOWN]:
        aim = "do better" if min_gain == 0 else goal
        return NOT_SHOWN, f"{newest} is not shown to {aim} on the gallery of model {some(by_verdict[NOT_SHOWN], 8)}"
    does = "does better than the old model" if min_gain == 0 else f"is shown to {goal}"
    return COMPATIBLE, f"{newest} {does} on every older gallery"

"""Check a history of models: the queries of each on the gallery of every earlier one, with intervals."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.checks.check import check_options
from holdfast.checks.estimates import Estimate, Resampling, mean_estimate
from holdfast.checks.query_outcomes import ClassGroundTruth, class_codes
from holdfast.checks.result import HistoryResult
from holdfast.checks.scores import Score, average_precisions, parse_score
from holdfast.checks.verdict import (
    COMPATIBLE,
    INCOMPATIBLE,
    NO,
    NOT_SHOWN,
    YES,
    LossAnswer,
    bounds_asked,
    loss_answer,
    loss_question,
    verdict,
)
from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder, not_a_run_error
from holdfast.core.storage import read_json
from holdfast.core.wording import counted
from holdfast.metrics import (
    average_accuracy,
    average_compatibility,
    average_compatible_accuracy,
    gain_interval,
    resampled_means,
)
from holdfast.metrics.resampling import RESAMPLES, covering_interval
from holdfast.train.encoders import FeatureStore, ModelFeatures, read_space_maps
from holdfast.train.evaluation.matrix import Cell, matrix_cells
from holdfast.train.scenarios.slots import refuse_incompatible_slots_in_run
from holdfast.train.space_map import SpaceMap
from holdfast.vectors import nearest
from holdfast.vectors.feature_set import FeatureSet, rows_of_ids, shorten
from holdfast.vectors.pairing import Source, open_features
from holdfast.vectors.search import Progress, VectorProblems, float32

Models = str | Path | Sequence[tuple[Source, Source]]
"""A run folder, or (queries, gallery) of each model, oldest first."""


Cells = list[list[Estimate | None]]


def check_history(
    models: Models,
    *,
    names: Sequence[str] | None = None,
    score: str = "top1",
    protocol: str = "instance",
    confidence: float = 0.95,
    max_loss: float | None = None,
    min_gain: float | None = None,
    cluster_by_class: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Progress = lambda stage, done, total: None,
) -> HistoryResult:
    """Check the newest of several models on the gallery of every earlier one.

    models: a run folder, or (queries, gallery) of each model in the forms that ``check`` takes, oldest first, all over
        the same images. Maps that a run learned between its models are used.
    names: of the models, one each. Default: 1, 2, ...
    score: "top1", "recall@K" or "mAP".
    protocol: "instance" searches single items, "template" one mean vector per class.
    confidence: of the two-sided intervals, at least 0.5 and below 1.
    max_loss, min_gain: as in ``check``; they hold for each earlier gallery.
    cluster_by_class: resample whole classes of queries.
    resamples: number of bootstrap resamples.
    seed: of the resamples.
    device: where the search runs.
    progress: called with the stage, the amount done and the total.

    The matrix equals ``compatibility_matrix``. Each cell below the diagonal has the verdict that ``check`` gives. The
    intervals of AC, AA and ACA resample the queries of all cells together. The overall verdict is "compatible" if the
    newest model is compatible on every earlier gallery, and "incompatible" if it is incompatible on any.

    >>> import numpy as np
    >>> from holdfast import check_history
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(400) % 20
    >>> items = rng.standard_normal((20, 8))[labels]
    >>> models = []
    >>> for noise in (1.0, 0.7, 0.4):  # three models in one space, each better than the last
    ...     vectors = items + noise * rng.standard_normal((400, 8))
    ...     models.append(((vectors[200:], labels[200:]), (vectors[:200], labels[:200])))
    >>> result = check_history(models, resamples=200)
    >>> result.verdict, result.matrix[2][0].value > result.matrix[0][0].value  # the newest on the oldest index
    ('compatible', True)
    """
    chosen = parse_score(score)
    max_loss, min_gain = bounds_asked(max_loss, min_gain)
    check_options(protocol, confidence, min_gain, resamples, seed)
    if chosen.of_pairs:
        raise HoldfastError(f"a history needs a score of queries (top1, recall@K or mAP), not {score}")
    numbers, features, query_codes, gallery_codes, maps = _read_history(models)
    names = numbers if names is None else [str(name) for name in names]
    total = len(features)
    if total < 2:
        raise HoldfastError("a history needs at least two models")
    if len(names) != total:
        raise HoldfastError(f"names has {len(names)} entries for {total} models; give one for each")
    truth = ClassGroundTruth(query_codes, np.unique(gallery_codes) if protocol == "template" else gallery_codes)
    chosen.chance(truth.count_right(), truth.size())
    values = np.full((total, total, len(query_codes)), np.nan)
    cells = matrix_cells(features, query_codes, gallery_codes, protocol=protocol, maps=maps, device=device)
    for done, cell in enumerate(cells, start=1):
        if cell.gallery is not None:
            values[cell.t, cell.k] = _outcomes(cell, chosen)
        progress("compatibility matrix", done, total * (total + 1) // 2)
    counts = truth.count_right() > 0 if chosen.kind == "mAP" else truth.has_answer()
    values = values[:, :, counts]
    resampling = Resampling(confidence, resamples, seed, query_codes[counts] if cluster_by_class else None)
    matrix, gains = _intervals(values, resampling)
    units, what = resampling.units(values[0, 0]), resampling.drawn
    verdicts = [[None if gain is None else verdict(gain, min_gain, units, what)[0] for gain in row] for row in gains]
    uncertain = [
        {"query_model": names[t], "gallery_model": names[k], "gain": gains[t][k]}
        for t in range(total)
        for k in range(t)
        if verdicts[t][k] == NOT_SHOWN
    ]
    answers = [[None if gain is None else loss_answer(gain, max_loss, units, what) for gain in row] for row in gains]
    decision, reason = _newest(verdicts[-1][:-1], names, min_gain)
    summary = _summary(values, resampling)
    mapped = ["old galleries were mapped by the maps that the run learned"] if any(maps) else []
    return HistoryResult(
        verdict=decision,
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
        notes=[*mapped, *_vector_notes(features)],
        loss=_newest_loss(answers[-1][:-1], names, max_loss, units),
        losses=[[None if one is None else one.answer for one in row] for row in answers],
        **summary,
    )


def finished_run(folder: RunFolder) -> tuple[dict[str, Any], list[ModelFeatures]]:
    """The content of ``metrics.json`` and the stored features of every model. An unfinished run is refused."""
    if not (folder.recipe.exists() and folder.metrics.exists()):
        raise not_a_run_error(folder.path)
    record = read_json(folder.metrics)
    if not isinstance(record, dict) or not {"method", "protocols", "tasks"} <= record.keys():
        raise HoldfastError(f"{folder.metrics}: not the record of a run")
    if not folder.features.is_dir():
        raise HoldfastError(f"{folder.path}: a run without its stored features (no features/ in it)")
    models = FeatureStore(folder.features).read_all()
    if len(models) != len(record["tasks"]):
        raise HoldfastError(
            f"{folder.features}: has features of {counted(len(models), 'model')}, but the run has "
            f"{len(record['tasks'])}; run holdfast run ... --resume to compute what is missing"
        )
    return record, models


def keep_extras(judged: dict[str, Any], known: dict[str, Any]) -> None:
    """Add the extra scores of an earlier evaluation of the same features, both as the ``protocols`` of a run."""
    for name, protocol in judged.items():
        kept = {**known.get(name, {}).get("extras", {}), **protocol.get("extras", {})}
        if kept:
            protocol["extras"] = kept


def _read_history(
    models: Models,
) -> tuple[list[str], list[ModelFeatures], np.ndarray, np.ndarray, Sequence[SpaceMap | None]]:
    """Names, features, query and gallery classes, and maps between models (empty unless ``models`` is a run).

    A run with models of incompatible slots is refused, if its models still exist.
    """
    if isinstance(models, str | Path):
        folder = RunFolder(models)
        _, stored = finished_run(folder)
        refuse_incompatible_slots_in_run(folder, len(stored))
        names = [str(number) for number in range(1, len(stored) + 1)]
        maps = read_space_maps(folder, len(stored))
        return names, stored, *FeatureStore(folder.features).labels(), maps
    sets = [
        (open_features(query, f"queries {t}", "query"), open_features(gallery, f"gallery {t}", "gallery"))
        for t, (query, gallery) in enumerate(models, start=1)
    ]
    if not sets:
        raise HoldfastError("a history needs at least two models")
    query, gallery = sets[0]
    if query.labels is None:
        raise HoldfastError(f"{query.name}: has no labels; a history needs them")
    codes, (gallery_codes,), _ = class_codes(query.labels, gallery)
    features = [ModelFeatures(_rows_like(query, later[0]), _rows_like(gallery, later[1])) for later in sets]
    return [str(t + 1) for t in range(len(sets))], features, codes, gallery_codes, []


def _vector_notes(features: Sequence[ModelFeatures]) -> list[str]:
    """Notes on zero vectors and on lengths; the matrix itself refuses vectors that are not finite."""
    notes = []
    consequences = {"queries": "they find nothing and count as wrong", "gallery": "they are never found"}
    for t, model in enumerate(features, start=1):
        for what, rows in (("queries", model.query), ("gallery", model.gallery)):
            problems = VectorProblems(f"{what} of model {t}", len(rows))
            problems.inspect(np.arange(len(rows)), float32(np.array(rows), "cpu"))
            notes += replace(problems, not_finite=[]).notes(consequences[what])
    return notes


def _rows_like(first: FeatureSet, later: FeatureSet) -> np.ndarray:
    """The features of ``later`` in the order of ``first``: by id if both have ids, else row by row."""
    if len(first) != len(later):
        raise HoldfastError(
            f"{later.name} has {len(later)} rows and {first.name} {len(first)}; they must be the same images"
        )
    rows = np.arange(len(later))
    if first.ids is not None and later.ids is not None:
        rows = rows_of_ids(first.ids, later, first.name)
    if first.labels is not None and later.labels is not None and (first.labels != later.labels[rows]).any():
        raise HoldfastError(f"{later.name}: its labels are not those of {first.name}; are they the same images?")
    return later.rows.take(rows)


def _outcomes(cell: Cell, score: Score) -> np.ndarray:
    """The score of every query in one cell. Zero vectors are not found, and find nothing."""
    gallery, labels, wanted = cell.gallery, cell.gallery_labels, cell.query_labels
    assert gallery is not None
    stored = gallery.any(1)
    if not bool(stored.any()):
        raise HoldfastError(f"the gallery of model {cell.k + 1}: all vectors are zero")
    if not bool(stored.all()):
        gallery, labels = gallery[stored], labels[stored]
    usable = cell.query.any(1).cpu().numpy()
    if score.kind == "mAP":
        ranked = average_precisions(
            cell.query, gallery, lambda start, rows: labels[rows] == wanted[start : start + len(rows), None]
        )
        return np.where(usable, ranked.nan_to_num(0.0).cpu().numpy(), 0.0)  # NaN: all items of the class are zero
    found = labels[nearest(cell.query, gallery, score.k).indices]
    return (found == wanted[:, None]).any(1).double().cpu().numpy() * usable


def _intervals(values: np.ndarray, resampling: Resampling) -> tuple[Cells, Cells]:
    """The score of every cell, and its gain over the old model's self-test."""
    total = len(values)
    matrix: Cells = [[None] * total for _ in range(total)]
    gains: Cells = [[None] * total for _ in range(total)]
    for t in range(total):
        for k in range(t + 1):
            cell, own = values[t, k], values[k, k]
            if np.isnan(cell).any():
                continue
            matrix[t][k] = mean_estimate(cell, resampling)
            if k < t:
                interval = gain_interval(own, cell, **resampling.options())
                gains[t][k] = Estimate(float(cell.mean() - own.mean()), *interval)
    return matrix, gains


def _summary(values: np.ndarray, resampling: Resampling) -> dict[str, Estimate]:
    """AC, AA and ACA, each with the interval of its value over resamples of the queries, drawn once for all cells."""
    total, clusters = len(values), resampling.clusters
    below = np.tril_indices(total)

    def drawn(classes: np.ndarray | None) -> list[np.ndarray]:
        matrices = []
        for means in resampled_means(
            values[below], resamples=resampling.resamples, seed=resampling.seed, clusters=classes
        ):
            matrix = np.full((total, total), np.nan)
            matrix[below] = means.clip(0, 1)  # a mean of ones may end a rounding above 1
            matrices.append(matrix)
        return matrices

    by_query, by_class = drawn(None), [] if clusters is None else drawn(clusters)
    C = values.mean(axis=2)

    def estimate(metric: Callable[[np.ndarray], float]) -> Estimate:
        low, high = covering_interval(
            lambda classes: [metric(m) for m in (by_query if classes is None else by_class)],
            values.shape[2],
            clusters,
            resampling.confidence,
        )
        return Estimate(metric(C), max(low, 0.0), min(high, 1.0))

    return {
        "AC": estimate(average_compatibility),
        "AA": estimate(average_accuracy),
        "ACA": estimate(average_compatible_accuracy),
    }


def _newest_loss(answers: Sequence[LossAnswer | None], names: Sequence[str], max_loss: float, units: int) -> LossAnswer:
    """Whether the newest model loses at most ``max_loss`` on every earlier gallery; None is one it cannot search."""
    found = [NO if one is None else one.answer for one in answers]
    for answer in (NO, NOT_SHOWN):
        where = [name for name, one in zip(names, found) if one == answer]
        if where:
            reason = f"on the gallery of model {shorten(where, 8)}"
            return LossAnswer(loss_question(max_loss), max_loss, answer, reason, units)
    return LossAnswer(loss_question(max_loss), max_loss, YES, "on every older gallery", units)


def _newest(verdicts: Sequence[str | None], names: Sequence[str], min_gain: float) -> tuple[str, str]:
    """The verdict on the newest model from its verdicts on each earlier gallery; None is incompatible."""
    by_verdict = {
        wanted: [name for name, verdict in zip(names, verdicts) if verdict == wanted]
        for wanted in (None, INCOMPATIBLE, NOT_SHOWN)
    }
    newest, goal = f"model {names[-1]}", f"gain more than {100 * min_gain:+g} points"
    if by_verdict[None]:
        others = shorten(by_verdict[None], 8)
        return INCOMPATIBLE, f"{newest} has features of another size than the gallery of model {others}"
    if by_verdict[INCOMPATIBLE]:
        fails = "does worse than the old model" if min_gain == 0 else f"does not {goal}"
        return INCOMPATIBLE, f"{newest} {fails} on the gallery of model {shorten(by_verdict[INCOMPATIBLE], 8)}"
    if by_verdict[NOT_SHOWN]:
        aim = "do better" if min_gain == 0 else goal
        return NOT_SHOWN, f"{newest} is not shown to {aim} on the gallery of model {shorten(by_verdict[NOT_SHOWN], 8)}"
    does = "does better than the old model" if min_gain == 0 else f"is shown to {goal}"
    return COMPATIBLE, f"{newest} {does} on every older gallery"

"""Check a history of models: the queries of each on the gallery of every earlier one, with intervals."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from holdfast.checks.check import check_options
from holdfast.checks.estimates import Design, Estimate, gain_interval, mean_estimate
from holdfast.checks.query_outcomes import memory_blocks
from holdfast.checks.result import HistoryResult
from holdfast.checks.right_answers import ClassAnswers, class_codes
from holdfast.checks.scores import BY_CLASS, chance, chosen_score, depth, gallery_of, query_values
from holdfast.checks.verdict import (
    BETTER_QUESTION,
    NO,
    NOT_SHOWN,
    VERDICTS,
    YES,
    Answer,
    NotJudgedError,
    accepted_loss,
    answer_about,
    loss_question,
)
from holdfast.core.errors import HoldfastError
from holdfast.metrics import compatibility_summary
from holdfast.metrics.intervals import Interval, repeated_queries
from holdfast.metrics.ranking import RankingScore
from holdfast.vectors import nearest
from holdfast.vectors.feature_set import FeatureSet, rows_of_ids, shorten
from holdfast.vectors.lengths import unit
from holdfast.vectors.pairing import Source, open_features
from holdfast.vectors.search import Progress, VectorProblems, float32

Mapped = Callable[[int, int], np.ndarray | None]
"""By (t, k), numbers from 0: the gallery of model k in the space of model t > k, N x d; None if it cannot be had."""

Cells = list[list[Estimate | None]]


def check_history(
    models: Sequence[tuple[Source, Source]],
    mapped: Mapped | None = None,
    *,
    names: Sequence[str] | None = None,
    score: str | None = None,
    protocol: str = "instance",
    confidence: float = 0.95,
    max_loss: float | None = None,
    device: Any = "cpu",
    progress: Progress = lambda stage, done, total: None,
) -> HistoryResult:
    """Check the newest of several models on the gallery of every earlier one.

    models: (queries, gallery) of each model in the forms that ``check`` takes, oldest first, all over the same images.
        Those of a run: ``*run_models(run)`` of
        ``holdfast.train.evaluation``, which gives ``mapped`` too.
    mapped: for models with learned maps between their spaces: (t, k), numbers from 0, gives the gallery of model k in
        the space of model t > k. None leaves galleries as they are.
    names: of the models, one each. Default: 1, 2, ...
    score: as in ``check``; hit@1 by default.
    protocol: "instance" searches single items, "template" one mean vector per class.
    confidence: of the two-sided intervals, at least 0.5 and below 1.
    max_loss: as in ``check``; it holds for each earlier gallery.
    device: where the search runs: "cpu", or "cuda" if torch is installed.
    progress: called with the stage, the amount done and the total.

    The matrix equals ``compatibility_matrix``, but for exact ties. Each cell below the diagonal has the verdict that
    ``check`` gives. The overall verdict is "better" if the
    newest model is better than keeping the old one on every earlier gallery, and "worse" if it is worse on any.

    >>> import numpy as np
    >>> from holdfast import check_history
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(400) % 20
    >>> items = rng.standard_normal((20, 8))[labels]
    >>> models = []
    >>> for noise in (1.0, 0.7, 0.4):  # three models in one space, each better than the last
    ...     vectors = items + noise * rng.standard_normal((400, 8))
    ...     models.append(((vectors[200:], labels[200:]), (vectors[:200], labels[:200])))
    >>> result = check_history(models)
    >>> result.verdict, result.matrix[2][0].value > result.matrix[0][0].value  # the newest on the oldest index
    ('better', True)
    """
    chosen = chosen_score(score, BY_CLASS)
    max_loss = accepted_loss(max_loss)
    check_options(protocol, confidence)
    features, query_codes, gallery_codes = _read_history(models)
    total = len(features)
    names = [str(name) for name in (range(1, total + 1) if names is None else names)]
    if total < 2:
        raise HoldfastError("a history needs at least two models")
    if len(names) != total:
        raise HoldfastError(f"names has {len(names)} entries for {total} models; give one for each")
    answers = ClassAnswers(query_codes, np.unique(gallery_codes) if protocol == "template" else gallery_codes)
    chance(chosen, answers, answers.items)  # refuses what cannot differ
    values = np.full((total, total, len(query_codes)), np.nan)
    for done, cell in enumerate(_cells(features, gallery_codes, protocol, mapped), start=1):
        if cell.gallery is not None:
            # NaN: all items of the class are zero.
            values[cell.t, cell.k] = np.nan_to_num(_cell_values(chosen, query_codes, cell, device))
        progress("compatibility matrix", done, total * (total + 1) // 2)
    counts = answers.counts() > 0
    values = values[:, :, counts]
    repeats = repeated_queries(*(float32(model.query) for model in features))
    design = Design(confidence, query_codes[counts], repeats[counts])
    matrix, intervals = _intervals(values, design)
    gains = [[None if gain is None else Estimate.of(gain) for gain in row] for row in intervals]
    better = [[None if gain is None else _answer(gain, 0.0, BETTER_QUESTION) for gain in row] for row in intervals]
    losses = [[None if gain is None else _answer(gain, max_loss) for gain in row] for row in intervals]
    units = min((gain.units for gain in intervals[-1] if gain is not None), default=0)
    verdicts = [[None if answer is None else VERDICTS[answer.answer] for answer in row] for row in better]
    uncertain = [
        {"query_model": names[t], "gallery_model": names[k], "gain": gains[t][k]}
        for t in range(total)
        for k in range(t)
        if verdicts[t][k] == NOT_SHOWN
    ]
    newest = _newest(better[-1][:-1], names, BETTER_QUESTION, 0.0, units)
    summary = compatibility_summary(values.mean(axis=2))
    learned = [] if mapped is None else ["old galleries were mapped by the maps that the run learned"]
    return HistoryResult(
        verdict=VERDICTS[newest.answer],
        reason=f"model {names[-1]} {newest.reason}",
        score=chosen.name,
        protocol=protocol,
        confidence=confidence,
        clustered=any(gain is not None and gain.clustered for row in intervals for gain in row),
        queries=len(query_codes),
        gallery=len(gallery_codes),
        models=names,
        matrix=matrix,
        gains=gains,
        verdicts=verdicts,
        uncertain=uncertain,
        notes=[*learned, *_vector_notes(features)],
        better=newest,
        loss=_newest(losses[-1][:-1], names, loss_question(max_loss), max_loss, units),
        losses=[[None if answer is None else answer.answer for answer in row] for row in losses],
        **{name: summary[name] for name in ("AC", "AA", "ACA")},
    )


class _Model(NamedTuple):
    """Queries (Q x d) and gallery (N x d) of one model, as they were given."""

    query: np.ndarray
    gallery: np.ndarray


class _Cell(NamedTuple):
    """Unit queries of model t, and what they search on the gallery of model k; None if the sizes differ."""

    t: int
    k: int
    query: np.ndarray
    gallery: np.ndarray | None
    labels: np.ndarray


def _read_history(models: Sequence[tuple[Source, Source]]) -> tuple[list[_Model], np.ndarray, np.ndarray]:
    """Vectors of each model in the order of the first, and the class numbers of queries and gallery."""
    sets = [
        (open_features(query, f"queries {t}", "query"), open_features(gallery, f"gallery {t}", "gallery"))
        for t, (query, gallery) in enumerate(models, start=1)
    ]
    if not sets:
        raise HoldfastError("a history needs at least two models")
    query, gallery = sets[0]
    if query.labels is None:
        raise NotJudgedError(f"{query.name}: has no labels; without them nothing of a history can be judged")
    codes, (gallery_codes,), _ = class_codes(query.labels, gallery)
    return [_Model(_rows_like(query, later[0]), _rows_like(gallery, later[1])) for later in sets], codes, gallery_codes


def _cells(
    models: Sequence[_Model], gallery_codes: np.ndarray, protocol: str, mapped: Mapped | None
) -> Iterator[_Cell]:
    """The cells of the lower triangle, row by row. Each model is prepared once."""
    searched: list[tuple[np.ndarray, np.ndarray]] = []
    for t, model in enumerate(models):
        query = _unit_rows(model.query, f"queries of model {t + 1}")
        searched.append(gallery_of(protocol, _unit_rows(model.gallery, f"gallery of model {t + 1}"), gallery_codes))
        for k in range(t + 1):
            vectors, labels = searched[k]
            if mapped is not None and k < t:
                carried = mapped(t, k)
                if carried is None:
                    yield _Cell(t, k, query, None, labels)
                    continue
                vectors, labels = gallery_of(protocol, unit(carried), gallery_codes)
            yield _Cell(t, k, query, vectors if vectors.shape[1] == query.shape[1] else None, labels)


def _unit_rows(rows: np.ndarray, what: str) -> np.ndarray:
    numbers = float32(rows)
    bad = ~np.isfinite(numbers).all(1)
    if bad.any():
        raise HoldfastError(
            f"{what}: row {int(bad.argmax())} is not finite, {int(bad.sum())} of {len(rows)} rows are not"
        )
    return unit(numbers)


def _cell_values(score: RankingScore, query_codes: np.ndarray, cell: _Cell, device: Any) -> np.ndarray:
    """The score of each query in one cell. Zero vectors are never found; a query of zeros finds nothing."""
    assert cell.gallery is not None
    rows = np.flatnonzero(cell.gallery.any(1))
    if not len(rows):
        raise HoldfastError(f"the gallery of model {cell.k + 1}: all vectors are zero")
    stored = cell.gallery[rows]
    hits = nearest(cell.query, stored, depth(score, len(rows)), device=device)
    scores = np.where(cell.query.any(1, keepdims=True), hits.scores, np.float32(-np.inf))
    blocks = memory_blocks(stored, cell.query, rows)
    return query_values(score, ClassAnswers(query_codes, cell.labels), rows[hits.indices], scores, blocks, len(rows))


def _vector_notes(features: Sequence[_Model]) -> list[str]:
    """Notes on zero vectors and on lengths; ``_cells`` refuses vectors that are not finite."""
    notes = []
    consequences = {"queries": "they find nothing and count as wrong", "gallery": "they are never found"}
    for t, model in enumerate(features, start=1):
        for what, rows in (("queries", model.query), ("gallery", model.gallery)):
            problems = VectorProblems(f"{what} of model {t}", len(rows))
            problems.inspect(np.arange(len(rows)), float32(rows))
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


def _answer(gain: Interval, max_loss: float, question: str = "") -> Answer:
    return answer_about(Estimate.of(gain), max_loss, gain.units, gain.unit, question=question)


def _intervals(values: np.ndarray, design: Design) -> tuple[Cells, list[list[Interval | None]]]:
    """The score of every cell, and its gain over the old model's self-test."""
    total = len(values)
    matrix: Cells = [[None] * total for _ in range(total)]
    gains: list[list[Interval | None]] = [[None] * total for _ in range(total)]
    for t in range(total):
        for k in range(t + 1):
            cell, own = values[t, k], values[k, k]
            if np.isnan(cell).any():
                continue
            matrix[t][k] = mean_estimate(cell, design)
            if k < t:
                gains[t][k] = gain_interval(own, cell, design)
    return matrix, gains


def _newest(
    answers: Sequence[Answer | None], names: Sequence[str], question: str, max_loss: float, units: int
) -> Answer:
    """The answer for the newest model from its answers on each earlier gallery; None is one that it cannot search."""
    strange = [name for name, answer in zip(names, answers) if answer is None]
    if strange:
        reason = f"has features of another size than the gallery of model {shorten(strange, 8)}"
        return Answer(question, max_loss, NO, reason, units)
    for wanted in (NO, NOT_SHOWN):
        where = [name for name, answer in zip(names, answers) if answer is not None and answer.answer == wanted]
        if where:
            return Answer(question, max_loss, wanted, f"on the gallery of model {shorten(where, 8)}", units)
    return Answer(question, max_loss, YES, "on every older gallery", units)

"""All ways to serve a new model, side by side, on the user's own vectors: which one finds more than the old model?

Every way is measured on the same judged queries and compared with *keep the old model*. One way is tested: it is named
by a rule that was fixed on other data (``way_to_test``), so its interval needs no correction. The rest are exploratory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.bridges import Bridge
from holdfast.bridges.choice import FEWEST_PAIRS
from holdfast.checks.exchanged_inputs import refuse_equal_queries, refuse_exchanged_queries
from holdfast.checks.judged_queries import judged_queries
from holdfast.checks.known_items import STAND_IN, known_pairs
from holdfast.checks.measured_ways import (
    COUNTS,
    SHARES,
    TESTED_COUNT,
    Cost,
    Searches,
    fitted_bridges,
    measured_ways,
    mixed_name,
    way_name,
)
from holdfast.checks.right_answers import Relevance
from holdfast.checks.scores import BY_CLASS, BY_RELEVANCE, chosen_score
from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import real_array
from holdfast.core.storage import without_nan
from holdfast.core.untrusted_files import open_npz
from holdfast.core.wording import are, counted
from holdfast.metrics.intervals import Interval, gain_interval, mean_interval, units_needed
from holdfast.upgrade.strategies import (
    BLEND_WEIGHT,
    WEIGHT,
    check_weight,
)
from holdfast.vectors.feature_set import ChosenRows, FeatureSet, feature_set
from holdfast.vectors.pairing import Source, open_features, pair_queries
from holdfast.vectors.search import Progress, unit_queries

Floats = NDArray[np.float64]
RECOMMENDED, KEEP, NOT_JUDGED = "recommended", "keep the old model", "not judged"
EXIT_CODES = {RECOMMENDED: 0, KEEP: 1, NOT_JUDGED: 3}
_PAIRS = 1000


@dataclass(frozen=True)
class Way:
    """One way to serve the new model, with what it finds and what it costs.

    name: of the row. status: "tested", "exploratory" or "reference" (keep, and re-embed).
    policy: for ``Upgrade.from_policy``, or None.
    score, gain: mean score, and gain over keeping, with intervals; None if not judged.
    share: the score divided by that of re-embedding everything.
    embedded_now, embedded_per_query: items that the new model embeds before the first search, and at most per search.
    added_ms: measured milliseconds per query beside one search of one index, without the models' own time.
    storage: bytes of vectors beside the old index; for two-stage search, once every item was embedded.
    needs: what is missing to measure this way, or None.
    """

    name: str
    status: str = "exploratory"
    policy: dict[str, Any] | None = None
    score: Interval | None = None
    gain: Interval | None = None
    share: float | None = None
    embedded_now: int = 0
    embedded_per_query: int = 0
    added_ms: float | None = None
    storage: int = 0
    needs: str | None = None


@dataclass(frozen=True)
class Comparison:
    """The ways to serve an upgrade, the verdict on the tested one, and what the numbers rest on.

    verdict: "recommended", "keep the old model" or "not judged"; ``exit_code`` is 0, 1 or 3.
    reason: why, in a sentence. ways: the rows. tested: the name of the tested row, or None.
    queries_needed: judged queries that would probably settle it; None if recommended, or more than 100,000.
    """

    verdict: str
    reason: str
    ways: tuple[Way, ...]
    tested: str | None
    queries_needed: int | None
    facts: dict[str, Any]
    notes: tuple[str, ...] = ()
    values: dict[str, Floats] = field(default_factory=dict, repr=False, compare=False)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def policy(self) -> dict[str, Any] | None:
        """What ``Upgrade.from_policy`` takes, if the tested way is recommended."""
        named = {way.name: way.policy for way in self.ways}
        return named.get(self.tested or "") if self.verdict == RECOMMENDED else None

    def as_json(self) -> dict[str, Any]:
        """The record as plain types; NaN is None."""
        record: dict[str, Any] = without_nan(
            {
                "kind": "comparison",
                "verdict": self.verdict,
                "reason": self.reason,
                "exit_code": self.exit_code,
                "tested": self.tested,
                "queries_needed": self.queries_needed,
                "policy": self.policy,
                **self.facts,
                "ways": self.ways,
                "notes": list(self.notes),
            }
        )
        return record

    def __repr__(self) -> str:
        return f"{self.verdict}: {self.reason}"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from holdfast.reports import compare_report, html_fragment

        return html_fragment(compare_report(self.as_json()))


def way_to_test(items: int, *, old_model: bool, content: bool) -> tuple[str, dict[str, Any]]:
    """The way that is tested, by what can be had when people search: its kind, and its policy.

    items: size of the index. old_model: whether queries can still be embedded by the old model.
    content: whether the items' contents can be had, so that the new model can embed candidates.
    """
    if old_model and content:
        return "two-stage", {"source": "old", "candidates": TESTED_COUNT, "weight": WEIGHT}
    if content:
        return "two-stage", {"source": "bridge", "candidates": bridge_candidates(items), "weight": 1.0}
    if old_model:
        return "blend", {"source": "blend", "weight": BLEND_WEIGHT}
    return "bridge", {"source": "bridge", "candidates": 0, "weight": 0.0}


def bridge_candidates(items: int) -> int:
    """How many of a bridge's candidates to score, where the old model is gone: more for a larger index.

    8 % of the items, at least 50 and at most 1,000. Fixed on three collections and tested on two others, of up to 6,000
    items: docs/results/serving-both.md.
    """
    return int(min(1000, max(TESTED_COUNT, round(0.08 * items))))


def compare(
    index_old: Source,
    index_new: Source,
    queries_old: Source | None = None,
    queries_new: Source | None = None,
    *,
    relevance: Relevance | None = None,
    known_items: ArrayLike | None = None,
    score: str | None = None,
    bridge: Bridge | None = None,
    pairs: int = _PAIRS,
    weight: float = WEIGHT,
    old_model: bool = True,
    content: bool = True,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Progress = lambda stage, done, total: None,
) -> Comparison:
    """Measure every way to serve a new model, and say whether the tested one finds more than the old model.

    index_old, index_new: the items embedded by both models: files, ``FeatureSet``s, or arrays (features, labels, ids).
        Matched by id. If only a sample has new vectors, the sample is the index for every way.
    queries_old, queries_new: the same queries embedded by both models, in the same forms. Default: the arrays
        ``queries`` and ``query_ids`` of the two files.
    relevance: judgements: a file of BEIR or TREC, ``{query: {item: grade}}``, or pairs (query id, item id). Without
        them classes decide, if both have labels. Without either nothing is judged.
    known_items: the id of the right item of each query, for queries that were made from items; see ``check``.
    score: a name of ``holdfast.metrics.ranking`` with a number of hits. Default: nDCG@10 with relevance, else hit@1.
    bridge: from the new model's space to the old one. Default: fitted on ``pairs`` items that both embedded.
    pairs: number of these items, drawn at random; their new vectors count as embedded beforehand.
    weight: of the new score where both count. Fix it on other queries than these.
    old_model, content: whether, when people search, queries can be embedded by the old model, and items by the new one.
        They decide which way is tested, and which rows say "needs ...".
    confidence: of the two-sided intervals.
    seed: of the random choices: pairs, halves of the queries, and which items of a mixed index are re-embedded.
    progress: called with the stage, the amount done and the total.

    >>> import numpy as np
    >>> from holdfast import compare
    >>> rng = np.random.default_rng(0)
    >>> meaning, asked = rng.standard_normal((300, 8)), rng.integers(0, 300, 200)
    >>> turns = [np.linalg.qr(rng.standard_normal((size, 8)))[0].T for size in (8, 12)]
    >>> def embedded(rows, noise, model):
    ...     return (rows + noise * rng.standard_normal(rows.shape)) @ turns[model]
    >>> result = compare(
    ...     embedded(meaning, 0.6, 0), embedded(meaning, 0.2, 1),
    ...     embedded(meaning[asked], 0.6, 0), embedded(meaning[asked], 0.2, 1),
    ...     relevance=[(str(q), str(item)) for q, item in enumerate(asked)], pairs=100,
    ... )
    >>> result.verdict, result.policy
    ('recommended', {'source': 'old', 'candidates': 50, 'weight': 0.8})
    """
    chosen = chosen_score(score, BY_CLASS if relevance is None else BY_RELEVANCE)
    if chosen.k is None or chosen.k > COUNTS[0]:
        raise HoldfastError(f"score {chosen.name!r}: name the hits that count, at most {COUNTS[0]}, such as nDCG@10")
    check_weight(weight)
    if pairs < 0:
        raise HoldfastError(f"pairs must not be negative, got {pairs}")
    old, new, left_out = _same_items(
        open_features(index_old, "index_old", "gallery"), open_features(index_new, "index_new", "gallery")
    )
    asked_old, asked_new = (
        open_features(inner_queries(index, name) if given is None else given, name, "query")
        for given, index, name in ((queries_old, index_old, "queries_old"), (queries_new, index_new, "queries_new"))
    )
    for index, asked in ((old, asked_old), (new, asked_new)):
        if index.dim != asked.dim:
            raise HoldfastError(
                f"{asked.name} has {asked.dim} numbers per query and {index.name} {index.dim} per item; both must be "
                "of one model: were files exchanged?"
            )
    refuse_equal_queries(asked_old, asked_new)
    refuse_exchanged_queries(old, asked_old, asked_new)
    pairing = pair_queries(asked_old, asked_new)
    if known_items is not None:
        if relevance is not None:
            raise HoldfastError("known items and relevance both say what is right; give one of them")
        relevance = known_pairs(pairing.names, real_array(known_items, "known items"), len(asked_old))
    judged = judged_queries(relevance, pairing.names, pairing.labels, old)
    facts: dict[str, Any] = {
        "score": chosen.name,
        "confidence": confidence,
        "items": len(old),
        "items_without_new_vectors": left_out,
        "queries": len(pairing),
        "judged": None if judged is None else len(judged.rows),
        "sizes": [old.dim, new.dim],
        "weight": weight,
        "blend_weight": BLEND_WEIGHT,
        "pairs": 0,
        "seed": seed,
        "old_model": old_model,
        "content": content,
        "sources": {"index old": old.name, "index new": new.name, "queries old": asked_old.name}
        | {"queries new": asked_new.name},
    }
    notes = [] if known_items is None else [STAND_IN]
    if left_out:
        notes.append(
            f"{counted(left_out, 'item')} of {old.name} {are(left_out)} without a new vector: the other {len(old):,} "
            "are the index for every way, and a smaller index flatters every way"
        )
    kind, policy = way_to_test(len(old), old_model=old_model, content=content)
    if kind == "two-stage" and policy["source"] == "old":
        policy |= {"weight": weight}
    if judged is None:
        reason = (
            "judgements are missing: pass relevance (--relevance FILE of BEIR or TREC), which says what is right "
            "for each query, or known items (--known-items)"
        )
        facts["compatible_sizes"] = old.dim == new.dim
        return Comparison(NOT_JUDGED, reason, (), None, None, facts, tuple(notes))
    rows = judged.rows
    (old_units, _), (new_units, _) = (
        unit_queries(part, numbers[rows]) for part, numbers in ((asked_old, pairing.old), (asked_new, pairing.new))
    )
    run = Searches(old, new, old_units, new_units, judged, chosen, progress, np.random.default_rng(seed))
    fitted = fitted_bridges(run, bridge, pairs)
    facts |= {"pairs": fitted.pairs, "bridge": None if fitted.query is None else repr(fitted.query)}
    values, costs = measured_ways(run, fitted, weight, kind, policy, seed)
    ways, notes_of_tests = _ways(values, costs, run, confidence, (kind, policy), old_model=old_model, content=content)
    tested = next((way for way in ways if way.status == "tested"), None)
    notes += judged.notes + notes_of_tests
    if tested is None or tested.gain is None:
        missing = next(way for way in ways if way.needs is not None)
        reason = f"the way to be tested ({kind}) could not be measured: {missing.name} needs {missing.needs}"
        return Comparison(NOT_JUDGED, reason, tuple(ways), None, None, facts, tuple(notes), values)
    gain = tested.gain
    needed = units_needed(
        values["keep"], values[tested.name], 0.0, groups=judged.groups, repeats=run.repeats, confidence=confidence
    )
    shown = gain.low > 0 and gain.uncertain is None
    points = f"{100 * gain.value:+.1f} points ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"
    if shown:
        reason = f"{tested.name} finds more than the old model: {chosen.name} {points}"
        return Comparison(RECOMMENDED, reason, tuple(ways), tested.name, None, facts, tuple(notes), values)
    verb = "finds less than" if gain.high < 0 else "is not shown to find more than"
    reason = f"{tested.name} {verb} the old model: {chosen.name} {points}"
    if gain.uncertain:
        reason += f"; {gain.uncertain}"
    elif gain.high >= 0:
        unit_name = "judged queries" if not gain.clustered else "groups of judged queries"
        settled = f"about {needed:,} {unit_name}" if needed else "more than 100,000 judged queries"
        reason += f"; {settled} would settle it, and there are {gain.units:,}"
    return Comparison(KEEP, reason, tuple(ways), tested.name, needed, facts, tuple(notes), values)


def _same_items(old: FeatureSet, new: FeatureSet) -> tuple[FeatureSet, FeatureSet, int]:
    """Both sets with the items that both hold, row by row; and how many items of the old one were left out."""
    pairing = pair_queries(old, new, "item")
    chosen = []
    for part, numbers in ((old, pairing.old), (new, pairing.new)):
        whole = len(numbers) == len(part) and bool((numbers == np.arange(len(part))).all())
        chosen.append(part if whole else replace(part, rows=ChosenRows(part.rows, numbers), **_columns(part, numbers)))
    return chosen[0], chosen[1], len(pairing.only_old)


def _columns(part: FeatureSet, numbers: NDArray[np.int64]) -> dict[str, Any]:
    return {
        name: None if column is None else column[numbers]
        for name, column in (("labels", part.labels), ("ids", part.ids))
    }


def inner_queries(index: Source, name: str) -> FeatureSet:
    """The queries in the file of an index: its arrays ``queries`` and ``query_ids``."""
    if not isinstance(index, str | Path) or Path(index).suffix.lower() != ".npz":
        raise HoldfastError(f"{name} is needed: the queries, embedded by this model")
    with open_npz(Path(index)) as pack:
        if "queries" not in pack.names:
            raise HoldfastError(f"{index}: no array 'queries' in it, so {name} is needed")
        ids = pack.array("query_ids") if "query_ids" in pack.names else None
        return feature_set(f"{index} (queries)", pack.array("queries"), None, ids)


_REFERENCE = ("keep", "re-embed")


def _ways(
    values: Mapping[str, Floats],
    costs: Mapping[str, Cost],
    run: Searches,
    confidence: float,
    tested: tuple[str, Mapping[str, Any]],
    *,
    old_model: bool,
    content: bool,
) -> tuple[list[Way], list[str]]:
    """The rows of the table, in its order, and remarks about the intervals."""
    kind, policy = tested
    name_tested = way_name(policy["source"], policy["candidates"], policy["weight"]) if kind == "two-stage" else kind
    options: dict[str, Any] = {"groups": run.judged.groups, "repeats": run.repeats, "confidence": confidence}
    best = float(values["re-embed"].mean())
    ways, notes = [], []
    for name in _ordered(values):
        needs = _missing(name, old_model=old_model, content=content)
        if name not in values:
            ways.append(Way(name, needs=needs or _unmeasured(name)))
            continue
        cost = costs[name]
        score = mean_interval(values[name], **options)
        gain = None if name == "keep" else gain_interval(values["keep"], values[name], **options)
        status = "reference" if name in _REFERENCE else "tested" if name == name_tested else "exploratory"
        way = Way(
            name,
            status,
            _policy(name),
            score,
            gain,
            float(values[name].mean()) / best if best > 0 else None,
            cost.now,
            cost.per_query,
            cost.ms,
            cost.storage,
            needs,
        )
        ways.append(way)
        if status == "tested" and gain is not None and gain.uncertain:
            notes.append(f"{name}: the interval is uncertain: {gain.uncertain}")
    return ways, notes


def _ordered(values: Mapping[str, Floats]) -> list[str]:
    always = ["keep", "swap", "bridge", "blend"]
    stages = [name for name in values if name.startswith("two-stage")]
    if not any("bridged query" in name for name in stages):
        stages += [way_name(source, TESTED_COUNT, 1.0) for source in ("bridge", "both")]
    return [*always, *stages, "converted index", *(mixed_name(share) for share in SHARES), "re-embed"]


def _missing(name: str, *, old_model: bool, content: bool) -> str | None:
    """What a way needs that cannot be had when people search."""
    if not content and name.startswith("two-stage"):
        return "the items' contents, which the new model embeds"
    by_old = name in ("keep", "blend") or "old query" in name or "both queries" in name
    return "the old model, which embeds queries" if by_old and not old_model else None


def _unmeasured(name: str) -> str:
    if name == "swap":
        return "vectors of one size by both models"
    return f"at least {FEWEST_PAIRS} pairs, or a bridge"


def _policy(name: str) -> dict[str, Any] | None:
    if name == "blend":
        return {"source": "blend", "weight": BLEND_WEIGHT}
    if name == "bridge":
        return {"source": "bridge", "candidates": 0, "weight": 0.0}
    if not name.startswith("two-stage") or name.endswith("half"):
        return None
    head, by, scored = name.split(", ")
    source = {"old query": "old", "bridged query": "bridge", "both queries": "both"}[by]
    weight = 1.0 if scored == "new score" else float(scored[scored.index("(") + 1 : -1])
    return {"source": source, "candidates": int(head.split("@")[1]), "weight": weight}

"""How often the answers of ``holdfast check`` are right, in simulations with a known truth.

    python bench/verdict_coverage.py [--simulations 500] [--resamples 1000] [--json FILE]

A fixed gallery and a pool of 60,000 queries that stands for all there could be: scores over the pool are the truth. In
each simulation some queries are drawn from the pool and judged as ``check`` judges them.

- margin: the true loss is exactly the accepted one (one point). "At most 1 point lost" must be answered yes in at most
  5 % of the simulations, and no in at most 5 %.
- few changes: the same, where all changed queries get worse.
- share kept: how often the 95 % interval covers the true share of re-embedding kept.
- leave one out: every item is a query and in the gallery, as in ``holdfast update``; galleries are drawn too. How often
  the intervals of gain and share kept cover their means over many draws.
"""

import argparse
from typing import Any

import numpy as np
import torch
from timing import write_figures

from holdfast import check
from holdfast.checks.estimates import Resampling, gain_estimate, share_estimate
from holdfast.checks.query_outcomes import ClassGroundTruth, QueryOutcomes, run_queries
from holdfast.checks.scores import parse_score
from holdfast.checks.verdict import MAX_LOSS, NO, YES, loss_answer
from holdfast.core.environment import describe
from holdfast.vectors.feature_set import feature_set

POOL, CLASSES, DIM = 60_000, 60, 16
SIZES = (60, 150, 300, 400, 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage of the answers of holdfast check, by simulation.")
    parser.add_argument("--simulations", type=int, default=500)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    environment = describe("cpu")
    print(f"{environment['processor']}, {options.simulations} simulations, {options.resamples} resamples")
    rows: list[dict[str, Any]] = []

    def tell(row: dict[str, Any]) -> None:
        rows.append(row)
        shares = "  ".join(f"{key} {value:.3f}" for key, value in row.items() if isinstance(value, float))
        print(f"{row['what']:14} {row['score']:5} n {row['queries']:5}  {shares}", flush=True)

    for score in ("top1", "mAP"):
        old, new, ceiling = pool_outcomes(score)
        cases = {"margin": at_margin(old, new), **({"few changes": few_changes(old)} if score == "top1" else {})}
        for what, pair in cases.items():
            for queries in SIZES:
                tell({"what": what, "score": score, "queries": queries, **margin(*pair, score, queries, options)})
        for queries in SIZES:
            found = share_kept(new, ceiling, score, queries, options)
            tell({"what": "share kept", "score": score, "queries": queries, **found})
    for items in (150, 400):
        tell({"what": "leave one out", "score": "top1", "queries": items, **leave_one_out(items, options)})
    if options.json:
        write_figures(options.json, "verdict_coverage", environment, options, rows=rows)


def clustered(labels: np.ndarray, noise: float, seed: int) -> np.ndarray:
    """Unit vectors around the centres of their classes."""
    centres = np.random.default_rng(7).standard_normal((CLASSES, DIM))
    found = centres[labels] + noise * np.random.default_rng(seed).standard_normal((len(labels), DIM))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def pool_outcomes(score: str) -> list[QueryOutcomes]:
    """Old queries on the old gallery, new queries on it, and new queries on the re-embedded gallery."""
    gallery_labels, labels = np.repeat(np.arange(CLASSES), 4), np.arange(POOL) % CLASSES
    truth = ClassGroundTruth(labels, gallery_labels)
    old, new = (torch.from_numpy(clustered(labels, noise, seed)) for noise, seed in ((0.6, 2), (0.58, 3)))
    found: list[QueryOutcomes] = []
    for noise, seed, queries in ((0.6, 1, [old, new]), (0.5, 5, [new])):
        gallery = feature_set("gallery", clustered(gallery_labels, noise, seed), gallery_labels)
        found += run_queries(gallery, truth, queries, parse_score(score), protocol="instance").outcomes
    return found


def taken(outcomes: QueryOutcomes, rows: np.ndarray) -> QueryOutcomes:
    empty = np.zeros(0)
    return QueryOutcomes(outcomes.hits[rows], outcomes.right[rows], outcomes.values[rows], empty, empty)


def at_margin(old: QueryOutcomes, new: QueryOutcomes) -> tuple[QueryOutcomes, QueryOutcomes]:
    """Each query twice, once with old and new swapped, then lowered until the mean gain is exactly -MAX_LOSS."""
    first, second = np.concatenate([old.values, new.values]), np.concatenate([new.values, old.values])
    step = 1.0 if np.isin(first, (0.0, 1.0)).all() else 0.2
    high = np.flatnonzero((first >= step) & (second >= step))
    lowered = np.random.default_rng(0).permutation(high)[: round(MAX_LOSS * len(first) / step)]
    second = second.copy()
    second[lowered] -= step
    return values_only(first), values_only(second)


def few_changes(old: QueryOutcomes) -> tuple[QueryOutcomes, QueryOutcomes]:
    """One query in a hundred was right and becomes wrong, nothing else changes: the hardest case for few queries."""
    second = old.values.copy()
    right = np.random.default_rng(0).permutation(np.flatnonzero(second == 1.0))
    second[right[: round(MAX_LOSS * len(second))]] = 0.0
    return values_only(old.values), values_only(second)


def values_only(values: np.ndarray) -> QueryOutcomes:
    nothing = np.zeros((len(values), 0))
    return QueryOutcomes(nothing, nothing, values, nothing, nothing)


def margin(
    first: QueryOutcomes, second: QueryOutcomes, score: str, queries: int, options: argparse.Namespace
) -> dict[str, float]:
    true_gain = float(second.values.mean() - first.values.mean())
    answers, covered = [], 0
    for seed in range(options.simulations):
        rows = np.random.default_rng(seed).integers(0, len(first.values), queries)
        how = Resampling(0.95, options.resamples, seed)
        gain = gain_estimate(taken(first, rows), taken(second, rows), parse_score(score), (None, None), how)
        answers.append(loss_answer(gain, MAX_LOSS, queries, "queries").answer)
        covered += gain.low <= true_gain <= gain.high
    shares = {"yes": answers.count(YES) / len(answers), "no": answers.count(NO) / len(answers)}
    return {"true_gain": true_gain, **shares, "covered": covered / len(answers)}


def share_kept(
    new: QueryOutcomes, ceiling: QueryOutcomes, score: str, queries: int, options: argparse.Namespace
) -> dict[str, float]:
    truth = float(new.values.mean() / ceiling.values.mean())
    covered, width = 0, []
    for seed in range(options.simulations):
        rows = np.random.default_rng(seed).integers(0, POOL, queries)
        how = Resampling(0.95, options.resamples, seed)
        found = share_estimate(taken(new, rows), taken(ceiling, rows), parse_score(score), (None, None), how)
        covered += found.low <= truth <= found.high
        width.append(found.high - found.low)
    return {"true_share": truth, "covered": covered / options.simulations, "mean_width": float(np.mean(width))}


def leave_one_out(items: int, options: argparse.Namespace) -> dict[str, float]:
    """Items are drawn anew in each simulation; the truth is the mean over all draws."""
    results = []
    for seed in range(options.simulations):
        labels = np.sort(np.random.default_rng(seed).integers(0, 20, items))
        ids = np.arange(items)
        old, new = (clustered(labels, noise, 2 * seed + place) for place, noise in enumerate((0.6, 0.55)))
        old_set, new_set = (old, labels, ids), (new, labels, ids)
        found = check(
            old_set, old_set, new_set, new_set, leave_one_out=True, resamples=options.resamples, seed=seed, pairs=2
        )
        assert found.gain is not None
        assert found.kept is not None
        results.append((found.gain, found.kept))
    shares = {}
    for name, estimates in zip(("gain", "kept"), zip(*results), strict=True):
        truth = float(np.mean([one.value for one in estimates]))
        covered = np.mean([one.low <= truth <= one.high for one in estimates])
        shares |= {f"true_{name}": truth, f"{name}_covered": float(covered)}
    return shares


if __name__ == "__main__":
    main()

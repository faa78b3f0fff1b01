"""How often ``gain_interval`` says "yes" when the truth is just not a yes, and how often when it should.

    python bench/false_yes.py [--samples 2000] [--text FOLDER] [--only WORD] [--through-check] [--json FILE]

In every design the true gain is exactly 0 ("better than keeping" would be false) or exactly minus one point ("at most
1 point lost" would be). "Yes" is a lower end above it: at a confidence of 0.95 nominally 2.5 % of samples, and at most
4 % are accepted. "plain" is what a normal interval over single queries says. Seeds are the number of the sample.

- independent: hits that change in 20 % of the queries, or in few; or nDCG-like scores that change in 60 %.
- repeated: 300 queries, each 5 or 20 times; 60 of them 5 times.
- classes: every class has its own gain (normal, deviation 10 or 15 points), with equal or geometric sizes; and a design
  outside what the correction is made for: losses of classes are exponential, so that few classes lose much.
- real: outcomes of two models on judged queries (``papers/upgrades/embed.py`` writes the vectors that --text reads),
  drawn with replacement; each with a random sign, so that the true gain is known. The same query twice counts once.

With --through-check each sample of hits becomes vectors, labels or judgements, and ``check`` itself answers: it has to
find repeated queries and groups by itself.

Power: how often a true gain of 5 points is shown with 300 different queries, for the deviations of paired scores seen
on the real sets, and for classes.
"""

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from timing import write_figures

from holdfast import check
from holdfast.checks import CheckResult
from holdfast.core.environment import describe
from holdfast.metrics.intervals import gain_interval
from holdfast.metrics.ranking import places, ranking_score

LOSS = 0.01
SHARE = {"hit@1": 0.2, "nDCG@10": 0.6}
"""Queries whose score changes."""
SPREAD = {"hit@1": 0.15, "nDCG@10": 0.1}
"""The standard deviation of the gains of classes."""


class Drawn(NamedTuple):
    """Gains of queries, in -1 .. 1; which belong together, and which are the same."""

    gains: np.ndarray
    groups: np.ndarray | None = None
    repeats: np.ndarray | None = None


Design = Callable[[np.random.Generator, float], Drawn]
"""Draws a sample whose true gain is the second argument."""


def independent(queries: int, score: str, share: float | None = None) -> Design:
    share = SHARE[score] if share is None else share

    def draw(rng: np.random.Generator, gain: float) -> Drawn:
        return Drawn(changes(rng, np.full(queries, gain), score, share))

    return draw


def changes(rng: np.random.Generator, gain: np.ndarray, score: str, share: float) -> np.ndarray:
    """One change per query, with this expected value. A ``share`` of queries changes, or more if the gain needs it."""
    if score == "hit@1":  # gained or lost
        share = np.maximum(share, np.abs(gain))
        up = (share + gain) / 2
        uniform = rng.random(len(gain))
        return (uniform < up).astype(float) - (uniform >= 1 - (share - up))
    size = np.minimum(rng.beta(1.2, 2.2, len(gain)), 1)  # 35 points on average
    chance_up = np.clip((1 + gain / (share * 1.2 / 3.4)) / 2, 0, 1)
    return np.where(rng.random(len(gain)) < share, np.where(rng.random(len(gain)) < chance_up, size, -size), 0.0)


def one_way(queries: int) -> Design:
    """Hits where every change is a loss (or, for a gain of 0, one change in 2 %): the hardest for small numbers."""

    def draw(rng: np.random.Generator, gain: float) -> Drawn:
        return Drawn(changes(rng, np.full(queries, gain), "hit@1", abs(gain) or 0.02))

    return draw


def repeated(queries: int, times: int, score: str) -> Design:
    def draw(rng: np.random.Generator, gain: float) -> Drawn:
        gains = changes(rng, np.full(queries, gain), score, SHARE[score])
        return Drawn(np.tile(gains, times), None, np.tile(np.arange(queries), times))

    return draw


def classes(count: int, each: int, score: str, *, uneven: bool = False, skewed: bool = False) -> Design:
    """Queries of classes that have gains of their own."""

    def draw(rng: np.random.Generator, gain: float) -> Drawn:
        sizes = rng.geometric(1 / each, count) if uneven else np.full(count, each)
        own = SPREAD[score] * ((1 - rng.exponential(1, count)) if skewed else rng.standard_normal(count))
        member = np.repeat(np.arange(count), sizes)
        if skewed:  # plain numbers, which need no clipping, so that the mean stays
            return Drawn((gain + own[member] + 0.2 * rng.standard_normal(len(member))).clip(-1, 1), member)
        return Drawn(changes(rng, (gain + own)[member].clip(-1, 1), score, max(0.3, SHARE[score])), member)

    return draw


def real(outcomes: np.ndarray, queries: int = 300, *, fresh: bool = False) -> Design:
    """Gains of real queries, drawn with replacement.

    fresh: a query that is drawn twice stands for two queries; otherwise it is the same query, with the same sign.
    """
    chance_up = 1 / np.abs(outcomes).mean() / 2

    def draw(rng: np.random.Generator, gain: float) -> Drawn:
        chosen = rng.integers(0, len(outcomes), queries)
        signs = np.where(rng.random(queries if fresh else len(outcomes)) < 0.5 + gain * chance_up, 1.0, -1.0)
        gains = np.abs(outcomes)[chosen] * (signs if fresh else signs[chosen])
        return Drawn(gains, None, None if fresh else chosen)

    return draw


def designs(outcomes: dict[str, np.ndarray]) -> dict[str, Design]:
    found: dict[str, Design] = {}
    for score in SHARE:
        for queries in (60, 300, 1000):
            found[f"independent, {score}, {queries} queries"] = independent(queries, score)
        for queries, times in ((300, 5), (300, 20), (60, 5)):
            found[f"repeated, {score}, {queries} queries x {times}"] = repeated(queries, times, score)
        for count, each in ((15, 20), (30, 20), (40, 20), (200, 5)):
            for uneven in (False, True):
                name = f"classes, {score}, {count} of {'about ' if uneven else ''}{each}"
                found[name] = classes(count, each, score, uneven=uneven)
    for queries in (60, 300, 1000):
        found[f"independent, hit@1 changes rarely and one way, {queries} queries"] = one_way(queries)
    for count, each in ((15, 20), (40, 20), (200, 5)):
        found[f"skewed classes, nDCG@10, {count} of {each}"] = classes(count, each, "nDCG@10", skewed=True)
    return found | {f"real, {name}": real(gains) for name, gains in outcomes.items()}


def shares_of_yes(design: Design, gain: float, bound: float, samples: int) -> dict[str, float]:
    """How often the lower end lies above ``bound`` if the true gain is ``gain``; also that of a plain interval."""
    yes = plain = width = 0.0
    for seed in range(samples):
        drawn = design(np.random.default_rng(seed), gain)
        gains = drawn.gains
        found = gain_interval(np.maximum(-gains, 0), np.maximum(gains, 0), groups=drawn.groups, repeats=drawn.repeats)
        yes += found.low > bound
        width += found.value - found.low
        plain += gains.mean() - 1.96 * gains.std(ddof=1) / math.sqrt(len(gains)) > bound
    return {"yes": yes / samples, "plain_yes": plain / samples, "points_below": 100 * width / samples}


def checked(drawn: Drawn, seed: int) -> CheckResult:
    """``check`` on vectors whose queries gain and lose hit@1 as drawn.

    A query lies beside its right item or beside another one. Queries with groups are of classes with one item each;
    others have an item of their own, which a list of judgements names.
    """
    rng = np.random.default_rng([seed, 1])
    changed = np.rint(drawn.gains).astype(int)
    names = np.arange(len(changed)) if drawn.repeats is None else drawn.repeats
    right = names if drawn.groups is None else drawn.groups
    items = int(right.max()) + 1
    unchanged = rng.random(items) < 0.7  # whether a query that does not change finds its item
    before = np.where(changed == 0, unchanged[right], changed < 0)
    after = np.where(changed == 0, before, changed > 0)
    sets = []
    for hit in (before, after):
        beside = rng.standard_normal((int(names.max()) + 1, 8))[names]  # a repeated query has the same vector again
        sets.append(np.hstack([np.eye(items)[np.where(hit, right, (right + 1) % items)], 0.1 * beside]))
    gallery = np.eye(items, items + 8)
    if drawn.groups is not None:
        return check((gallery, np.arange(items)), *((queries, right) for queries in sets))
    pairs = [(str(query), str(item)) for query, item in enumerate(right)]
    return check((gallery,), *((queries,) for queries in sets), relevance=pairs, score="hit@1")


def shares_through_check(design: Design, gain: float, samples: int) -> dict[str, float]:
    """How often ``check`` answers "yes" to the question whose truth is just not a yes."""
    answers = [checked(design(np.random.default_rng(seed), gain), seed) for seed in range(samples)]
    asked = [result.better if gain == 0 else result.loss for result in answers]
    return {"yes": sum(answer is not None and answer.answer == "yes" for answer in asked) / samples}


def real_outcomes(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The scores of the old and the new model on each judged query, by set and score."""
    found = {}
    for old, new, name in (
        ("wordllama", "l3", "scifact"),
        ("wordllama", "l3", "cranfield"),
        ("wordllama", "minilm", "cacm"),
    ):
        judged = json.loads((folder / name / "qrels.json").read_text(encoding="utf-8"))
        documents, queries = (
            [np.load(folder / name / f"{model}-{part}.npz") for model in (old, new)] for part in ("docs", "queries")
        )
        row = {item: number for number, item in enumerate(documents[0]["ids"].tolist())}
        grades = np.zeros((len(queries[0]["ids"]), len(row)))
        for number, query in enumerate(queries[0]["ids"].tolist()):
            for item, grade in judged.get(query, {}).items():
                if item in row:
                    grades[number, row[item]] = grade
        has_answer = (grades > 0).any(1)
        scores = [asked["features"] @ stored["features"].T for asked, stored in zip(queries, documents)]
        for score in SHARE:
            values = [ranking_score(score)(places(table[has_answer], grades[has_answer])) for table in scores]
            found[f"{name}, {old} to {new}, {score}"] = (values[0], values[1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="False and true yes of gain_interval, by simulation.")
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--text", dest="folder", type=Path, help="folder with real sets: SET/MODEL-docs.npz and others")
    parser.add_argument("--only", default="", help="only designs with this word in their names")
    parser.add_argument("--through-check", action="store_true", help="let check itself answer; designs of hits only")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    pairs = {} if options.folder is None else real_outcomes(options.folder)
    outcomes = {name: new - old for name, (old, new) in pairs.items()}
    rows: list[dict[str, Any]] = []

    def tell(row: dict[str, Any]) -> None:
        rows.append(row)
        print(
            "  ".join(
                f"{key} {value:.3f}" if isinstance(value, float) else f"{value:60}" for key, value in row.items()
            ),
            flush=True,
        )

    for name, design in designs(outcomes).items():
        if options.only not in name or (options.through_check and "hit@1" not in name):
            continue
        if options.through_check:
            for question, gain in (("better", 0.0), ("at most 1 point lost", -LOSS)):
                tell({"design": name, "question": question, **shares_through_check(design, gain, options.samples)})
            continue
        for question, gain in (("better", 0.0), ("at most 1 point lost", -LOSS)):
            tell({"design": name, "question": question, **shares_of_yes(design, gain, gain, options.samples)})
    power = {
        f"300 queries, deviation {100 * gains.std():.0f} points ({name})": real(gains, fresh=True)
        for name, gains in outcomes.items()
    }
    power |= {f"{score}, 300 queries": independent(300, score) for score in SHARE}
    power |= {
        f"{score}, {count} classes of {each}": classes(count, each, score)
        for score in SHARE
        for count, each in ((15, 20), (40, 20), (200, 5))
    }
    for name, design in power.items():
        if options.only not in name or options.through_check:
            continue
        found = shares_of_yes(design, 0.05, 0.0, max(200, options.samples // 4))
        tell({"design": name, "question": "power: 5 points gained", **found})
    if options.json:
        write_figures(options.json, "false_yes", describe("cpu"), options, rows=rows)


if __name__ == "__main__":
    main()

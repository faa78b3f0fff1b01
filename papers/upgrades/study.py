"""Measure both models at query time on SciFact, CACM and Cranfield.

    python -m papers.upgrades.study VECTORS results/upgrades/serving-both.json

VECTORS holds the folders that ``sets.py`` and ``embed.py`` wrote. Every number is a mean over the judged queries of
nDCG@10. What needs a bridge is the mean of five draws of the pairs that it is fitted on. Weights are recorded for a
grid; ``page.py`` takes for each collection the weight that was best on the others.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.bridges import Bridge
from holdfast.core.storage import write_text
from holdfast.metrics.intervals import gain_interval
from holdfast.upgrade.strategies import (
    Candidates,
    blended_queries,
    candidate_scores,
    combined_scores,
    merged_candidates,
    ranked,
)
from holdfast.vectors import nearest
from papers.upgrades.candidate_rule import candidate_counts
from papers.upgrades.collections import (
    PAIRS,
    SETS,
    Replacement,
    read_photographs,
    read_replacement,
    relevant_documents,
)

DRAWS, FITTED_ON = 5, 1000
COUNTS = (20, 50, 100)
WEIGHTS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
BLENDS = (0.1, 0.2, 0.3, 0.4, 0.5)
SIZES = (1000, 2500)


def searched(queries: np.ndarray, items: np.ndarray, count: int) -> Candidates:
    hits = nearest(queries, items, count)
    return Candidates(hits.indices, hits.scores.astype(np.float64))


def new_scores(case: Replacement, found: Candidates) -> np.ndarray:
    parts = [
        candidate_scores(case.new_queries[query : query + 1], case.new[found.items[query]][None])
        for query in range(len(found.items))
    ]
    return np.concatenate(parts)


def fitted(case: Replacement, draw: int, count: int = FITTED_ON) -> Bridge:
    rows = np.random.default_rng(draw).choice(len(case.old), min(count, len(case.old)), replace=False)
    return Bridge.fit(new=case.new[rows], old=case.old[rows], items=len(case.old) if count < len(case.old) else None)


def measured(case: Replacement) -> dict[str, np.ndarray]:
    """The score of every query by every way; ways with a bridge as means of the draws."""
    values: dict[str, list[np.ndarray]] = {}

    def add(name: str, hits: Candidates) -> None:
        values.setdefault(name, []).append(case.values(*hits))

    by_old = searched(case.old_queries, case.old, max(COUNTS))
    add("keep", by_old)
    add("re-embed", searched(case.new_queries, case.new, max(COUNTS)))

    def stages(source: str, found: Candidates) -> None:
        scores = new_scores(case, found)
        for weight in WEIGHTS:
            total = combined_scores(found.scores, scores, weight)
            add(f"{source}@{found.items.shape[1]} {weight:g}", ranked(found.items, total))

    for count in COUNTS:
        stages("old", by_old.first(count))
    for draw in range(DRAWS):
        bridged = fitted(case, draw).transform(case.new_queries)
        by_bridge = searched(bridged, case.old, max(COUNTS))
        add("bridge", by_bridge)
        for weight in BLENDS:
            mixture = blended_queries(case.old_queries, bridged, weight)
            add(f"blend {weight:g}", searched(mixture, case.old, max(COUNTS)))
        for count in COUNTS:
            stages("bridge", by_bridge.first(count))
            stages("both", merged_candidates(by_old.first(count), by_bridge.first(count), count))
    return {name: np.mean(draws, axis=0) for name, draws in values.items()}


def row(case: Replacement, values: dict[str, np.ndarray], name: str) -> dict[str, Any]:
    gain = gain_interval(values["keep"], values[name], groups=case.judged.groups, repeats=case.repeats)
    return {
        "score": float(values[name].mean()),
        "gain": [gain.value, gain.low, gain.high],
        "deviation": float((values[name] - values["keep"]).std()),
    }


def bridge_counts(case: Replacement, draws: int = DRAWS) -> dict[str, Any]:
    """Re-embedding's score, and that of the bridge's best N by the new score in each draw; for an index of this size.

    agreement: of each draw's bridge on its held-out pairs.
    """
    pairs = min(FITTED_ON, len(case.old) // 2)
    counts = candidate_counts(len(case.old))
    cosines = case.new_queries @ case.new.T
    scores, agreement = np.zeros((draws, len(counts))), []
    for draw in range(draws):
        bridge = fitted(case, draw, pairs)
        agreement.append(round(float(bridge.evidence.chosen.value), 4))
        by_bridge = searched(bridge.transform(case.new_queries), case.old, counts[-1])
        by_new = np.take_along_axis(cosines, by_bridge.items, -1)
        for i, count in enumerate(counts):
            hits = ranked(by_bridge.items[:, :count], by_new[:, :count], 100)
            scores[draw, i] = case.values(*hits).mean()
    best = float(case.values(*searched(case.new_queries, case.new, 100)).mean())
    return {
        "items": len(case.old),
        "pairs": pairs,
        "re-embed": best,
        "counts": counts,
        "scores": scores.round(6).tolist(),
        "agreement": agreement,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", nargs="*", choices=tuple(SETS), default=tuple(SETS))
    parser.add_argument("--photographs", type=Path, help="a folder with the features of CUB by lite0 and lite2")
    options = parser.parse_args()
    record: dict[str, Any] = {"kind": "serving-both", "draws": DRAWS, "pairs": FITTED_ON, "cases": [], "sizes": []}
    if options.out.exists():
        record = json.loads(options.out.read_text(encoding="utf-8"))
    done = {tuple(case["name"]) for case in record["cases"]}
    measured_sizes = {(*part["name"], part["items"]) for part in record["sizes"]}
    for name in options.sets:
        for old, new in PAIRS:
            begin = time.perf_counter()
            if not all(
                (options.vectors / name.removesuffix("-log") / f"{model}-docs.npz").exists() for model in (old, new)
            ):
                sys.stderr.write(f"{name}, {old} to {new}: files are missing\n")
                continue
            if (name, old, new) not in done:
                case = read_replacement(options.vectors, name, old, new)
                values = measured(case)
                ways = {way: row(case, values, way) for way in values}
                record["cases"].append(
                    {"name": [name, old, new], "items": len(case.old), "queries": len(case.judged.rows), "ways": ways}
                )
            for size in (*SIZES, None) if name.startswith("scifact") else (None,):
                rows = None if size is None else smaller(options.vectors, name, size)
                case = read_replacement(options.vectors, name, old, new, rows)
                if (name, old, new, len(case.old)) not in measured_sizes:
                    record["sizes"].append({"name": [name, old, new], **bridge_counts(case)})
            write_text(options.out, json.dumps(record, indent=1) + "\n")
            sys.stderr.write(f"{name}, {old} to {new}: {time.perf_counter() - begin:.0f} s\n")
    if options.photographs is not None:
        for index_part in ("train", "test"):
            case = read_photographs(options.photographs, "lite0", "lite2", index_part)
            if (*case.name, len(case.old)) not in measured_sizes:
                record["sizes"].append({"name": list(case.name), **bridge_counts(case)})
                write_text(options.out, json.dumps(record, indent=1) + "\n")


def smaller(folder: Path, name: str, size: int) -> np.ndarray:
    """The rows of an index of this size: every right document, and others at random."""
    right = relevant_documents(folder, name)
    whole = len(np.load(folder / name.removesuffix("-log") / "wordllama-docs.npz")["ids"])
    others = np.setdiff1d(np.arange(whole), right)
    drawn = np.random.default_rng(0).choice(others, size - len(right), replace=False)
    return np.sort(np.concatenate([right, drawn]))


if __name__ == "__main__":
    main()

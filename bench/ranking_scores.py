"""The project's ranking scores against ir-measures (trec_eval) and ranx, on random judgement files.

    pip install ir-measures ranx
    python bench/ranking_scores.py [--files 1000] [--json FILE]

Each file has 20 queries over 200 items, judged with grades -1 .. 3; 40 % of the judged items are never returned. Scores
are a random order of numbers, so nothing ties. Printed is the largest difference of a query's score.
"""

import argparse
import warnings

import numpy as np
from timing import write_figures

from holdfast.core.environment import describe
from holdfast.metrics.ranking import Places, ranking_score

NAMES = ["nDCG@1", "nDCG@10", "nDCG@100", "MRR@10", "MRR", "recall@10", "hit@1", "hit@10", "P@10", "mAP", "mAP@10"]
QUERIES, ITEMS = 20, 200


def main() -> None:
    parser = argparse.ArgumentParser(description="Ranking scores against ir-measures and ranx.")
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    others = {"ir-measures": of_ir_measures, "ranx": of_ranx}
    worst = {library: dict.fromkeys(NAMES, 0.0) for library in others}
    for seed in range(options.files):
        qrels, run = random_file(seed)
        mine = of_holdfast(qrels, run)
        for library, scores in others.items():
            for name, values in scores(qrels, run).items():
                worst[library][name] = max(worst[library][name], float(np.abs(mine[name] - values).max()))
    rows = [{"score": name, **{library: worst[library][name] for library in others}} for name in NAMES]
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    if options.json:
        write_figures(options.json, "ranking_scores", describe("cpu"), options, rows=rows)


def random_file(seed: int) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, float]]]:
    """Grades and scores by query and item."""
    draw = np.random.default_rng(seed)
    qrels, run = {}, {}
    for query in range(QUERIES):
        items = draw.permutation(ITEMS)
        judged = items[: draw.integers(1, 40)]
        grades = draw.integers(-1, 4, len(judged))
        grades[0] = draw.integers(1, 4)  # one relevant item at least: without one a score is undefined
        qrels[f"q{query}"] = {f"d{item}": int(grade) for item, grade in zip(judged, grades)}
        returned = items[draw.random(ITEMS) < 0.6]
        scores = draw.permutation(len(returned)) / 1000
        run[f"q{query}"] = {f"d{item}": float(score) for item, score in zip(returned, scores)}
    return qrels, run


def of_holdfast(qrels: dict[str, dict[str, int]], run: dict[str, dict[str, float]]) -> dict[str, np.ndarray]:
    entries = []
    for number, query in enumerate(qrels):
        ranked = sorted(run[query], key=run[query].__getitem__, reverse=True)
        place = {item: above for above, item in enumerate(ranked)}
        entries += [
            (number, place.get(item, 0), int(item in place), grade) for item, grade in qrels[query].items() if grade > 0
        ]
    query, above, tied, grade = np.array(entries).T
    return {name: ranking_score(name)(Places(len(qrels), query, above, tied, grade)) for name in NAMES}


def of_ir_measures(qrels: dict[str, dict[str, int]], run: dict[str, dict[str, float]]) -> dict[str, np.ndarray]:
    import ir_measures

    names = {"MRR": "RR", "MRR@10": "RR@10", "recall": "R", "hit": "Success", "mAP": "AP", "mAP@10": "AP@10"}
    theirs = {}
    for name in NAMES:
        kind, _, cut = name.partition("@")
        theirs[name] = ir_measures.parse_measure(names.get(name) or names.get(kind, kind) + (f"@{cut}" if cut else ""))
    found: dict[str, dict[str, float]] = {name: {} for name in NAMES}
    by_measure = {str(measure): name for name, measure in theirs.items()}
    for metric in ir_measures.iter_calc(list(theirs.values()), qrels, run):
        found[by_measure[str(metric.measure)]][metric.query_id] = metric.value
    return {name: np.array([found[name][query] for query in qrels]) for name in NAMES}


def of_ranx(qrels: dict[str, dict[str, int]], run: dict[str, dict[str, float]]) -> dict[str, np.ndarray]:
    import ranx

    names = {"nDCG": "ndcg", "MRR": "mrr", "recall": "recall", "hit": "hit_rate", "P": "precision", "mAP": "map"}
    theirs = {name: name.replace(kind := name.partition("@")[0], names[kind]) for name in NAMES}
    positive = {query: {item: max(0, grade) for item, grade in items.items()} for query, items in qrels.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = ranx.evaluate(ranx.Qrels(positive), ranx.Run(run), list(theirs.values()), return_mean=False)
    order = sorted(qrels)  # ranx sorts its queries
    back = [order.index(query) for query in qrels]
    return {name: np.asarray(values[theirs[name]])[back] for name in NAMES}


if __name__ == "__main__":
    main()

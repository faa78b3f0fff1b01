"""A map of stored vectors against maps of queries, on judged texts embedded by an old and a new model.

    python bench/index_map.py FOLDER OLD NEW [--pairs 500 2000] [--draws 5] [--json FILE]

FOLDER holds OLD-docs.npz, OLD-queries.npz and the same of NEW (features, ids), and qrels.json
({query: {document: grade}}). Pairs are a random sample of the documents, drawn anew for each draw. Rows: nDCG@10
of keeping the old model, of each kind of query map on the old index, of the converted index by ``IndexMap``, and of a
full re-embedding; means over the draws. "with the pairs" replaces the documents of the pairs by the new model's vectors
of them, which are at hand: with many pairs of few documents, that is a part of the gain of every way. "linear" is the
map without its correction by near pairs.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.bridges import BRIDGES, Bridge, IndexMap
from holdfast.bridges.maps import mapped_queries
from holdfast.core.environment import describe
from holdfast.core.storage import write_json
from holdfast.vectors import nearest
from holdfast.vectors.lengths import unit

KINDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("rotation", "rotation", {}),
    ("rotation, centred", "rotation", {"centred": True}),
    ("affine 0.1", "affine", {"ridge": 0.1}),
    ("affine 1", "affine", {"ridge": 1.0}),
    ("local", "local", {}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="A map of stored vectors against maps of queries.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--pairs", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    sets = {
        f"{model}-{part}": read(options.folder, model, part)
        for model in (options.old, options.new)
        for part in ("docs", "queries")
    }
    ids, query_ids = sets[f"{options.old}-docs"][1], sets[f"{options.old}-queries"][1]
    if not (ids == sets[f"{options.new}-docs"][1]).all() or not (query_ids == sets[f"{options.new}-queries"][1]).all():
        raise SystemExit("the files of both models must have the same ids in the same order")
    old_docs, new_docs = (sets[f"{model}-docs"][0] for model in (options.old, options.new))
    old_queries, new_queries = (sets[f"{model}-queries"][0] for model in (options.old, options.new))
    grades = judgements(options.folder / "qrels.json", query_ids, ids)
    asked = np.array([bool(of_query) for of_query in grades])
    rows: dict[str, dict[str, float]] = {}

    def score(queries: np.ndarray, items: np.ndarray) -> float:
        return ndcg(nearest(queries[asked], items, 10).indices, [grades[row] for row in np.flatnonzero(asked)])

    rows["keep"] = {"": score(old_queries, old_docs)}
    rows["re-embed"] = {"": score(new_queries, new_docs)}
    for count in options.pairs:
        found: dict[str, list[float]] = {}
        for draw in range(options.draws):
            chosen = np.sort(np.random.default_rng([draw, count]).choice(len(ids), min(count, len(ids)), replace=False))
            new, old = new_docs[chosen], old_docs[chosen]
            for name, kind, settings in KINDS:
                bridged = mapped_queries(BRIDGES[kind].fit(new, old, **settings), new_queries)
                found.setdefault(name, []).append(score(bridged, old_docs))
            auto = Bridge.fit(new=new, old=old, items=len(ids), seed=draw)
            found.setdefault("auto", []).append(score(auto(new_queries), old_docs))
            started = time.perf_counter()
            index_map = IndexMap.fit(new=new, old=old)
            seconds = time.perf_counter() - started
            converted, linear = index_map(old_docs), unit(index_map.map(old_docs))
            for name, items in (("index side", converted), ("index side, linear", linear)):
                found.setdefault(name, []).append(score(new_queries, items))
                items = items.copy()
                items[chosen] = new_docs[chosen]
                found.setdefault(f"{name}, with the pairs", []).append(score(new_queries, items))
            found.setdefault("index side, seconds of the fit", []).append(seconds)
            found.setdefault("index side, ridge", []).append(index_map.options["ridge"])
        for name, values in found.items():
            rows.setdefault(name, {})[str(count)] = float(np.mean(values))
    for name, values in rows.items():
        print(f"{name:32}" + "".join(f"  {key:>6} {value:8.4f}" for key, value in values.items()))
    if options.json:
        about = {"set": options.folder.name, "old": options.old, "new": options.new, "draws": options.draws}
        sizes = {"documents": len(ids), "queries": int(asked.sum()), "dims": [old_docs.shape[1], new_docs.shape[1]]}
        write_json(options.json, {"bench": "index_map", "environment": describe(), **about, **sizes, "ndcg@10": rows})


def read(folder: Path, model: str, part: str) -> tuple[np.ndarray, np.ndarray]:
    with np.load(folder / f"{model}-{part}.npz") as held:
        return unit(held["features"]), held["ids"].astype(str)


def judgements(file: Path, queries: np.ndarray, ids: np.ndarray) -> list[dict[int, float]]:
    """Grades above 0 of each query's documents, by row."""
    row_of = {name: row for row, name in enumerate(ids.tolist())}
    given = json.loads(file.read_text())
    return [
        {row_of[name]: float(grade) for name, grade in given.get(query, {}).items() if grade > 0 and name in row_of}
        for query in queries.tolist()
    ]


def ndcg(hits: np.ndarray, grades: list[dict[int, float]]) -> float:
    discounts = 1 / np.log2(np.arange(2, hits.shape[1] + 2))
    scores = []
    for row, of_query in zip(hits.tolist(), grades, strict=True):
        gains = np.array([of_query.get(item, 0.0) for item in row])
        ideal = np.sort(np.array(list(of_query.values())))[::-1][: len(discounts)]
        scores.append((gains @ discounts) / (ideal @ discounts[: len(ideal)]))
    return float(np.mean(scores))


if __name__ == "__main__":
    main()

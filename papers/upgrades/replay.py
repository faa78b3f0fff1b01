"""An index that upgrades itself as it is used: searches by a Zipf distribution, with the new vectors kept.

    python -m papers.upgrades.replay VECTORS results/upgrades/replay.json

The index holds 100,000 items: SciFact's documents, each about 19 times, every copy with noise of its own in both
spaces.
20,000 searches draw SciFact's 1,109 queries (test and log) by a Zipf distribution, with noise too, so that no two are
equal. Right are all copies of a query's documents. The old model is WordLlama and the new one MiniLM.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast import NewVectors, Upgrade, nearest
from holdfast.core.storage import write_json
from holdfast.metrics.intervals import gain_interval
from holdfast.metrics.ranking import places_of_hits
from holdfast.vectors.lengths import unit
from papers.upgrades.collections import SCORE

ITEMS, SEARCHES, NOISE, ENDS = 100_000, 20_000, 0.3, (1_000, 2_000, 5_000, 10_000, 20_000)


def noisy(rows: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Unit rows with noise of ``NOISE`` times their length."""
    noise = draw.standard_normal(rows.shape, dtype=np.float32) * np.float32(NOISE / np.sqrt(rows.shape[1]))
    return unit(rows + noise)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--searches", type=int, default=SEARCHES)
    options = parser.parse_args()
    draw = np.random.default_rng(0)
    base, models = options.vectors / "scifact", ("wordllama", "minilm")
    documents = [np.load(base / f"{model}-docs.npz") for model in models]
    ids = documents[0]["ids"].tolist()
    parts = [[np.load(base / f"{model}-{part}.npz") for part in ("queries", "log")] for model in models]
    names = [name for part in parts[0] for name in part["ids"].tolist()]
    grades: dict[str, dict[str, float]] = {}
    for file in ("qrels.json", "log-qrels.json"):
        grades |= json.loads((base / file).read_text(encoding="utf-8"))
    copy_of = np.arange(ITEMS) % len(ids)
    old, new = (noisy(found["features"][copy_of], draw) for found in documents)
    popular = draw.permutation(len(names))
    share = 1 / np.arange(1, len(names) + 1)
    asked = popular[draw.choice(len(names), options.searches, p=share / share.sum())]
    old_queries, new_queries = (
        noisy(np.concatenate([part["features"] for part in found])[asked], draw) for found in parts
    )
    place = {name: row for row, name in enumerate(ids)}
    right = [{place[document] for document in grades.get(name, {})} for name in names]
    copies = np.bincount(copy_of, minlength=len(ids))

    def values(items: np.ndarray, scores: np.ndarray) -> np.ndarray:
        judged = np.array(
            [[float(copy_of[item] in right[query]) for item in row] for query, row in zip(asked, items, strict=True)]
        )
        entries = [(number, int(copies[row])) for number, query in enumerate(asked) for row in sorted(right[query])]
        numbers, count = (np.array([entry[i] for entry in entries]) for i in (0, 1))
        found: np.ndarray = SCORE(places_of_hits(scores, judged, numbers, np.ones(len(numbers)), count))
        return found

    by_old, by_new = nearest(old_queries, old, 50), nearest(new_queries, new, 10)
    rows = [
        list(zip(items, scores, strict=True))
        for items, scores in zip(by_old.indices.tolist(), by_old.scores.tolist(), strict=True)
    ]
    embedded = []

    def embed_items(items: Sequence[Any]) -> np.ndarray:
        embedded.append(len(items))
        return new[list(items)]

    hits, made = np.zeros((options.searches, 10), np.int64), np.zeros(options.searches, np.int64)
    with tempfile.TemporaryDirectory() as folder:
        upgrade = Upgrade(
            search=lambda vector, count: rows[int(vector[0])][:count],
            embed_old=lambda numbers: np.array([[float(number)] for number in numbers]),
            embed_new=lambda numbers: new_queries[numbers],
            embed_items=embed_items,
            cache=NewVectors(Path(folder) / "cache.sqlite", most=ITEMS),
        )
        begin = time.perf_counter()
        for number in range(options.searches):
            answer = upgrade.search(number, k=10)
            hits[number] = [hit.id for hit in answer.hits]
            made[number] = answer.embedded
        seconds = time.perf_counter() - begin
    by_place = -np.broadcast_to(np.arange(10.0), hits.shape)
    scores = {
        "keep": values(by_old.indices[:, :10], by_old.scores[:, :10]),
        "two_stage": values(hits, by_place),
        "re_embed": values(by_new.indices, by_new.scores),
    }
    parts_of_replay, start = [], 0
    for end in (end for end in ENDS if end <= options.searches):
        chosen = slice(start, end)
        gain = gain_interval(scores["keep"][chosen], scores["two_stage"][chosen], groups=asked[chosen])
        parts_of_replay.append(
            {
                "to": end,
                "embedded_per_search": float(made[chosen].mean()),
                "without": float((made[chosen] == 0).mean()),
                **{name: float(found[chosen].mean()) for name, found in scores.items()},
                "gain": [gain.value, gain.low, gain.high],
            }
        )
        start = end
    total = int(made.sum())
    record = {
        "kind": "replay",
        "items": ITEMS,
        "searches": options.searches,
        "embedded": total,
        "seconds": round(seconds, 1),
        "parts": parts_of_replay,
        "what": f"A replay of {options.searches:,} searches by a Zipf distribution over an index of {ITEMS:,} items "
        "(SciFact's documents, each about 19 times with noise; WordLlama to MiniLM; `papers/upgrades/replay.py`). New "
        "vectors are kept. nDCG@10 in per cent, where the copies of a right document are right.",
        "result": f"{total:,} items were embedded in all, {100 * total / ITEMS:.0f} % of the index.",
    }
    write_json(options.out, record)
    sys.stderr.write(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

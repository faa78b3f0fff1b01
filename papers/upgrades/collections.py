"""The collections of the study as arrays: vectors by each model, and judgements."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast.checks.judged_queries import JudgedQueries, judged_queries
from holdfast.metrics.intervals import repeated_queries
from holdfast.metrics.ranking import RankingScore, ranking_score
from holdfast.vectors.feature_set import feature_set
from holdfast.vectors.lengths import unit

SETS = {"scifact": "SciFact", "scifact-log": "SciFact's log", "cacm": "CACM", "cranfield": "Cranfield"}
PHOTOGRAPHS = "cub"
TITLES = {**SETS, PHOTOGRAPHS: "CUB photographs"}
MODELS = {
    "wordllama": "WordLlama", "l3": "L3", "minilm": "MiniLM", "mpnet": "mpnet",
    "lite0": "EfficientNet-lite0", "lite2": "EfficientNet-lite2",
}  # fmt: skip
PAIRS = (
    ("wordllama", "minilm"), ("wordllama", "mpnet"), ("l3", "minilm"), ("l3", "mpnet"), ("minilm", "mpnet"),
)  # fmt: skip
SCORE = ranking_score("nDCG@10")


@dataclass(frozen=True)
class Replacement:
    """One old and one new model on one collection: unit rows of the documents and of the judged queries."""

    name: tuple[str, str, str]
    old: np.ndarray
    new: np.ndarray
    old_queries: np.ndarray
    new_queries: np.ndarray
    judged: JudgedQueries
    repeats: np.ndarray
    score: RankingScore = SCORE

    def values(self, items: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """The score of each query's hits: nDCG@10, of photographs hit@1."""
        values: np.ndarray = self.judged.values(self.score, items, scores)
        return values


def read_replacement(folder: Path, name: str, old: str, new: str, rows: np.ndarray | None = None) -> Replacement:
    """One replacement from the files of ``embed.py``; rows: the documents to keep."""
    base = folder / name.removesuffix("-log")
    part, grades = ("log", "log-qrels.json") if name.endswith("-log") else ("queries", "qrels.json")
    documents = [np.load(base / f"{model}-docs.npz") for model in (old, new)]
    queries = [np.load(base / f"{model}-{part}.npz") for model in (old, new)]
    for pair in (documents, queries):
        assert pair[0]["ids"].tolist() == pair[1]["ids"].tolist(), f"{base}: files of {old} and {new} do not fit"
    chosen = slice(None) if rows is None else rows
    vectors = [one["features"][chosen] for one in documents]
    index = feature_set(name, vectors[0], None, documents[0]["ids"][chosen])
    relevance = json.loads((base / grades).read_text(encoding="utf-8"))
    judged = judged_queries(relevance, queries[0]["ids"], None, index)
    assert judged is not None
    asked = [one["features"][judged.rows] for one in queries]
    return Replacement((name, old, new), vectors[0], vectors[1], asked[0], asked[1], judged, repeated_queries(*asked))


def relevant_documents(folder: Path, name: str) -> np.ndarray:
    """Row numbers of the documents that are right for a query."""
    base, grades = folder / name.removesuffix("-log"), "log-qrels.json" if name.endswith("-log") else "qrels.json"
    relevance = json.loads((base / grades).read_text(encoding="utf-8"))
    right = {document for row in relevance.values() for document in row}
    ids = np.load(base / "wordllama-docs.npz")["ids"].tolist()
    return np.array([row for row, document in enumerate(ids) if document in right])


def photographs(folder: Path, models: Sequence[str], index_part: str = "test") -> list[tuple[np.ndarray, np.ndarray]]:
    """The index by both models, then the queries by both, each as features and labels.

    index_part: "test": of the photographs in ``MODEL-test.npz`` every second one of a class is in the index, the others
        are queries. "train": all of ``MODEL-train.npz`` are the index, and those queries are the same.
    """
    files = [np.load(folder / f"{model}-test.npz") for model in models]
    labels = files[0]["labels"]
    assert (labels == files[1]["labels"]).all()
    order = np.argsort(labels, kind="stable")
    place = np.empty(len(labels), np.int64)
    place[order] = np.arange(len(labels)) - np.searchsorted(labels[order], labels[order])
    halves = [[(file["features"][rows], labels[rows]) for file in files] for rows in (place % 2 == 0, place % 2 == 1)]
    if index_part == "train":
        trained = [np.load(folder / f"{model}-train.npz") for model in models]
        halves[0] = [(file["features"], file["labels"]) for file in trained]
    return [*halves[0], *halves[1]]


def read_photographs(folder: Path, old: str, new: str, index_part: str) -> Replacement:
    """CUB's photographs: right are those of the query's class, and the score is hit@1."""
    parts = photographs(folder, (old, new), index_part)
    vectors = [unit(features) for features, _ in parts]
    index = feature_set(PHOTOGRAPHS, vectors[0], parts[0][1])
    judged = judged_queries(None, np.arange(len(vectors[2])), parts[2][1], index)
    assert judged is not None
    asked = [rows[judged.rows] for rows in vectors[2:]]
    name = (PHOTOGRAPHS, old, new)
    repeats = repeated_queries(*asked)
    return Replacement(name, vectors[0], vectors[1], asked[0], asked[1], judged, repeats, ranking_score("hit@1"))

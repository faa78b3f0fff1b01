"""The collections of the study as arrays: vectors by each model, and judgements."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast.checks.judged_queries import JudgedQueries, judged_queries
from holdfast.metrics.intervals import repeated_queries
from holdfast.metrics.ranking import ranking_score
from holdfast.vectors.feature_set import feature_set

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

    def values(self, items: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """nDCG@10 of each query's hits."""
        values: np.ndarray = self.judged.values(SCORE, items, scores)
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
    relevance = json.loads((folder / name / "qrels.json").read_text(encoding="utf-8"))
    right = {document for row in relevance.values() for document in row}
    ids = np.load(folder / name / "wordllama-docs.npz")["ids"].tolist()
    return np.array([row for row, document in enumerate(ids) if document in right])

"""The judged queries of a comparison: which ones count, and the score of a ranking."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.checks.right_answers import Floats, Ints, Relevance, RightAnswers, judgement
from holdfast.checks.scores import hit_values
from holdfast.metrics.ranking import RankingScore
from holdfast.vectors.feature_set import FeatureSet


@dataclass(frozen=True)
class JudgedQueries:
    """The queries with a right answer in the index.

    rows: numbers of these queries among all queries (Q). answers: what is right for them.
    groups: which of them gain and lose together (Q). by_class: whether classes decide. notes: for the reader.
    """

    rows: Ints
    answers: RightAnswers
    groups: Ints
    by_class: bool
    notes: list[str]

    def values(self, score: RankingScore, items: Ints, scores: NDArray[np.float64]) -> Floats:
        """The score of each query's hits (Q x k item rows and scores, best first)."""
        return hit_values(score, self.answers, items, scores)


def judged_queries(
    relevance: Relevance | None, names: NDArray[Any], labels: NDArray[Any] | None, index: FeatureSet
) -> JudgedQueries | None:
    """The judged queries among ``names`` (their ids); None if there is neither relevance nor classes."""
    judged = judgement([index], names, labels, relevance)
    if judged is None:
        return None
    rows = np.flatnonzero(judged.answers.counts())
    answers = judged.answers.of(rows)
    return JudgedQueries(rows, answers, answers.groups(), judged.classes is not None, judged.notes)

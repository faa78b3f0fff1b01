"""Right answers without labels: the items that a full re-embedding shows to the new model's queries.

They say how closely a search in stored vectors follows the new model, not whether its hits are good.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.evaluation.feature_set import FeatureSet
from holdfast.evaluation.query_outcomes import RelevanceGroundTruth
from holdfast.evaluation.scores import OVERLAP
from holdfast.evaluation.search import Progress, VectorProblems, search_blocks, unit_blocks

AGREEMENT = (
    "no labels and no relevance: the right answers are the ten items that the new model shows when everything is "
    "re-embedded; whether these are better than the old model's hits was not judged"
)


def reembedded_hits(
    gallery: FeatureSet,
    gallery_new: FeatureSet,
    queries: Tensor,
    device: torch.device | str = "cpu",
    progress: Progress = lambda stage, done, total: None,
) -> tuple[RelevanceGroundTruth, VectorProblems]:
    """The first ten hits of each query among the re-embedded items of ``gallery``, as rows of ``gallery``.

    gallery: the stored items. gallery_new: the same items embedded by the new model, matched by id, or row by row
        if one of the two has no ids. Items that only ``gallery_new`` holds are left out; see ``items_of_both`` for
        the others.
    queries: the new model's unit queries, Q x d_new; a query of zeros has no right answer.
    """
    row_of = _matching_rows(gallery, gallery_new)
    problems = VectorProblems(gallery_new.name, len(gallery_new))
    blocks = _known_only(unit_blocks(gallery_new, problems, device, progress), row_of)
    (found,), _ = search_blocks(blocks, [queries], min(OVERLAP.k, int((row_of >= 0).sum())), gallery_new.name)
    hits = row_of[found.indices.cpu().numpy()]
    return RelevanceGroundTruth.of_hits(hits, queries.any(1).cpu().numpy(), len(gallery)), problems


def items_of_both(gallery: FeatureSet, gallery_new: FeatureSet) -> FeatureSet:
    """``gallery`` without the items that ``gallery_new`` does not hold, by id; these could only be wrong hits."""
    rows = _matching_rows(gallery, gallery_new)
    kept = np.sort(rows[rows >= 0])
    return gallery if len(kept) == len(gallery) else gallery.chosen(kept)


def _matching_rows(gallery: FeatureSet, gallery_new: FeatureSet) -> np.ndarray:
    """For each row of ``gallery_new`` the row of the same item in ``gallery``, -1 if it is not there."""
    if gallery.ids is None or gallery_new.ids is None:
        if len(gallery) != len(gallery_new):
            raise HoldfastError(
                f"{gallery_new.name}: {len(gallery_new):,} items, but {len(gallery):,} in {gallery.name}; without "
                "labels their items are compared, so give ids in both"
            )
        return np.arange(len(gallery))
    rows = {str(name): row for row, name in enumerate(gallery.ids)}
    found = np.array([rows.get(str(name), -1) for name in gallery_new.ids])
    if not (found >= 0).any():
        raise HoldfastError(f"{gallery_new.name}: has no id of {gallery.name}, so their items cannot be compared")
    return found


def _known_only(blocks: Iterator[tuple[np.ndarray, Tensor]], row_of: np.ndarray) -> Iterator[tuple[np.ndarray, Tensor]]:
    for numbers, vectors in blocks:
        known = row_of[numbers] >= 0
        if known.any():
            yield numbers[known], vectors[torch.from_numpy(known).to(vectors.device)]

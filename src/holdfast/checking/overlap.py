"""Without classes or relevance: how alike are the hits? A look, not a judgement."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from holdfast.checking.estimates import Estimate, Resampling
from holdfast.checking.feature_set import FeatureSet
from holdfast.checking.result import Overlap
from holdfast.checking.search import Condition, Progress, search_blocks, unit_blocks
from holdfast.metrics import mean_interval

HITS = 10


def overlap_of_hits(
    gallery: FeatureSet, query_sets: Sequence[Tensor], how: Resampling, device: torch.device | str, progress: Progress
) -> tuple[Overlap, Condition]:
    """The share of the first ten hits that old and new queries have in common, and how often the first is the same."""
    condition = Condition(gallery.name, len(gallery))
    k = min(HITS, len(gallery))
    found, _ = search_blocks(unit_blocks(gallery, condition, device, progress), query_sets, k, gallery.name)
    old, new = (part.indices.cpu().numpy() for part in found)
    shared = (old[:, :, None] == new[:, None, :]).any(2).mean(1)
    first = (old[:, 0] == new[:, 0]).astype(np.float64)
    options = {"confidence": how.confidence, "resamples": how.resamples, "seed": how.seed}
    estimates = [Estimate(float(v.mean()), *mean_interval(v, **options)) for v in (shared, first)]  # type: ignore[arg-type]
    return Overlap(k, *estimates), condition

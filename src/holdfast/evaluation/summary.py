"""From features to the numbers of a run: matrices under each protocol and what follows from them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from holdfast.evaluation.matrix import compatibility_matrix
from holdfast.features import ModelFeatures
from holdfast.metrics import compatibility_summary
from holdfast.space_map import SpaceMap


def judge_run(
    models: Sequence[ModelFeatures],
    query_labels: np.ndarray,
    gallery_labels: np.ndarray,
    *,
    protocols: Sequence[str] = ("template", "instance"),
    extra_scores: Sequence[str] = (),
    maps: Sequence[SpaceMap | None] = (),
    device: torch.device | str = "cpu",
    progress: Callable[[int], None] = lambda cells: None,
) -> dict[str, Any]:
    """Per protocol: AC, AA, ACA, AC_tau, AA_tau and the matrix of top-1; extra scores as matrices under "extras"."""
    judged: dict[str, Any] = {}
    for protocol in protocols:

        def matrix(score: str, protocol: str = protocol) -> np.ndarray:
            return compatibility_matrix(
                models,
                query_labels,
                gallery_labels,
                protocol=protocol,
                score=score,
                maps=maps,
                device=device,
                progress=progress,
            )

        top1 = matrix("top1")
        judged[protocol] = {**compatibility_summary(top1), "matrix": top1.tolist()}
        if extra_scores:
            judged[protocol]["extras"] = {score: matrix(score).tolist() for score in extra_scores}
    return judged

"""Check a trained version against the model before. ``Gallery.register`` measures on the gallery's own items."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from holdfast.checks import check
from holdfast.checks.verdict import FAILED, NOT_JUDGED, WITHOUT_JUDGEMENTS, WORSE
from holdfast.train.data import ImageSet
from holdfast.train.encoders import Encoder, extract
from holdfast.train.versions.parent import Parent
from holdfast.train.versions.samples import SampleRef
from holdfast.vectors import FeatureSet, feature_set

_SUMMARY = ("verdict", "reason", "score", "protocol", "confidence", "queries", "gallery", "classes", "gain",
            "self_test", "cross_test", "new_self_test", "better", "loss", "kept")  # fmt: skip
"""Keys of a check that the model's ``info`` repeats."""


def check_versions(
    parent: Parent,
    new: Encoder,
    samples: Sequence[SampleRef],
    pixels: np.ndarray,
    labels: Sequence[str],
    *,
    max_loss: float | None,
    device: torch.device,
) -> dict[str, Any]:
    """Whether the new model's queries may search the vectors of the old one, as JSON.

    samples, pixels, labels: N held-out samples, what was read of them, and their names in the report.
    max_loss: the loss that the check accepts; None for the default.

    Every sample is a query and an item of the gallery, and never finds itself. If some classes are known to the old
    model and some are new, the known ones decide, on a gallery of known classes: an old index holds no items of new
    classes. ``which`` is then "known classes", and ``parts`` has the checks of known, new and all classes; the latter
    two are on a gallery of all classes, as if the old model had embedded items of new classes too.
    """
    class_names = np.array([one.class_name for one in samples])
    names, codes, sizes = np.unique(class_names, return_inverse=True, return_counts=True)
    if len(names) < 2 or not (sizes > 1).any():
        things = "vectors" if new.preprocess is not None and new.preprocess.takes_vectors else "images"
        what = f"no class has two held-out {things}" if len(names) != 1 else f"all held-out {things} are of one class"
        reason = f"{what}; hold more out (held_out.share) or give --check-on"
        return {"verdict": NOT_JUDGED, "reason": reason, "exit_code": WITHOUT_JUDGEMENTS}
    images = ImageSet(pixels, codes.astype(np.int64), tuple(names.tolist()), "")
    before = extract(parent.encoder, images, device=device)
    after = extract(new, images, device=device)
    if before.shape != after.shape:
        lengths = f"{after.shape[1]} numbers each and those of the one before {before.shape[1]}"
        reason = (
            f"the new model's vectors have {lengths}; its queries need a bridge, which holdfast gallery register fits"
        )
        return {"verdict": WORSE, "reason": reason, "exit_code": FAILED}
    if np.array_equal(before, after):
        reason = "the new model gives the same vectors as the one before, so there is nothing to compare"
        return {"verdict": NOT_JUDGED, "reason": reason, "exit_code": WITHOUT_JUDGEMENTS}
    ids = np.array(labels)
    everything = np.ones(len(samples), dtype=bool)

    def part(features: np.ndarray, rows: np.ndarray, name: str) -> FeatureSet:
        return feature_set(name, features[rows], class_names[rows], ids[rows])

    def checked(queries: np.ndarray, gallery: np.ndarray) -> dict[str, Any]:
        return check(
            part(before, gallery, "the old model's stored vectors"),
            part(before, queries, "the old model's queries"),
            part(after, queries, "the new model's queries"),
            part(after, gallery, "the gallery embedded by the new model"),
            device=device,
            max_loss=max_loss,
        ).as_json()

    found = {"all classes": checked(everything, everything)}
    known, repeated = np.isin(class_names, list(parent.classes)), sizes[codes] > 1
    if (known & repeated).any() and (~known & repeated).any():
        several = len(np.unique(codes[known])) > 1  # with one class every answer would be right
        found = {
            "known classes": checked(known, known if several else everything),
            "new classes": checked(~known, everything),
            **found,
        }
    which, decides = next(iter(found.items()))
    if len(found) == 1:
        return decides
    parts = {name: {key: one[key] for key in _SUMMARY} for name, one in found.items()}
    return {**decides, "which": which, "parts": parts}


def check_evidence(record: dict[str, Any], parent: dict[str, str]) -> list[dict[str, Any]]:
    """The check in short, the part that decides first: known, new and all classes, or only all classes."""
    if "queries" not in record:
        return []
    parts = record.get("parts") or {"all classes": record}
    return [{**parent, "which": which, **{key: part[key] for key in _SUMMARY}} for which, part in parts.items()]

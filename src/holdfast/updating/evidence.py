"""Whether the new model's queries may search what the old one stored, judged on images that neither was trained on."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from holdfast.backbones import Encoder
from holdfast.checking import check, feature_set
from holdfast.checking.result import NOT_JUDGED
from holdfast.data import ImageSet
from holdfast.data.halves import half
from holdfast.features import extract
from holdfast.updating.pictures import Picture

_TOLD = ("verdict", "reason", "score", "protocol", "confidence", "queries", "gallery", "classes", "gain",
         "self_test", "cross_test")  # fmt: skip


def judge(
    old: Encoder,
    new: Encoder,
    pictures: Sequence[Picture],
    pixels: np.ndarray,
    called: Sequence[str],
    known: frozenset[str],
    *,
    min_gain: float,
    device: torch.device,
) -> dict[str, Any]:
    """The verdict: a seeded half of each class asks, the other half is stored, by both models.

    pictures, pixels, called: what is judged by, and its names in the report. known: the classes of the old model;
    where both known and new ones are asked for, each kind is judged by itself too, on the same stored images. "all"
    decides.
    """
    names = sorted({picture.name for picture in pictures})
    labels = np.array([names.index(picture.name) for picture in pictures], dtype=np.int64)
    asks = half(labels, "query", 0) if len(labels) else np.zeros(0, dtype=bool)
    if not asks.any():
        reason = "no class has two held-out images; hold more out (held_out.share) or give --check-on"
        return {"verdict": NOT_JUDGED, "reason": reason, "exit_code": 2}
    images = ImageSet(pixels, labels, tuple(names), "")
    before, after = (extract(model, images, device=device) for model in (old, new))
    of = np.array([picture.name for picture in pictures])
    ids = np.array(called)

    def rows(features: np.ndarray, which: np.ndarray, name: str) -> Any:
        return feature_set(name, features[which], of[which], ids[which])

    def judged(who: np.ndarray) -> dict[str, Any]:
        return check(
            rows(before, ~asks, "the old model's stored vectors"),
            rows(before, who, "the old model's queries"),
            rows(after, who, "the new model's queries"),
            rows(after, ~asks, "the same stored anew"),
            min_gain=min_gain,
            device=device,
        ).as_json()

    record = judged(asks)
    of_known = np.isin(of, list(known))
    parts = {"known classes": asks & of_known, "new classes": asks & ~of_known}
    if all(part.any() for part in parts.values()):
        told = {name: judged(part) for name, part in parts.items()}
        record["parts"] = {name: {key: found[key] for key in _TOLD} for name, found in told.items()}
    return record


def summary(record: dict[str, Any], parent: dict[str, str]) -> list[dict[str, Any]]:
    """What a model carries of its check: one entry for all classes, and one for known and new ones where they are."""
    if "queries" not in record:
        return []
    parts = {"all classes": record, **record.get("parts", {})}
    return [{**parent, "which": which, **{key: part[key] for key in _TOLD}} for which, part in parts.items()]

"""Check a trained version against the model before it, and write its folder; the seal is written last."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.checksums import write_checksums
from holdfast.data import ImageSet
from holdfast.data.openset import half_of_each_class
from holdfast.encoders import Encoder, extract
from holdfast.evaluation import FeatureSet, check, feature_set
from holdfast.evaluation.verdict import NOT_JUDGED
from holdfast.lifecycle.parent import BUFFER, HELD_OUT, METHOD, Parent
from holdfast.lifecycle.plan import Plan
from holdfast.lifecycle.samples import Sample
from holdfast.methods import Method
from holdfast.reports import write_check
from holdfast.storage import write_json, write_tensors
from holdfast.training.kept_features import BufferFeatures

VERDICT, PAGE, MAP, KEPT = "check.json", "check.html", "space_map.safetensors", "kept"

_SUMMARY = ("verdict", "reason", "score", "protocol", "confidence", "queries", "gallery", "classes", "gain",
            "self_test", "cross_test")  # fmt: skip
"""Keys of a check that the model's ``info`` repeats."""


@dataclass(frozen=True, eq=False)
class TrainedVersion:
    """A version after training.

    past: features of the next version's buffer under every version so far, for methods that read them.
    """

    encoder: Encoder
    method: Method
    method_name: str
    plan: Plan
    parent: Parent | None
    past: Sequence[BufferFeatures]


def write_version(
    out: Path, version: TrainedVersion, verdict: dict[str, Any] | None, old_items: list[dict[str, Any]]
) -> dict[str, Any]:
    """Write the version into ``out``; returns the model's ``info``. A folder without the seal is not complete.

    old_items: what ``measure_old_items`` found; empty for the first version.
    """
    encoder, method, plan, parent = version.encoder, version.method, version.plan, version.parent
    write_tensors(out / METHOD, method.state_dict())
    plan.buffer.save(out, BUFFER)
    plan.held_out.save(out, HELD_OUT)
    for number, one in enumerate(version.past, start=1):
        write_tensors(out / KEPT / f"{number:03d}.safetensors", one._asdict())
    space_map = method.space_map()
    if space_map is not None:
        space_map.save(out / MAP)
        if verdict is not None:
            note = f"checked without {MAP}: this method's stored vectors must pass through it at every update"
            verdict = {**verdict, "notes": [*verdict.get("notes", []), note]}
    if verdict is not None:
        write_json(out / VERDICT, verdict)
        if "queries" in verdict:
            write_check(verdict, out / PAGE)
    stale = ("parent", "evidence", "old_items", "data", "training_set")
    encoder.info = {
        **{key: value for key, value in encoder.info.items() if key not in stale},
        "task": plan.task.number,
        "start": plan.task.start,
        "reference": plan.task.reference,
        "method": version.method_name,
        # ``fit`` recorded the slots of a simplex. Without one, versions list their classes under the same key.
        **({"slots": plan.task.registry.to_json()} if method.num_slots is None else {}),
        "classes": list(plan.classes),
        "data": {
            "images": plan.num_trained,
            **({"of": "vectors"} if plan.images.holds_vectors else {}),
            "classes": len({int(label) for label in plan.images.labels[plan.task.new_indices]}),
            "new_classes": plan.task.num_new,
            "replayed": len(plan.task.buffer_indices),
            "fingerprint": plan.fingerprint,
            **({"skipped": plan.skipped} if plan.skipped else {}),
        },
        **({"parent": parent.record()} if parent else {}),
        **({"evidence": _evidence(verdict, parent.record())} if parent and verdict else {}),
        **({"old_items": old_items} if old_items else {}),
    }
    encoder.write_into(out)
    write_checksums(out)
    return encoder.info


def check_versions(
    parent: Parent,
    new: Encoder,
    samples: Sequence[Sample],
    pixels: np.ndarray,
    labels: Sequence[str],
    *,
    min_gain: float,
    device: torch.device,
) -> dict[str, Any]:
    """Whether the new model's queries may search the vectors of the old one, as JSON.

    samples, pixels, labels: N held-out samples, what was read of them, and their names in the report.

    A seeded half of each class are queries; the other half is the gallery. If there are queries of classes that the
    old model knows and of new ones, each kind is also checked by itself on the same gallery; all together decide.
    """
    class_names = np.array([one.class_name for one in samples])
    names, codes = np.unique(class_names, return_inverse=True)
    queries = half_of_each_class(codes, "query", 0) if len(codes) else np.zeros(0, dtype=bool)
    if not queries.any():
        reason = "no class has two held-out images; hold more out (held_out.share) or give --check-on"
        return {"verdict": NOT_JUDGED, "reason": reason, "exit_code": 2}
    images = ImageSet(pixels, codes.astype(np.int64), tuple(names.tolist()), "")
    before, after = (extract(model, images, device=device) for model in (parent.encoder, new))
    ids = np.array(labels)

    def part(features: np.ndarray, rows: np.ndarray, name: str) -> FeatureSet:
        return feature_set(name, features[rows], class_names[rows], ids[rows])

    def checked(rows: np.ndarray) -> dict[str, Any]:
        return check(
            part(before, ~queries, "the old model's stored vectors"),
            part(before, rows, "the old model's queries"),
            part(after, rows, "the new model's queries"),
            part(after, ~queries, "the gallery embedded by the new model"),
            min_gain=min_gain,
            device=device,
        ).as_json()

    record = checked(queries)
    known = np.isin(class_names, list(parent.classes))
    kinds = {"known classes": queries & known, "new classes": queries & ~known}
    if all(rows.any() for rows in kinds.values()):
        found = {name: checked(rows) for name, rows in kinds.items()}
        record["parts"] = {name: {key: one[key] for key in _SUMMARY} for name, one in found.items()}
    return record


def _evidence(record: dict[str, Any], parent: dict[str, str]) -> list[dict[str, Any]]:
    """The check in short: one entry for all classes, and one each for known and new classes if both were checked."""
    if "queries" not in record:
        return []
    parts = {"all classes": record, **record.get("parts", {})}
    return [{**parent, "which": which, **{key: part[key] for key in _SUMMARY}} for which, part in parts.items()]

"""Check a trained version against the model before it, and write its folder; the seal is written last."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.checksums import write_checksums
from holdfast.data import ImageSet
from holdfast.encoders import Encoder, extract
from holdfast.evaluation import FeatureSet, check, feature_set
from holdfast.evaluation.verdict import NOT_JUDGED
from holdfast.lifecycle.parent import BUFFER, HELD_OUT, METHOD, TRAINED, Parent
from holdfast.lifecycle.plan import Plan
from holdfast.lifecycle.samples import Sample
from holdfast.methods import Method
from holdfast.reports import write_check
from holdfast.storage import write_array, write_json, write_tensors
from holdfast.training.kept_features import BufferFeatures

VERDICT, PAGE, MAP, KEPT = "check.json", "check.html", "space_map.safetensors", "kept"

_SUMMARY = ("verdict", "reason", "score", "protocol", "confidence", "queries", "gallery", "classes", "gain",
            "self_test", "cross_test", "new_self_test", "min_gain", "loss", "kept")  # fmt: skip
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


@dataclass(frozen=True)
class Measured:
    """What was measured of a version, as JSON.

    accuracy: what ``known_class_accuracy`` found.
    verdict: what ``check_versions`` found; None for the first version.
    old_items: what ``measure_old_items`` found; empty for the first version.
    """

    accuracy: dict[str, Any]
    verdict: dict[str, Any] | None
    old_items: list[dict[str, Any]]


def write_version(out: Path, version: TrainedVersion, measured: Measured) -> dict[str, Any]:
    """Write the version into ``out``; returns the model's ``info``. A folder without the seal is not complete."""
    verdict, old_items = measured.verdict, measured.old_items
    encoder, method, plan, parent = version.encoder, version.method, version.plan, version.parent
    write_tensors(out / METHOD, method.state_dict())
    plan.buffer.save(out, BUFFER)
    plan.held_out.save(out, HELD_OUT)
    write_array(out / TRAINED, plan.trained)
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
    stale = ("parent", "accuracy", "evidence", "old_items", "data", "training_set")
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
        **({"accuracy": measured.accuracy} if measured.accuracy else {}),
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
    bounds: dict[str, float],
    device: torch.device,
) -> dict[str, Any]:
    """Whether the new model's queries may search the vectors of the old one, as JSON.

    samples, pixels, labels: N held-out samples, what was read of them, and their names in the report.
    bounds: ``max_loss`` or ``min_gain`` of the check; neither for the default.

    Every sample is a query and an item of the gallery, and never finds itself. If some classes are known to the old
    model and some are new, the known ones decide, on a gallery of known classes: an old index holds no items of new
    classes. ``which`` is then "known classes", and ``parts`` has the checks of known, new and all classes; the latter
    two are on a gallery of all classes, as if the old model had embedded items of new classes too.

    Of an adopted model there are only stored vectors: samples without one are left out.
    """
    stored = None
    if parent.stored is not None:
        there, vectors = parent.stored.features(samples)
        if not there.any():
            reason = "no held-out image has a stored vector; give --check-on with images of the old index"
            return {"verdict": NOT_JUDGED, "reason": reason, "exit_code": 2}
        stored, pixels = vectors[torch.from_numpy(there)].numpy(), pixels[there]
        samples, labels = ([one for one, kept in zip(all_, there) if kept] for all_ in (samples, labels))  # type: ignore[assignment]
    class_names = np.array([one.class_name for one in samples])
    names, codes, sizes = np.unique(class_names, return_inverse=True, return_counts=True)
    if len(names) < 2 or not (sizes > 1).any():
        what = "no class has two held-out images" if len(names) != 1 else "all held-out images are of one class"
        reason = f"{what}; hold more out (held_out.share) or give --check-on"
        return {"verdict": NOT_JUDGED, "reason": reason, "exit_code": 2}
    images = ImageSet(pixels, codes.astype(np.int64), tuple(names.tolist()), "")
    before = extract(parent.encoder, images, device=device) if stored is None else stored
    after = extract(new, images, device=device)
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
            leave_one_out=True,
            device=device,
            **bounds,  # type: ignore[arg-type]
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


def _evidence(record: dict[str, Any], parent: dict[str, str]) -> list[dict[str, Any]]:
    """The check in short, the part that decides first: known, new and all classes, or only all classes."""
    if "queries" not in record:
        return []
    parts = record.get("parts") or {"all classes": record}
    return [{**parent, "which": which, **{key: part[key] for key in _SUMMARY}} for which, part in parts.items()]

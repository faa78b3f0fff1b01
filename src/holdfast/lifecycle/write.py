"""A finished version on disk: the model, what the next one goes on from, the verdict, and the seal over it all.

What past versions gave the buffered images, for methods that read it; it travels from version to version.

Whether the new model's queries may search what the old one stored, judged on images that neither was trained on.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.checksums import seal
from holdfast.data import ImageSet
from holdfast.data.device_images import DeviceImages, StreamedImages
from holdfast.data.openset import half
from holdfast.encoders import Encoder, extract
from holdfast.evaluation import check, feature_set
from holdfast.evaluation.result import NOT_JUDGED
from holdfast.experiments.schema import Recipe
from holdfast.lifecycle.inputs import Picture
from holdfast.lifecycle.parent import BUFFER, HELD_OUT, METHOD, Parent
from holdfast.lifecycle.plan import Plan
from holdfast.methods import Method
from holdfast.reports import write_check
from holdfast.scenarios import Task
from holdfast.storage import read_tensors, write_json, write_tensors
from holdfast.training import KeptFeatures, remember
from holdfast.training.kept_features import Remembered

VERDICT, PAGE, MAP = "check.json", "check.html", "space_map.safetensors"


def write_version(
    out: Path,
    encoder: Encoder,
    method: Method,
    plan: Plan,
    recipe: Recipe,
    parent: Parent | None,
    verdict: dict[str, Any] | None,
    past: list[Remembered],
) -> dict[str, Any]:
    """Write it all, the seal last: without one the work is not done. The model's ``info``."""
    write_tensors(out / METHOD, method.state_dict())
    plan.buffer.save(out, BUFFER)
    plan.kept_out.save(out, HELD_OUT)
    write_past(out, past)
    space_map = method.space_map()
    if space_map is not None:
        space_map.save(out / MAP)
        if verdict is not None:
            note = f"judged without {MAP}: this method's stored vectors are meant to pass through it at every update"
            verdict = {**verdict, "notes": [*verdict.get("notes", []), note]}
    if verdict is not None:
        write_json(out / VERDICT, verdict)
        if "queries" in verdict:
            write_check(verdict, out / PAGE)
    stale = ("parent", "evidence", "data", "training_set")
    encoder.info = {
        **{key: value for key, value in encoder.info.items() if key not in stale},
        "task": plan.task.number,
        "start": plan.task.start,
        "reference": plan.task.reference,
        "method": recipe.method,
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
        },
        **({"parent": parent.record()} if parent else {}),
        **({"evidence": summary(verdict, parent.record())} if parent and verdict else {}),
    }
    encoder.write_into(out)
    seal(out)
    return encoder.info


KEPT = "kept"


def kept_features(
    method: Method,
    task: Task,
    images: DeviceImages | StreamedImages,
    parent: Parent | None,
    dim: int,
    *,
    anew: bool,
) -> tuple[KeptFeatures | None, list[Remembered]]:
    """The table a step reads, and what it was made of; rows are places in the buffer, which never change.

    anew: the buffer is another one than the past versions saw. Then, and where the folder holds none, the model before
    is asked again, and it alone is remembered. What has another size than ``dim`` is left out.
    """
    if parent is None or not method.reads_kept or not len(task.buffer_indices):
        return None, []
    files = [] if anew else sorted((parent.folder / KEPT).glob("*.safetensors"))
    past = [Remembered(**read_tensors(file)[0]) for file in files]
    if not any(one.features.shape[1] == dim for one in past):
        past = [remember(parent.encoder.to(images.device), images, task.buffer_indices)]
    fitting = [one for one in past if one.features.shape[1] == dim]
    return (KeptFeatures(task, images, fitting) if fitting else None), past


def remembered(
    method: Method,
    encoder: Encoder,
    images: DeviceImages | StreamedImages,
    plan: Plan,
    past: list[Remembered],
) -> list[Remembered]:
    """The past and, after it, what the model just trained gives the next version's buffer."""
    if not method.reads_kept or not len(plan.next_rows):
        return []
    features = remember(encoder, images, plan.next_rows).features
    return [*past, Remembered(torch.arange(len(plan.next_rows)), features)]


def write_past(folder: Path, past: list[Remembered]) -> None:
    for number, one in enumerate(past, start=1):
        write_tensors(folder / KEPT / f"{number:03d}.safetensors", one._asdict())


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

"""What past versions gave the buffered images, for methods that read it; it travels from version to version."""

from pathlib import Path

import torch

from holdfast.backbones import Encoder
from holdfast.data.device import DeviceImages
from holdfast.data.stream import StreamedImages
from holdfast.engine import KeptFeatures, remember
from holdfast.engine.kept import Remembered
from holdfast.methods import Method
from holdfast.scenarios import Task
from holdfast.storage import read_tensors, write_tensors
from holdfast.updating.parent import Parent
from holdfast.updating.plan import Plan

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

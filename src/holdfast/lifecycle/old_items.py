"""What a new version does to items that older versions embedded: bridges to them, and their expected exposure.

It is measured on images that both models embed, before any gallery has the new version. ``Gallery.register`` measures
the same on the gallery's own items and decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.bridges import Bridge
from holdfast.data import ImageSet
from holdfast.encoders import Encoder, extract
from holdfast.encoders.compact import change_basis, compact_basis
from holdfast.errors import HoldfastError
from holdfast.lifecycle.parent import Parent, describe_model
from holdfast.lifecycle.plan import Plan
from holdfast.wording import counted

FEWEST_IMAGES = 20
MOST_IMAGES = 1000


def images_of_both(plan: Plan, held_out: np.ndarray) -> ImageSet:
    """Images that both models can embed: the held-out ones and those that are kept for replay, at most 1,000.

    held_out: what was read of ``plan.checked``, N x H x W x C. Kept images of another size are left out.
    """
    names = [one.class_name for one in plan.checked.samples]
    pixels = [held_out]
    if plan.images.images.shape[1:] == held_out.shape[1:] or not len(held_out):
        pixels = [*([held_out] if len(held_out) else []), plan.images.images[plan.next_rows]]
        names += [plan.classes[label] for label in plan.images.labels[plan.next_rows]]
    together = np.concatenate(pixels)
    rows = np.sort(np.random.default_rng(0).permutation(len(together))[:MOST_IMAGES])
    classes, codes = np.unique(np.array(names)[rows], return_inverse=True)
    return ImageSet(together[rows], codes.astype(np.int64), tuple(classes.tolist()), "")


def measure_old_items(parent: Parent, new: Encoder, images: ImageSet, device: torch.device) -> list[dict[str, Any]]:
    """For the model before, and for each older one in a folder beside it, what happens to the items it embedded.

    Each entry has ``name``, ``weights_sha256``, ``version`` and what ``Bridge.summary`` says, or ``not_measured`` with
    the reason. Nothing is raised: a finished training is not lost because of this.
    """
    found = []
    ours: tuple[np.ndarray, torch.Tensor | None] | None = None
    for record, encoder in _older_models(parent):
        if encoder is None:
            reason = f"no folder of this name and with these weights is beside {parent.folder.resolve().name}"
        elif _takes_vectors(encoder) != _takes_vectors(new):
            measured = "holdfast gallery register measures it on the gallery's items"
            reason = f"it is an adopted model without a network; {measured}"
        elif len(images) < FEWEST_IMAGES:
            images_there = counted(len(images), "image")
            reason = f"{images_there} held out or kept, at least {FEWEST_IMAGES} are needed"
        else:
            try:
                ours = ours or _embedded(new, images, device)
                bridge = _fit(ours, _embedded(encoder, images, device), images, new.dim == encoder.dim)
                found.append({**record, **bridge.summary()})
                continue
            except (HoldfastError, RuntimeError) as error:  # RuntimeError: no memory on the device, or a failed SVD
                reason = str(error).splitlines()[0]
        found.append({**record, "not_measured": reason})
    return found


def _takes_vectors(encoder: Encoder) -> bool:
    return encoder.preprocess is not None and encoder.preprocess.takes_vectors


def _older_models(parent: Parent) -> Iterator[tuple[dict[str, Any], Encoder | None]]:
    """The model before, then each model before that, as long as it is found; the first that is not found has None."""
    yield {**parent.record(), "version": parent.number}, parent.encoder
    folder, info, number = parent.folder.resolve(), parent.info, parent.number
    while isinstance(info.get("parent"), Mapping):
        number -= 1
        record = {**{key: str(info["parent"].get(key)) for key in ("name", "weights_sha256")}, "version": number}
        encoder = _beside(folder, record)
        yield record, encoder
        if encoder is None:
            return
        info = encoder.info


def _beside(folder: Path, record: Mapping[str, Any]) -> Encoder | None:
    name = str(record["name"])
    if Path(name).name != name:
        return None
    try:
        if describe_model(folder.parent / name)["weights_sha256"] != record["weights_sha256"]:
            return None
        return Encoder.from_pretrained(folder.parent / name).float()
    except HoldfastError:
        return None


def _embedded(encoder: Encoder, images: ImageSet, device: torch.device) -> tuple[np.ndarray, torch.Tensor | None]:
    """Features as a gallery stores them, and their basis if they are compact."""
    basis = compact_basis(encoder)
    return extract(encoder, images, device=device, basis=basis), basis


def _fit(
    new: tuple[np.ndarray, torch.Tensor | None],
    old: tuple[np.ndarray, torch.Tensor | None],
    images: ImageSet,
    same_space: bool,
) -> Bridge:
    labels: Sequence[str] = [images.class_names[label] for label in images.labels]
    plain = change_basis(torch.from_numpy(new[0]), new[1], old[1]) if same_space else None
    return Bridge.fit(new[0], old[0], labels=labels, same_space=same_space, unbridged=plain)

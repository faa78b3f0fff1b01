"""Compare a trained version with older ones: the check against the model before, and what happens to older items.

The items of older versions are judged on images that both models embed, before any gallery has the new version.
``Gallery.register`` measures the same on the gallery's own items and decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.bridges import Bridge
from holdfast.checks import check
from holdfast.checks.verdict import FAILED, NOT_JUDGED, WITHOUT_JUDGEMENTS, WORSE
from holdfast.core.errors import HoldfastError, first_line
from holdfast.core.wording import counted
from holdfast.train.data import ImageSet
from holdfast.train.encoders import Encoder, extract
from holdfast.train.encoders.compact import change_basis, compact_basis
from holdfast.train.versions.parent import Parent, describe_model
from holdfast.train.versions.plan import Plan
from holdfast.train.versions.samples import Sample
from holdfast.vectors import FeatureSet, feature_set

FEWEST_IMAGES = 20
MOST_IMAGES = 1000
_SUMMARY = ("verdict", "reason", "score", "protocol", "confidence", "queries", "gallery", "classes", "gain",
            "self_test", "cross_test", "new_self_test", "better", "loss", "kept")  # fmt: skip
"""Keys of a check that the model's ``info`` repeats."""


def check_versions(
    parent: Parent,
    new: Encoder,
    samples: Sequence[Sample],
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

    Of an adopted model there are only stored vectors: samples without one are left out.
    """
    stored = None
    if parent.stored is not None:
        there, vectors = parent.stored.features(samples)
        if not there.any():
            reason = "no held-out image has a stored vector; give --check-on with images of the old index"
            return {"verdict": NOT_JUDGED, "reason": reason, "exit_code": WITHOUT_JUDGEMENTS}
        stored, pixels = vectors[torch.from_numpy(there)].numpy(), pixels[there]
        samples, labels = ([one for one, kept in zip(all_, there) if kept] for all_ in (samples, labels))  # type: ignore[assignment]
    class_names = np.array([one.class_name for one in samples])
    names, codes, sizes = np.unique(class_names, return_inverse=True, return_counts=True)
    if len(names) < 2 or not (sizes > 1).any():
        things = "vectors" if new.preprocess is not None and new.preprocess.takes_vectors else "images"
        what = f"no class has two held-out {things}" if len(names) != 1 else f"all held-out {things} are of one class"
        reason = f"{what}; hold more out (held_out.share) or give --check-on"
        return {"verdict": NOT_JUDGED, "reason": reason, "exit_code": WITHOUT_JUDGEMENTS}
    images = ImageSet(pixels, codes.astype(np.int64), tuple(names.tolist()), "")
    before = extract(parent.encoder, images, device=device) if stored is None else stored
    after = extract(new, images, device=device)
    if before.shape != after.shape:
        sizes = f"{after.shape[1]} numbers each and those of the one before {before.shape[1]}"
        reason = (
            f"the new model's vectors have {sizes}; its queries need a bridge, which holdfast gallery register fits"
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
            leave_one_out=True,
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
            images_there = counted(len(images), "vector" if images.holds_vectors else "image")
            reason = f"{images_there} held out or kept, at least {FEWEST_IMAGES} are needed"
        else:
            try:
                ours = ours or _embedded(new, images, device)
                bridge = _fit(ours, _embedded(encoder, images, device), images, new.dim == encoder.dim)
                found.append({**record, **bridge.summary()})
                continue
            except (HoldfastError, RuntimeError) as error:  # RuntimeError: no memory on the device, or a failed SVD
                reason = first_line(error)
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
    """Fit a bridge on the images whose vectors are not zero in either model; at least ``FEWEST_IMAGES``."""
    kept = np.flatnonzero(new[0].any(1) & old[0].any(1))
    if len(kept) < FEWEST_IMAGES:
        raise HoldfastError(
            f"{len(images) - len(kept)} of {len(images)} vectors are zero, at least {FEWEST_IMAGES} others are needed"
        )
    ours, theirs = new[0][kept], old[0][kept]
    labels: Sequence[str] = [images.class_names[label] for label in images.labels[kept]]
    plain = change_basis(torch.from_numpy(ours), new[1], old[1]) if same_space else None
    return Bridge.fit(new=ours, old=theirs, labels=labels, same_space=same_space, unbridged=plain)

"""Make another model version 0 from its stored vectors alone."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from holdfast.checksums import sha256_of
from holdfast.encoders import Encoder
from holdfast.errors import HoldfastError, unknown_name
from holdfast.evaluation import FeatureSet, feature_set
from holdfast.evaluation.check import check_options
from holdfast.evaluation.feature_files import read_features
from holdfast.geometry import DSimplex
from holdfast.lifecycle.adopted_model import write_adopted
from holdfast.lifecycle.adoption_result import MAP, PROJECTION, WAYS, Adoption, choose
from holdfast.lifecycle.adoption_trial import STEPS, Trial, fitted_projection, procrustes_map, ridge_map, try_ways
from holdfast.lifecycle.stored_vectors import StoredVectors, paired_rows, read_stored, split_classes
from holdfast.metrics.resampling import RESAMPLES
from holdfast.scenarios import SlotRegistry

Source = str | Path | FeatureSet | ArrayLike


def adopt(
    features: Source,
    labels: str | Path | ArrayLike | None = None,
    *,
    out: str | Path | None,
    new: Source | None = None,
    new_model: str | Path | None = None,
    way: str | None = None,
    slots: int | None = None,
    held_out: float = 0.3,
    confidence: float = 0.95,
    min_gain: float = 0.0,
    resamples: int = RESAMPLES,
    seed: int = 0,
    steps: int = STEPS,
) -> Adoption:
    """Compare three ways to adopt stored vectors on held-out classes, and write the best, or ``way``, to ``out``.

    features: the stored vectors: a file (npz, npy, parquet), a ``FeatureSet`` or an array, N x D.
    labels: their classes: a file or an array; None takes those in the features' file.
    out: folder of the adopted model; None writes nothing.
    new: a new model's features of the same items, paired by id or row by row. With them the queries of the new model
        decide between the ways; without them only the effect of a projection on the stored vectors is measured.
    new_model: the folder of that model. If the way is "map", the model followed by the map is written too.
    way: "projection", "means" or "map"; None takes the best.
    slots: vertices of the projection's simplex. None: twice the number of classes, and at least D + 2, below which a
        projection loses dimensions.
    held_out: share of the classes that nothing is fitted to, between 0 and 1.
    confidence: of the two-sided intervals, at least 0.5 and below 1.
    min_gain: a way is good enough if its gain is shown to be above this fraction of 1.
    resamples: number of bootstrap resamples.
    seed: of the split by class, the fits and the resamples.
    steps: Adam steps of each fit without a closed form.

    The written model is fitted again to all classes. A new model trained as a whole may score higher than the linear
    layers tried here.
    """
    check_options("instance", confidence, min_gain, resamples)
    if way is not None and way not in WAYS:
        raise unknown_name("way", way, WAYS)
    if way == MAP and new is None:
        raise HoldfastError("the way of a map needs a new model's features of the same items; give them as new")
    stored = read_stored(features, labels)
    target = None if out is None else _unused(Path(out))
    model = None if new_model is None else Encoder.from_pretrained(new_model)
    paired = None if new is None else paired_rows(stored, _new_set(new))
    if model is not None and paired is not None and model.dim != paired.shape[1]:
        raise HoldfastError(f"{new_model}: gives {model.dim} numbers, but its features here have {paired.shape[1]}")
    split = split_classes(stored.labels, held_out=held_out, seed=seed, name=stored.name)
    num_slots = slots or max(2 * len(stored.class_names), stored.dim + 2)
    if num_slots == stored.dim + 1:
        raise HoldfastError(
            f"slots {num_slots}: its simplex has the vectors' own {stored.dim} dimensions; take one more"
        )
    registry = SlotRegistry(num_slots).take_left(stored.class_names)
    slot = torch.tensor([registry.slot(name) for name in stored.class_names])
    trial = Trial(
        stored.vectors,
        paired,
        stored.labels,
        slot[torch.from_numpy(stored.labels)],
        DSimplex(num_slots),
        split,
        confidence,
        resamples,
        min_gain,
        seed,
        steps,
    )
    ways = list(try_ways(trial))
    chosen, reason, good = choose(ways, way)
    found = Adoption(
        chosen=chosen,
        reason=reason,
        good_enough=good,
        vectors=len(stored),
        dim=stored.dim,
        classes=len(stored.class_names),
        held_out_classes=len(np.unique(stored.labels[split.queries])),
        queries=len(split.queries),
        confidence=confidence,
        min_gain=min_gain,
        as_stored=trial.score(trial.outcomes(stored.vectors, stored.vectors)),
        new_alone=None if paired is None else trial.score(trial.outcomes(paired, paired)),
        ways=ways,
        notes=_notes(num_slots, stored.dim, stored.has_ids, paired is not None),
    )
    if target is not None:
        _write(target, found, trial, registry, stored, _origin(features, labels, stored), model)
    return found


def _write(
    target: Path,
    found: Adoption,
    trial: Trial,
    registry: SlotRegistry,
    stored: StoredVectors,
    origin: dict[str, Any],
    model: Encoder | None,
) -> None:
    settings = found.way(found.chosen).settings
    matrix = None
    if found.chosen == PROJECTION:
        matrix = fitted_projection(trial, settings["pull"], slice(None))
    elif found.chosen == MAP:
        assert trial.new is not None
        is_ridge = settings["map"] == "ridge"
        matrix = (
            ridge_map(trial.new, trial.old, settings["ridge"]) if is_ridge else procrustes_map(trial.new, trial.old)
        )
    write_adopted(
        target,
        stored,
        found,
        way=found.chosen,
        matrix=matrix,
        registry=registry if found.chosen == PROJECTION else None,
        features=origin,
        new_model=model,
    )


def _origin(features: Source, labels: str | Path | ArrayLike | None, stored: StoredVectors) -> dict[str, Any]:
    """Where the vectors are stored, for later training against them; None for arrays in memory."""
    file = Path(features).absolute() if isinstance(features, str | Path) else None
    return {
        "path": None if file is None else str(file),
        "sha256": sha256_of(file) if file is not None and file.is_file() else None,
        "labels": str(Path(labels).absolute()) if isinstance(labels, str | Path) else None,
        "vectors": len(stored),
        "dim": stored.dim,
    }


def _notes(slots: int, dim: int, has_ids: bool, has_new: bool) -> list[str]:
    notes = []
    if slots - 1 < dim:
        notes.append(f"{slots} slots are fewer than the vectors' {dim} numbers, so the projection loses dimensions")
    if not has_ids:
        notes.append("the vectors have no ids: new models cannot be trained against them, only checked")
    if has_new:
        notes.append(
            "a new model that was trained on the held-out classes gains more on them than on classes it never saw"
        )
    return notes


def _unused(path: Path) -> Path:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise HoldfastError(f"{path}: already there; give the adopted model a folder of its own")
    return path


def _new_set(new: Source) -> FeatureSet:
    if isinstance(new, FeatureSet):
        return new
    if isinstance(new, str | Path):
        return read_features(new, "gallery")
    return feature_set("new", new)

"""Fit a bridge from a new model's vectors to the vectors as an attached store holds them."""

import numpy as np
import torch

from holdfast.bridges import Bridge
from holdfast.bridges.choice import FEWEST_PAIRS
from holdfast.errors import HoldfastError
from holdfast.gallery.attached.source import AttachedSource
from holdfast.gallery.attached.space import StoredSpace
from holdfast.gallery.bridge_pairs import NewVectors
from holdfast.gallery.registration import RegisterOptions
from holdfast.gallery.versions import Candidate, Version
from holdfast.geometry import unit
from holdfast.wording import counted

_FETCHED_AT_ONCE = 500
"""Stored vectors that are fetched by id at a time."""


def fit_bridge(
    source: AttachedSource,
    space: StoredSpace,
    candidate: Candidate,
    versions: tuple[Version, Version],
    options: RegisterOptions,
    *,
    comparable: bool,
) -> Bridge:
    """The bridge from the new model's full features to the stored vectors.

    versions: of the stored vectors, and of the new model.
    options: with ``new_vectors``.
    comparable: whether features of the model can search the store without a bridge.
    Refused: fewer than 10 stored items in ``new_vectors``; no bridge that helps, unless forced.
    """
    assert options.new_vectors is not None
    given, (old_version, new_version) = NewVectors(options.new_vectors), versions
    rows, old = _stored_pairs(source, given, options)
    if len(rows) < FEWEST_PAIRS:
        found = f"{given.name}: has ids of {counted(len(rows), 'stored vector')} of {source.name}"
        raise HoldfastError(f"{found}, and a bridge needs {FEWEST_PAIRS}; add more, with the ids of the store")
    new = torch.from_numpy(given.stored(rows, new_version, candidate.basis))
    if candidate.basis is not None:
        new = unit(new @ candidate.basis.T)
    options.progress("fitting the bridge", 0, 1)
    bridge = Bridge.fit(
        new,
        old,
        kind=options.bridge,
        items=source.count(),
        same_space=comparable,
        unbridged=space.plain_query(new) if comparable else None,
        models={"new": new_version.weights_sha256, "old": old_version.weights_sha256},
    )
    options.progress("fitting the bridge", 1, 1)
    if not bridge.helps and not options.force:
        raise HoldfastError(
            f"{candidate.folder}: no bridge helps: on {bridge.evidence.held_out} held-out items it finds no more than "
            f"random hits would; check that the ids of {given.name} name the same items, or pass --force (in Python "
            "force=True)"
        )
    return bridge


def _stored_pairs(source: AttachedSource, given: NewVectors, options: RegisterOptions) -> tuple[list[int], np.ndarray]:
    """Row numbers of ``given`` with a stored vector, at random with a fixed seed, and these vectors.

    Stored vectors that are zero or not finite are left out.
    """
    ids, most = given.ids(), options.bridge_pairs
    order = np.random.default_rng(0).permutation(len(ids)).tolist()
    rows: list[int] = []
    vectors: list[np.ndarray] = []
    for start in range(0, len(order), _FETCHED_AT_ONCE):
        block = order[start : start + _FETCHED_AT_ONCE]
        found = source.fetch([ids[row] for row in block])
        for row in block:
            vector = found.get(ids[row])
            if vector is not None and np.isfinite(vector).all() and vector.any():
                rows.append(row)
                vectors.append(vector)
        options.progress("fetching stored vectors", min(len(rows), most), min(len(ids), most))
        if len(rows) >= most:
            break
    return rows[:most], np.array(vectors[:most], dtype=np.float32)

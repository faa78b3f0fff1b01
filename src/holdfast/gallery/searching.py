"""One question to all versions, merged by true cosine."""

from dataclasses import dataclass

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.engine import Engine
from holdfast.gallery.filters import Filter
from holdfast.gallery.items import Hit, checked_id
from holdfast.gallery.models import Models
from holdfast.gallery.versions import Version

TRIES = 3


@dataclass(frozen=True)
class Question:
    """A query vector as ``source`` stores it, and how many of which items it asks for; ``itself`` is left out."""

    vector: np.ndarray
    source: Version
    k: int
    where: Filter | None
    exact: bool
    itself: int | None = None


def search_all(engine: Engine, catalogue: Catalogue, models: Models, question: Question) -> list[Hit] | None:
    """The best items of all versions; None where items were taken from their keys again and again meanwhile.

    An item that moves to another version while this runs might be missed in both: then the answer is thrown away.
    """
    for _ in range(TRIES):
        before = catalogue.changes
        hits, after = _search(engine, catalogue, models, question)
        if after == before:
            return hits
    return None


def _search(engine: Engine, catalogue: Catalogue, models: Models, question: Question) -> tuple[list[Hit], int]:
    versions = models.versions()
    carried = [models.carry(question.vector[None], question.source, version)[0] for version in versions]
    wanted = question.k + (question.itself is not None)
    while True:
        answers = [
            engine.search(version.collection, vector, wanted, question.where, exact=question.exact)
            for version, vector in zip(versions, carried, strict=True)
        ]
        owned, changes = catalogue.by_key([one.key for found in answers for one in found])
        owned.pop(question.itself, None)  # type: ignore[arg-type]
        live = [[one for one in found if one.key in owned] for found in answers]
        # A vector that is being written or deleted belongs to nobody; where such took up places, more are asked for.
        if all(len(found) < wanted or len(kept) >= question.k for found, kept in zip(answers, live, strict=True)):
            break
        wanted *= 2
    # The scores are inner products with the carried query, its length included: cosines of full features.
    merged = sorted((one for kept in live for one in kept), key=lambda one: (-one.score, one.key))
    return [owned[one.key].hit(one.score) for one in merged[: question.k]], changes


def stored_vector(engine: Engine, catalogue: Catalogue, models: Models, name: str) -> tuple[Version, np.ndarray, int]:
    """Version, vector and key of an item; KeyError where it was taken from its key meanwhile."""
    found = catalogue.by_id([checked_id(name)]).get(name)
    if found is None:
        raise HoldfastError(f"no item {name!r} in the gallery")
    version = models.version(found.version)
    return version, engine.fetch(version.collection, [found.key])[found.key], found.key

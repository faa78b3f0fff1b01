"""The result of an adoption: the three ways compared, and the choice among them."""

from dataclasses import asdict, dataclass, field
from typing import Any, final

from holdfast.evaluation.estimates import Estimate
from holdfast.evaluation.verdict import COMPATIBLE, non_inferior
from holdfast.storage import without_nan

PROJECTION, MEANS, MAP = "projection", "means", "map"
_LEAST_CHANGE = (MEANS, MAP, PROJECTION)
WAYS = {
    PROJECTION: "a bias-free projection of the stored vectors into a simplex; new models train on its vertices",
    MEANS: "prototypes at the stored class means; new models train into the stored vectors' own space",
    MAP: "a linear map of an independent new model's queries into the stored vectors' own space",
}


@final
@dataclass(frozen=True)
class Later:
    """A new model's queries on the stored vectors, on held-out classes, compared with the old queries.

    cross: the score of the new queries.
    gain: over the score of the old queries.
    verdict, reason: as in ``check``.
    untouched: the gain if the stored vectors are searched without the projection; None if there is no projection.
    """

    cross: Estimate
    gain: Estimate
    verdict: str
    reason: str
    untouched: Estimate | None = None


@final
@dataclass(frozen=True)
class Way:
    """One way to adopt, measured on held-out classes.

    name: a key of ``WAYS``.
    settings: the chosen settings; chosen on classes that are neither fitted nor held out.
    stored: the score of the stored vectors after a projection; None if the way does not change them.
    stored_gain: their gain over the vectors as stored; None likewise.
    later: a new model's queries; None without a new model's features.
    """

    name: str
    settings: dict[str, Any]
    stored: Estimate | None = None
    stored_gain: Estimate | None = None
    later: Later | None = None


@final
@dataclass(frozen=True)
class Adoption:
    """The report of an adoption. Scores are top-1 among held-out classes, in [0, 1], with intervals.

    chosen: the way that was written.
    reason: why it was chosen.
    good_enough: whether a new model's queries are shown to beat the old ones by more than ``min_gain`` on held-out
        classes; None without a new model's features.
    vectors, dim, classes: number of stored vectors, their size, number of classes.
    held_out_classes, queries: number of classes held out from all fitting, and of their queries.
    as_stored: the score of the stored vectors.
    new_alone: the score of the new model with everything embedded by it.
    ways: one entry for each way.
    """

    chosen: str
    reason: str
    good_enough: bool | None
    vectors: int
    dim: int
    classes: int
    held_out_classes: int
    queries: int
    confidence: float
    min_gain: float
    as_stored: Estimate
    new_alone: Estimate | None
    ways: list[Way]
    notes: list[str] = field(default_factory=list)

    def way(self, name: str) -> Way:
        return next(way for way in self.ways if way.name == name)

    def as_json(self) -> dict[str, Any]:
        """Everything as plain types; NaN and infinities are None."""
        found: dict[str, Any] = without_nan(asdict(self))
        return found


def _is_good(later: Later) -> bool:
    return later.verdict == COMPATIBLE


def choose(ways: list[Way], wanted: str | None) -> tuple[str, str, bool | None]:
    """The name of the chosen way, the reason, and whether it is good enough.

    wanted: the caller's choice, or None.

    With a new model's features: the way with the largest gain of its queries, first among ways with a shown gain; of
    equal ways the one that changes least. Without: the projection if the stored vectors are shown to gain by it, else
    the class means, which do not change the vectors.
    """
    measured = {way.name: way.later for way in ways if way.later is not None}
    if measured:
        by_change = sorted(measured, key=_LEAST_CHANGE.index)
        best = max(by_change, key=lambda name: (_is_good(measured[name]), measured[name].gain.value))
        name = wanted or best
        good = _is_good(measured[name])
        any_good = any(map(_is_good, measured.values()))
        reason = "requested" if wanted else "the largest gain of new queries on held-out classes"
        if not any_good:
            reason += "; none of the ways is good enough: no gain is shown on held-out classes"
        return name, reason, good
    if wanted:
        return wanted, "requested; the score of later models is not known without a new model's features", None
    projected = next(way for way in ways if way.name == PROJECTION)
    if projected.stored_gain is not None and non_inferior(projected.stored_gain):
        return PROJECTION, "the stored vectors are shown to gain by it on held-out classes", None
    return MEANS, "it does not change the stored vectors, and the projection is not shown to improve them", None

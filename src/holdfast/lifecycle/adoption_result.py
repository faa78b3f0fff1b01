"""What an adoption found: the three ways side by side, and which of them is offered."""

from dataclasses import asdict, dataclass, field
from typing import Any, final

from holdfast.evaluation.estimates import Estimate
from holdfast.evaluation.result import COMPATIBLE
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
    """A new model's queries on the store, on held-out classes, against the old queries there.

    cross: their score. gain: over what the store gives today. untouched: the gain where the store is searched as it is
    although the way compares through a projection; None where that is the same.
    """

    cross: Estimate
    gain: Estimate
    verdict: str
    reason: str
    untouched: Estimate | None = None


@final
@dataclass(frozen=True)
class Way:
    """One way on held-out classes. stored, stored_gain: the stored vectors by themselves; None where it leaves them be.

    settings: what was chosen, on classes that are neither fitted nor held out. later: None without a new model's
    features.
    """

    name: str
    settings: dict[str, Any]
    stored: Estimate | None = None
    stored_gain: Estimate | None = None
    later: Later | None = None


@final
@dataclass(frozen=True)
class Adoption:
    """The report: scores in [0, 1], top-1 among held-out classes, with intervals.

    chosen: the way that was written. good_enough: whether a new model's queries, on held-out classes, are shown to beat
    the old ones by more than ``min_gain``; None where no new model was at hand to tell.
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
    """The way to offer, why, and whether it is good enough.

    With a new model's features: the largest gain of its queries, among the ways where one is shown if there are any;
    of equals the one that changes least. Without: the projection if the stored vectors are
    shown to gain by it, else prototypes at the means, which leave them as they are.
    """
    judged = {way.name: way.later for way in ways if way.later is not None}
    if judged:
        by_change = sorted(judged, key=_LEAST_CHANGE.index)
        best = max(by_change, key=lambda name: (_is_good(judged[name]), judged[name].gain.value))
        name = wanted or best
        good = _is_good(judged[name])
        any_good = any(map(_is_good, judged.values()))
        reason = "asked for" if wanted else "the largest gain of new queries on held-out classes"
        if not any_good:
            reason += "; none of the ways is good enough: no gain is shown on held-out classes"
        return name, reason, good
    if wanted:
        return wanted, "asked for; what later models reach is not known without a new model's features", None
    projected = next(way for way in ways if way.name == PROJECTION)
    if projected.stored_gain is not None and projected.stored_gain.low > 0:
        return PROJECTION, "the stored vectors are shown to gain by it on held-out classes", None
    return MEANS, "it leaves the stored vectors as they are, and the projection is not shown to improve them", None

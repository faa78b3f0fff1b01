"""The result of an adoption: the ways compared, what each number answers, and the choice among the ways."""

from dataclasses import asdict, dataclass, field
from typing import Any, final

from holdfast.checks.estimates import Estimate
from holdfast.checks.verdict import BETTER
from holdfast.core.storage import without_nan
from holdfast.core.wording import counted

PROJECTION, MEANS, BRIDGE, UNCHANGED = "projection", "means", "bridge", "unchanged"
_LEAST_CHANGE = (MEANS, BRIDGE, PROJECTION)
WAYS = {
    PROJECTION: "a bias-free projection of the stored vectors into a simplex; new models train on its vertices",
    MEANS: "prototypes at the stored class means; new models train into the stored vectors' own space",
    BRIDGE: "a bridge that carries the queries of an independent new model into the stored vectors' own space",
    UNCHANGED: "the stored vectors' own space as it is; nothing is fitted",
}
NEEDS_CLASSES = (PROJECTION, MEANS)

SAME_CLASSES = "unseen items of the same classes"
OTHER_CLASSES = "classes that nothing was fitted on"


@final
@dataclass(frozen=True)
class Question:
    """What is asked of every way, and what the vectors score without any.

    queries, classes: number of queries that were searched, and of their classes.
    as_stored: top-1 of the old model's queries on the stored vectors.
    new_alone: top-1 of the new model with everything embedded by it; None without its vectors.
    held_out: number of items that could be queries; ``queries`` of them were drawn at random. The whole gallery is
        searched.
    """

    queries: int
    classes: int
    as_stored: Estimate
    new_alone: Estimate | None
    held_out: int


def searched(question: Question) -> str:
    """How many queries were searched, and of how many if they are a sample."""
    if question.queries == question.held_out:
        return counted(question.queries, "query")
    return f"{question.queries:,} of {counted(question.held_out, 'query')}, drawn at random,"


@final
@dataclass(frozen=True)
class Later:
    """A new model's queries on the stored vectors, compared with the old queries.

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
    """One way to adopt, measured by two questions.

    name: a key of ``WAYS``.
    settings: the chosen settings. Those of a projection or of class means are chosen on classes that are neither fitted
        nor held out, those of a bridge on held-out pairs.
    stored: the score of the stored vectors after a projection, on classes that nothing was fitted on; None if the way
        does not change them.
    stored_gain: their gain over the vectors as stored; None likewise.
    same_classes: a new model's queries, for unseen items of the same classes; None if that cannot be measured.
    other_classes: the same for classes that nothing was fitted on.
    """

    name: str
    settings: dict[str, Any]
    stored: Estimate | None = None
    stored_gain: Estimate | None = None
    same_classes: Later | None = None
    other_classes: Later | None = None

    @property
    def later(self) -> Later | None:
        """The answer that decides: for unseen items of the same classes, the usual case, if it is known."""
        return self.same_classes or self.other_classes


@final
@dataclass(frozen=True)
class Adoption:
    """The report of an adoption. Scores are in [0, 1], with intervals.

    chosen: the way that was written.
    reason: why it was chosen.
    good_enough: whether a new model's queries are shown to beat the old ones by more than ``min_gain`` on unseen items
        of the same classes. Without classes False if no bridge helps, else None: not known. None without a new model's
        vectors.
    judged: what was measured, in words.
    vectors, dim: number of stored vectors, and their size.
    classes: number of classes; 0 if none are known.
    pairs: number of stored items that the new model's vectors are known of; None without a new model's vectors.
    confidence, min_gain: of the verdicts.
    same_classes, other_classes: the two questions; None if they could not be asked.
    ways: one entry for each way that was tried.
    bridge: kind, scale and evidence of the bridge that is fitted on all pairs; None without a new model's vectors.
    """

    chosen: str
    reason: str
    good_enough: bool | None
    judged: str
    vectors: int
    dim: int
    classes: int
    pairs: int | None
    confidence: float
    min_gain: float
    same_classes: Question | None
    other_classes: Question | None
    ways: list[Way]
    bridge: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)

    def way(self, name: str) -> Way:
        return next(way for way in self.ways if way.name == name)

    def as_json(self) -> dict[str, Any]:
        """Everything as plain types; NaN and infinities are None."""
        found: dict[str, Any] = without_nan(asdict(self))
        return found


def _is_good(later: Later) -> bool:
    return later.verdict == BETTER


def choose(ways: list[Way], wanted: str | None) -> tuple[str, str, bool | None]:
    """The name of the chosen way, the reason, and whether it is good enough. Classes are known.

    wanted: the caller's choice, or None.

    With a new model's vectors: the way with the largest gain of its queries, first among ways with a shown gain; of
    equal ways the one that changes least. Without: the projection if the stored vectors are shown to gain by it, else
    the class means, which do not change the vectors.
    """
    measured = {way.name: way.later for way in ways if way.later is not None}
    if measured:
        by_change = sorted(measured, key=_LEAST_CHANGE.index)
        best = max(by_change, key=lambda name: (_is_good(measured[name]), measured[name].gain.value))
        name = wanted or best
        good = _is_good(measured[name]) if name in measured else None
        any_good = any(map(_is_good, measured.values()))
        reason = "requested" if wanted else f"the largest gain of new queries on {SAME_CLASSES}"
        if not any_good:
            reason += "; none of the ways is good enough: no gain is shown"
        return name, reason, good
    if wanted:
        reason = "requested; the score of later models is not known: there are no vectors of a new model, or too few"
        return wanted, reason, None
    projected = next(way for way in ways if way.name == PROJECTION)
    if projected.stored_gain is not None and projected.stored_gain.low > 0:
        return PROJECTION, f"the stored vectors are shown to gain by it on {OTHER_CLASSES}", None
    return MEANS, "it does not change the stored vectors, and the projection is not shown to improve them", None


def choose_without_classes(wanted: str | None, helps: bool | None) -> tuple[str, str, bool | None]:
    """As ``choose``, if no classes are known or used.

    helps: whether the bridge finds more than random hits would; None without a new model's vectors.
    """
    if helps is None:
        return UNCHANGED, "requested" if wanted else "no classes and no new model's vectors are known", None
    if helps:
        return BRIDGE, "requested" if wanted else "the bridge helps, and the other ways need classes", None
    if wanted == BRIDGE:
        return BRIDGE, "requested, but no bridge helps: it finds no more than random hits would", False
    return UNCHANGED, "no bridge helps: bridged queries find no more than random hits would", False

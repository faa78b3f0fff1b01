"""Results of a check as plain records, and their JSON."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

from holdfast.checks.estimates import Estimate
from holdfast.checks.verdict import FAILED, NOT_JUDGED, PASSED, REACHED, WITHOUT_JUDGEMENTS, YES, Answer
from holdfast.core.storage import without_nan


@dataclass(frozen=True)
class Changes:
    """Queries that score lower (lost) or higher (gained) with the new model, and the p-value of the sign test."""

    gained: int
    lost: int
    p_value: float
    lost_queries: list[dict[str, Any]]


@dataclass(frozen=True)
class Reindex:
    """The gain of re-embedding the gallery with the new model.

    adds: score of the new model on its own gallery minus the cross-test.
    share_reached: (cross - self) / (new self - self); NaN unless re-embedding gains anything.
    """

    adds: Estimate
    share_reached: float


@dataclass(frozen=True)
class Overlap:
    """How similar the old and the new hits are: agreement, not accuracy."""

    k: int
    shared: Estimate
    same_first: Estimate


@dataclass(frozen=True)
class Agreement:
    """How much of a full re-embedding searches of the old gallery show. It is no accuracy, and no verdict.

    k: the number of items that a re-embedding shows for each query.
    old, new: the mean share of them among the first k hits of the old queries, and of the new ones.
    minimum: the share that was asked for (``min_agreement``); None if nothing was.
    gate: "reached" if the whole interval of ``new`` lies at or above it, "missed" if it lies below, else "not shown";
        None if nothing was asked for.
    """

    k: int
    old: Estimate
    new: Estimate
    minimum: float | None = None
    gate: str | None = None


@dataclass(frozen=True)
class WithoutBridge:
    """What the new queries score on the old gallery as they are, beside the bridged ones."""

    cross_test: Estimate
    gain: Estimate


@dataclass(frozen=True)
class Result(ABC):
    """The part that all results share."""

    kind: ClassVar[str]

    verdict: str
    reason: str

    @property
    @abstractmethod
    def exit_code(self) -> int:
        """The exit status of the command."""

    def __repr__(self) -> str:
        """The answers, the score behind them and the exit status in a line; ``as_json`` has everything."""
        answers = [getattr(self, name, None) for name in ("better", "loss")]
        said = [f"{answer.question}: {answer.answer}" for answer in answers if answer is not None]
        gain = getattr(self, "gain", None)
        if gain is not None:
            said.append(f"gain {100 * gain.value:+.2f} points ({100 * gain.low:+.2f} to {100 * gain.high:+.2f})")
        told = "; ".join(said) or f"{self.verdict}: {self.reason}"
        return f"<{type(self).__name__}: {told}; exit code {self.exit_code}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from holdfast.reports import check_report, html_fragment

        return html_fragment(check_report(self.as_json()))

    def as_json(self) -> dict[str, Any]:
        """Everything as plain types; NaN and infinities are None."""
        found: dict[str, Any] = without_nan({"kind": self.kind, **vars(self), "exit_code": self.exit_code})
        return found


@final
@dataclass(frozen=True, repr=False)
class CheckResult(Result):
    """The result of ``check``. Scores are in [0, 1]; None if not measured.

    verdict: "better" or "worse" than keeping the old model, "not shown", or "not judged" without judgements.
    better: the same as the answer to a question; None if nothing was judged.
    loss: whether at most the accepted loss is lost; None if nothing was judged. It decides ``exit_code``.
    judged_by: what says which hits are right: "classes", "relevance" or "known items"; None without judgements.
    agreement: without judgements, how much of a full re-embedding is shown; None without the re-embedded gallery.
    stored_queries: how many queries are items of the gallery, and do not find themselves.
    clustered: whether groups of queries gain and lose together so much that they decided the intervals.
    distinct: queries after those that repeat count once. uncertain: why the intervals should not be relied on.
    kept: the share of re-embedding kept, cross_test / new_self_test; None without the re-embedded gallery.
    bridged: whether the new queries were carried into the old space by a bridge.
    bridge: its description; None without a bridge, or if it does not describe itself.
    without_bridge: the same test with plain queries; None without a bridge, or if the sizes differ.
    """

    kind: ClassVar[str] = "check"

    score: str | None
    protocol: str
    confidence: float
    queries: int
    gallery: int
    sources: dict[str, str]
    classes: int | None = None
    clustered: bool = False
    distinct: int | None = None
    uncertain: str | None = None
    notes: list[str] = field(default_factory=list)
    unpaired: dict[str, list[str]] = field(default_factory=dict)
    bad_rows: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    self_test: Estimate | None = None
    cross_test: Estimate | None = None
    new_self_test: Estimate | None = None
    gain: Estimate | None = None
    chance: float | None = None
    changes: Changes | None = None
    reindex: Reindex | None = None
    by_class: list[dict[str, Any]] = field(default_factory=list)
    overlap: Overlap | None = None
    agreement: Agreement | None = None
    bridged: bool = False
    bridge: dict[str, Any] | None = None
    without_bridge: WithoutBridge | None = None
    judged_by: str | None = None
    better: Answer | None = None
    loss: Answer | None = None
    kept: Estimate | None = None
    stored_queries: int = 0

    @property
    def exit_code(self) -> int:
        """0 if at most the accepted loss is shown to be lost, 3 if nothing was judged, else 1.

        A gate on agreement that was asked for gives 0 or 1 instead of 3.
        """
        if self.verdict != NOT_JUDGED:
            return PASSED if self.loss is not None and self.loss.answer == YES else FAILED
        if self.agreement is None or self.agreement.gate is None:
            return WITHOUT_JUDGEMENTS
        return PASSED if self.agreement.gate == REACHED else FAILED


@final
@dataclass(frozen=True, repr=False)
class HistoryResult(Result):
    """The result of ``check_history``; the verdict is the newest model's on all earlier galleries.

    loss: whether the newest model loses at most the accepted loss on every earlier gallery; it decides ``exit_code``.
    losses: "yes", "no" or "not shown" for the cells below the diagonal.
    matrix: T x T estimates, None above the diagonal and for models that cannot be compared.
    gains, verdicts: for the cells below the diagonal, against the old model's own score.
    better: whether the newest model is better than keeping each older one.
    """

    kind: ClassVar[str] = "history"

    score: str
    protocol: str
    confidence: float
    clustered: bool
    queries: int
    gallery: int
    models: list[str]
    matrix: list[list[Estimate | None]]
    gains: list[list[Estimate | None]]
    verdicts: list[list[str | None]]
    AC: float
    AA: float
    ACA: float
    uncertain: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)
    better: Answer | None = None
    loss: Answer | None = None
    losses: list[list[str | None]] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        return PASSED if self.loss is not None and self.loss.answer == YES else FAILED


@dataclass(frozen=True)
class VersionSearch:
    """The items of one version in one search of a mixed gallery.

    exposure: the share of the first k places that they take, divided by the share that they take when everything is
        re-embedded, by k (1 and 10). 1 is fair. NaN if the latter is zero.
    shown, fair: the two shares, by k.
    recall: mean over queries of the share of the version's right items (at most ten) among the first ten hits.
    """

    exposure: dict[int, Estimate]
    shown: dict[int, float]
    fair: dict[int, float]
    recall: float


@dataclass(frozen=True)
class MixedVersion:
    """One version of a mixed gallery.

    source: its file. items: how many it holds.
    bridged: whether its queries take a bridge; bridge: the bridge's description, if it has one.
    mixed: with bridges and scales. raw: without them; None if there are none.
    recall_reembedded: ``recall`` when everything is re-embedded.
    """

    source: str
    items: int
    bridged: bool
    bridge: dict[str, Any] | None
    mixed: VersionSearch
    raw: VersionSearch | None
    recall_reembedded: float


@final
@dataclass(frozen=True, repr=False)
class MixedResult(Result):
    """The result of ``check_mixed``. Scores are in [0, 1].

    accuracy: the score of the mixed search; reembedded: the same when everything is embedded by the newest model.
    kept: accuracy / reembedded.
    raw_accuracy, raw_kept: without bridges and scales; None if there are none.
    agreement: whether the score is agreement with the re-embedded search, because there are no judgements.
    keep: the score of keeping the old model; gain: accuracy - keep. None without the old model's vectors.
    verdict, better, loss: as of ``CheckResult``; "not judged" and None without judgements or without ``keep``.
    gates: whether the asked exposure, share kept or agreement is "reached", "missed" or "not shown"; None without any.
    versions: oldest first.
    """

    kind: ClassVar[str] = "mixed"

    score: str
    confidence: float
    min_exposure: float | None
    min_agreement: float | None
    gates: str | None
    gates_reason: str
    clustered: bool
    queries: int
    gallery: int
    classes: int | None
    agreement: bool
    better: Answer | None
    loss: Answer | None
    gain: Estimate | None
    keep: Estimate | None
    sources: dict[str, str]
    notes: list[str]
    accuracy: Estimate
    reembedded: Estimate
    kept: Estimate
    raw_accuracy: Estimate | None
    raw_kept: Estimate | None
    versions: list[MixedVersion]

    @property
    def exit_code(self) -> int:
        """0 if at most the accepted loss is shown to be lost and gates are reached, else 1; 3 if nothing is judged.

        Without judgements only ``min_agreement`` can give 0 or 1. Without the old model's vectors the gates decide.
        """
        if self.agreement and self.min_agreement is None:
            return WITHOUT_JUDGEMENTS
        conditions = [] if self.loss is None else [self.loss.answer == YES]
        conditions += [] if self.gates is None else [self.gates == REACHED]
        return WITHOUT_JUDGEMENTS if not conditions else PASSED if all(conditions) else FAILED

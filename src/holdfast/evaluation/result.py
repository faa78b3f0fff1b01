"""What a check found: plain records that turn into JSON.

How results show themselves in a notebook: a few lines of HTML, no scripts, no style sheets.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, final

from holdfast.evaluation.estimates import Estimate
from holdfast.storage import without_nan

COMPATIBLE, NOT_SHOWN, INCOMPATIBLE, NOT_JUDGED = "compatible", "not shown", "incompatible", "could not be judged"
EXIT_CODES = {COMPATIBLE: 0, NOT_SHOWN: 1, INCOMPATIBLE: 1, NOT_JUDGED: 2}
FEWEST_UNITS = 10
"""With fewer queries (or classes, where these are drawn) nothing is called compatible or incompatible."""


@dataclass(frozen=True)
class Changes:
    """Queries whose first hit changed from right to wrong (lost) or back (gained), and McNemar's exact p-value."""

    gained: int
    lost: int
    p_value: float
    lost_queries: list[dict[str, Any]]


@dataclass(frozen=True)
class Reindex:
    """What re-embedding the gallery with the new model would add to the cross-test; how much of it is there already."""

    adds: Estimate
    share_reached: float  # (cross - self) / (new self - self); NaN unless re-indexing gains at all


@dataclass(frozen=True)
class Thresholds:
    """One score threshold on the old gallery under old and new queries: false-accept rate (FAR) and true (TAR)."""

    threshold: float
    given: bool
    impostor_pairs: int
    old_far: float
    old_tar: float
    new_far: float
    new_tar: float
    far_change: Estimate
    verdict: str  # "holds", "higher" or "lower"
    new_threshold: float
    new_threshold_far: float
    new_threshold_tar: float
    histogram: dict[str, list[float]]


@dataclass(frozen=True)
class Overlap:
    """How alike the old and the new hits are; agreement, not accuracy."""

    k: int
    shared: Estimate
    same_first: Estimate


@dataclass(frozen=True)
class Judged:
    """What every check ends with."""

    kind: ClassVar[str]

    verdict: str
    reason: str

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    def as_json(self) -> dict[str, Any]:
        """Everything as plain types; NaN and infinities are None."""
        found: dict[str, Any] = without_nan({"kind": self.kind, **asdict(self), "exit_code": self.exit_code})
        return found


@final
@dataclass(frozen=True)
class CheckResult(Judged):
    """May the new model's queries be used on the old gallery? Scores are in [0, 1]; None where not measured."""

    kind: ClassVar[str] = "check"

    score: str
    protocol: str
    confidence: float
    min_gain: float
    clustered: bool
    queries: int
    gallery: int
    classes: int | None
    sources: dict[str, str]
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
    thresholds: Thresholds | None = None
    overlap: Overlap | None = None

    def _repr_html_(self) -> str:
        tests = ("self_test", "cross_test", "new_self_test", "gain")
        rows = [(name.replace("_", "-"), getattr(self, name)) for name in tests]
        return pair_html(self.verdict, self.reason, rows, self.notes)


@final
@dataclass(frozen=True)
class HistoryResult(Judged):
    """Every model's queries on every earlier gallery; the verdict is the newest model's on all of them.

    matrix: T x T estimates, None above the diagonal and where two models cannot be compared. gains and verdicts: the
    cells below the diagonal against the old model's own self-test.
    """

    kind: ClassVar[str] = "history"

    score: str
    protocol: str
    confidence: float
    min_gain: float
    clustered: bool
    queries: int
    gallery: int
    models: list[str]
    matrix: list[list[Estimate | None]]
    gains: list[list[Estimate | None]]
    verdicts: list[list[str | None]]
    AC: Estimate
    AA: Estimate
    ACA: Estimate
    uncertain: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)

    def _repr_html_(self) -> str:
        return matrix_html(self.verdict, self.reason, self.models, self.matrix, self.gains, self.notes)


def judge_gain(gain: Estimate, min_gain: float, units: int, what: str) -> tuple[str, str]:
    """The verdict on a gain, and why: its whole interval must lie on one side of ``min_gain``."""
    wanted = "no gain" if min_gain == 0 else f"the {100 * min_gain:+.2f} points asked for"
    if units < FEWEST_UNITS:
        have = "one alone is" if units == 1 else f"{units} {what} are"
        return NOT_SHOWN, f"{have} too few to tell; at least {FEWEST_UNITS} are needed"
    if gain.low > min_gain:
        return COMPATIBLE, f"the whole interval of the gain lies above {wanted}"
    if gain.high < min_gain:
        return INCOMPATIBLE, f"the whole interval of the gain lies below {wanted}"
    return NOT_SHOWN, f"the interval of the gain includes {wanted}; more queries would narrow it"


def pair_html(verdict: str, reason: str, rows: Sequence[tuple[str, Estimate | None]], notes: Sequence[str]) -> str:
    """The verdict, its reason, each test in per cent with its interval, and the notes."""
    body = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{_per_cent(found.value)}</td>"
        f"<td>{_per_cent(found.low)} to {_per_cent(found.high)}</td></tr>"
        for name, found in rows
        if found is not None
    )
    table = f"<table><tr><th></th><th>%</th><th>interval</th></tr>{body}</table>" if body else ""
    return f"{_head(verdict, reason)}{table}{_list(notes)}"


def matrix_html(
    verdict: str,
    reason: str,
    models: Sequence[str],
    matrix: Sequence[Sequence[Estimate | None]],
    gains: Sequence[Sequence[Estimate | None]],
    notes: Sequence[str],
) -> str:
    """The verdict, its reason, and the score of each query model (rows) on each gallery (columns), in per cent.

    Below the diagonal also the interval of what is gained over the old model's own score, in points.
    """
    head = "".join(f"<th>{html.escape(name)}</th>" for name in models)
    body = "".join(
        f"<tr><th>{html.escape(name)}</th>{''.join(_cell(*both) for both in zip(row, gained))}</tr>"
        for name, row, gained in zip(models, matrix, gains)
    )
    return f"{_head(verdict, reason)}<table><tr><th>query model</th>{head}</tr>{body}</table>{_list(notes)}"


def _head(verdict: str, reason: str) -> str:
    return f"<p><b>{html.escape(verdict)}</b>: {html.escape(reason)}</p>"


def _cell(found: Estimate | None, gain: Estimate | None) -> str:
    if found is None:
        return "<td></td>"
    over = "" if gain is None else f"<br><small>gain {100 * gain.low:+.2f} to {100 * gain.high:+.2f}</small>"
    return f"<td>{_per_cent(found.value)}{over}</td>"


def _list(notes: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{html.escape(note)}</li>' for note in notes)}</ul>" if notes else ""


def _per_cent(score: float) -> str:
    return "–" if math.isnan(score) else f"{100 * score:.2f}"

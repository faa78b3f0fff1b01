"""The rules that decide "at most so much lost" and "compatible" from an estimated gain and its interval.

``holdfast.metrics.beats`` is the rule for AC, which compares two scores without intervals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.checks.estimates import Estimate
from holdfast.core.errors import HoldfastError

COMPATIBLE, NOT_SHOWN, INCOMPATIBLE, NOT_JUDGED = "compatible", "not shown", "incompatible", "could not be judged"
MEASURED = "measured"
"""Numbers were asked for, without a condition."""
YES, NO = "yes", "no"
MAX_LOSS = 0.01
"""The loss that is accepted unless another one is asked for: one point."""
EXIT_CODES = {COMPATIBLE: 0, MEASURED: 0, NOT_SHOWN: 1, INCOMPATIBLE: 1, NOT_JUDGED: 2}
FEWEST_UNITS = 10
"""With fewer queries (or classes, if classes are resampled) no verdict but "not shown" is given."""


def verdict(gain: Estimate, units: int, what: str) -> tuple[str, str]:
    """The verdict on a gain and its reason: the whole interval must lie on one side of 0.

    gain: new score minus old score, with its interval.
    units: number of queries, or of classes, that were resampled.
    what: their name in the reason, such as "queries".
    """
    if units < FEWEST_UNITS:
        return NOT_SHOWN, _too_few(units, what)
    return _against_bound(gain, 0.0, "no gain")


def _against_bound(gain: Estimate, bound: float, wanted: str) -> tuple[str, str]:
    """On which side of ``bound`` the whole interval lies, and the sentence about it. wanted: the name of the bound."""
    if non_inferior(gain, -bound):
        return COMPATIBLE, f"the whole interval of the gain lies above {wanted}"
    if gain.high < bound:
        return INCOMPATIBLE, f"the whole interval of the gain lies below {wanted}"
    return NOT_SHOWN, f"the interval of the gain includes {wanted}; more queries would narrow it"


@dataclass(frozen=True)
class LossAnswer:
    """The answer to: is at most ``max_loss`` lost?

    question: the question in words, such as "At most 1 point lost".
    max_loss: the accepted loss, as a fraction of 1; negative if a gain is asked for.
    answer: "yes" if the whole interval of the gain lies above -max_loss, "no" if it lies below, else "not shown".
    reason: the sentence about it.
    units: queries, or classes of queries, that the answer is based on.
    units_needed: so many would give an answer if the gain stays as it is; None if there is one, or if more than 100,000
        (and ten times ``units``) would be needed.
    """

    question: str
    max_loss: float
    answer: str
    reason: str
    units: int
    units_needed: int | None = None


def loss_answer(gain: Estimate, max_loss: float, units: int, what: str, needed: int | None = None) -> LossAnswer:
    """Whether at most ``max_loss`` is lost. units, what: as in ``verdict``. needed: units that would decide."""
    question = loss_question(max_loss)
    if units < FEWEST_UNITS:
        return LossAnswer(question, max_loss, NOT_SHOWN, _too_few(units, what), units)
    bound = 0.0 - max_loss  # not -0.0
    wanted = "no gain" if bound == 0 else f"{100 * bound:+g} points"
    decision, reason = _against_bound(gain, bound, wanted)
    if decision != NOT_SHOWN:
        return LossAnswer(question, max_loss, YES if decision == COMPATIBLE else NO, reason, units)
    return LossAnswer(question, max_loss, NOT_SHOWN, f"the interval of the gain includes {wanted}", units, needed)


def loss_question(max_loss: float) -> str:
    """The question that ``LossAnswer`` answers.

    >>> loss_question(0.01), loss_question(0.0), loss_question(-0.02)
    ('At most 1 point lost', 'A gain', 'A gain of more than 2 points')
    """
    if max_loss == 0:
        return "A gain"
    size = f"{abs(100 * max_loss):g} point{'' if abs(100 * max_loss) == 1 else 's'}"
    return f"At most {size} lost" if max_loss > 0 else f"A gain of more than {size}"


def accepted_loss(max_loss: float | None) -> float:
    """``max_loss``, or ``MAX_LOSS`` for None. Refused if it is not a fraction of 1."""
    accepted = MAX_LOSS if max_loss is None else max_loss
    if not -1 < accepted < 1:
        raise HoldfastError(f"max-loss is a fraction of 1, so that 0.01 is one point; got {accepted:g}")
    return accepted


class Gate(NamedTuple):
    """A number that must be at least ``minimum``.

    name: what it is called in the reason.
    of_version: whether it is the exposure of one version, which is not judged if no place is due to the version.
    """

    name: str
    found: Estimate
    minimum: float
    of_version: bool = False


def gates_verdict(gates: Sequence[Gate], units: int, what: str) -> tuple[str, str]:
    """The verdict on several numbers and its reason: every interval must lie at or above its minimum.

    units, what: as in ``verdict``. A number that is NaN could not be measured: the exposure of a version to which no
    place is due is named and not judged, any other number is "not shown".
    """
    if not gates:
        return MEASURED, "no smallest accepted value was given, so nothing was judged"
    if units < FEWEST_UNITS:
        return NOT_SHOWN, _too_few(units, what)
    missed = [gate for gate in gates if gate.found.high < gate.minimum]
    if missed:
        return INCOMPATIBLE, _gate_reason(missed, "the whole interval lies below {:g}")
    known = [gate for gate in gates if not math.isnan(gate.found.value)]
    unknown = [gate for gate in gates if math.isnan(gate.found.value)]
    doubtful = [gate for gate in known if not gate.found.low >= gate.minimum]
    if doubtful:
        return NOT_SHOWN, _gate_reason(doubtful, "the interval includes {:g}; more queries would narrow it")
    needed = [gate.name for gate in unknown if not (gate.of_version and known)]
    if needed:
        return NOT_SHOWN, f"{needed[0]} could not be measured"
    least = " and ".join(f"{name} is at least {value:g}" for name, value in _minima(known).items())
    left = f"; not measured, because no place is due: {', '.join(gate.name for gate in unknown)}" if unknown else ""
    return COMPATIBLE, f"{least}, by the whole interval{left}"


def _gate_reason(gates: Sequence[Gate], one: str) -> str:
    """The first gate with its numbers, and how many others there are."""
    first = gates[0]
    interval = f"{first.found.low:.3f} to {first.found.high:.3f}"
    more = f" (and {len(gates) - 1} more)" if len(gates) > 1 else ""
    return f"{first.name} is {first.found.value:.3f} ({interval}): {one.format(first.minimum)}{more}"


def _minima(gates: Sequence[Gate]) -> dict[str, float]:
    """The asked values; all exposures share one."""
    kinds = ("the exposure of every version" if gate.of_version else gate.name for gate in gates)
    return {kind: gate.minimum for kind, gate in zip(kinds, gates)}


def _too_few(units: int, what: str) -> str:
    have = "one alone is" if units == 1 else f"{units} {what} are"
    return f"{have} too few to tell; at least {FEWEST_UNITS} are needed"


def non_inferior(gain: Estimate, margin: float = 0.0) -> bool:
    """Whether the lower end of the gain's interval lies above ``-margin``; never if it is NaN.

    margin: the accepted loss, as a fraction of 1; 0 asks for a gain.
    """
    return gain.low > -margin

"""The rules of the answers: better than keeping the old model? at most so much lost? are gates reached?

Every "yes" needs judgements: labels, relevance or known items. Without them nothing is judged (``NOT_JUDGED``). Only a
gate on agreement that was asked for by name is answered then, in words of its own.

``holdfast.metrics.beats`` is the rule for AC, which compares two scores without intervals.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.checks.estimates import Estimate
from holdfast.core.errors import HoldfastError

YES, NO, NOT_SHOWN = "yes", "no", "not shown"
"""Answers to the two questions."""
BETTER, WORSE, NOT_JUDGED = "better", "worse", "not judged"
"""Verdicts, beside ``NOT_SHOWN``: the answer to "better than keeping the old model" as one word."""
VERDICTS = {YES: BETTER, NO: WORSE, NOT_SHOWN: NOT_SHOWN}
REACHED, MISSED = "reached", "missed"
"""Whether the numbers that a gate is about lie at or above what was asked for, beside ``NOT_SHOWN``."""
MAX_LOSS = 0.01
"""The loss that is accepted unless another one is asked for: one point."""
PASSED, FAILED, BAD_INPUT, WITHOUT_JUDGEMENTS = 0, 1, 2, 3
"""Exit statuses: shown, not shown or shown to fail, bad input, nothing judged."""
FEWEST_UNITS = 10
"""With fewer queries (or groups, if groups are resampled) every answer is "not shown"."""
BETTER_QUESTION = "Better than keeping the old model"


@dataclass(frozen=True)
class Answer:
    """The answer to a question about the gain over keeping the old model.

    question: in words, such as "At most 1 point lost".
    max_loss: the loss at which the question is asked, as a fraction of 1; 0 for "better".
    answer: "yes" if the whole interval of the gain lies above -max_loss, "no" if it lies below, else "not shown".
    reason: the sentence about it.
    units: queries, or groups of queries, that the answer is based on.
    units_needed: so many would give an answer if the gain stays as it is; None if there is one, or if more than 100,000
        (and ten times ``units``) would be needed.
    """

    question: str
    max_loss: float
    answer: str
    reason: str
    units: int
    units_needed: int | None = None


def answer_about(
    gain: Estimate,
    max_loss: float,
    units: int,
    what: str,
    needed: Callable[[float], int | None] = lambda bound: None,
    *,
    question: str = "",
) -> Answer:
    """Whether at most ``max_loss`` is lost; with 0: whether there is a gain.

    gain: new score minus old score, with its interval.
    units: number of queries, or of groups, that were resampled. what: their name in the reason, such as "queries".
    needed: called with the bound if there is no answer; returns the units that would decide.
    question: in words; default: ``loss_question``.
    """
    question = question or loss_question(max_loss)
    if units < FEWEST_UNITS:
        return Answer(question, max_loss, NOT_SHOWN, too_few(units, what), units)
    bound = 0.0 - max_loss  # not -0.0
    wanted = "no gain" if bound == 0 else f"{100 * bound:+g} points"
    if gain.low > bound:  # never if it is NaN
        return Answer(question, max_loss, YES, f"the whole interval of the gain lies above {wanted}", units)
    if gain.high < bound:
        return Answer(question, max_loss, NO, f"the whole interval of the gain lies below {wanted}", units)
    return Answer(question, max_loss, NOT_SHOWN, f"the interval of the gain includes {wanted}", units, needed(bound))


def better_answer(
    gain: Estimate, units: int, what: str, needed: Callable[[float], int | None] = lambda bound: None
) -> Answer:
    """Whether the new score is shown to be above the old one; parameters as of ``answer_about``."""
    return answer_about(gain, 0.0, units, what, needed, question=BETTER_QUESTION)


def loss_question(max_loss: float) -> str:
    """The question about a loss in words.

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


class NotJudgedError(HoldfastError):
    """There are no judgements where nothing can be shown without them; exit status 3."""

    exit_code = WITHOUT_JUDGEMENTS


class Gate(NamedTuple):
    """A number that must be at least ``minimum``.

    name: what it is called in the reason.
    of_version: whether it is the exposure of one version, which is not judged if no place is due to the version.
    """

    name: str
    found: Estimate
    minimum: float
    of_version: bool = False


def gates_answer(gates: Sequence[Gate], units: int, what: str) -> tuple[str, str]:
    """Whether all gates are "reached", one is "missed", or neither is shown; and the reason.

    units, what: as in ``answer_about``. A number that is NaN could not be measured: the exposure of a version to which
    no place is due is named and not judged, any other number is "not shown".
    """
    if units < FEWEST_UNITS:
        return NOT_SHOWN, too_few(units, what)
    missed = [gate for gate in gates if gate.found.high < gate.minimum]
    if missed:
        return MISSED, _gate_reason(missed, "the whole interval lies below {:g}")
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
    return REACHED, f"{least}, by the whole interval{left}"


def share_asked(name: str, value: float | None) -> None:
    """Refuse a gate that is not a share of 1."""
    if value is not None and not 0 < value <= 1:
        raise HoldfastError(f"{name} is a share of 1, such as 0.8; got {value:g}")


def _gate_reason(gates: Sequence[Gate], sentence: str) -> str:
    """The first gate with its numbers, and how many others there are."""
    first = gates[0]
    interval = f"{first.found.low:.3f} to {first.found.high:.3f}"
    more = f" (and {len(gates) - 1} more)" if len(gates) > 1 else ""
    return f"{first.name} is {first.found.value:.3f} ({interval}): {sentence.format(first.minimum)}{more}"


def _minima(gates: Sequence[Gate]) -> dict[str, float]:
    """The asked values; all exposures share one."""
    kinds = ("the exposure of every version" if gate.of_version else gate.name for gate in gates)
    return {kind: gate.minimum for kind, gate in zip(kinds, gates)}


def too_few(units: int, what: str) -> str:
    """The reason if there are fewer than ``FEWEST_UNITS``."""
    have = "one alone is" if units == 1 else f"{units} {what} are"
    return f"{have} too few to tell; at least {FEWEST_UNITS} are needed"

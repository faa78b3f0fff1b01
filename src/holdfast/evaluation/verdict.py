"""The rules that decide "compatible" from an estimated gain and its interval.

``holdfast.metrics.beats`` is the rule for AC, which compares two scores without intervals.
"""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.evaluation.estimates import Estimate

COMPATIBLE, NOT_SHOWN, INCOMPATIBLE, NOT_JUDGED = "compatible", "not shown", "incompatible", "could not be judged"
MEASURED = "measured"
"""Numbers were asked for, without a condition."""
EXIT_CODES = {COMPATIBLE: 0, MEASURED: 0, NOT_SHOWN: 1, INCOMPATIBLE: 1, NOT_JUDGED: 2}
FEWEST_UNITS = 10
"""With fewer queries (or classes, if classes are resampled) no verdict but "not shown" is given."""


def verdict(gain: Estimate, min_gain: float, units: int, what: str) -> tuple[str, str]:
    """The verdict on a gain and its reason: the whole interval must lie on one side of ``min_gain``.

    gain: new score minus old score, with its interval.
    min_gain: fraction of 1; negative to accept a small loss.
    units: number of queries, or of classes, that were resampled.
    what: their name in the reason, such as "queries".
    """
    wanted = "no gain" if min_gain == 0 else f"the {100 * min_gain:+.2f} points asked for"
    if units < FEWEST_UNITS:
        return NOT_SHOWN, _too_few(units, what)
    if non_inferior(gain, -min_gain):
        return COMPATIBLE, f"the whole interval of the gain lies above {wanted}"
    if gain.high < min_gain:
        return INCOMPATIBLE, f"the whole interval of the gain lies below {wanted}"
    return NOT_SHOWN, f"the interval of the gain includes {wanted}; more queries would narrow it"


class Gate(NamedTuple):
    """A number that must be at least ``minimum``; name: what it is called in the reason."""

    name: str
    found: Estimate
    minimum: float


def gates_verdict(gates: Sequence[Gate], units: int, what: str) -> tuple[str, str]:
    """The verdict on several numbers and its reason: every interval must lie at or above its minimum.

    units, what: as in ``verdict``.
    """
    if not gates:
        return MEASURED, "no smallest accepted value was given, so nothing was judged"
    if units < FEWEST_UNITS:
        return NOT_SHOWN, _too_few(units, what)
    missed = [gate for gate in gates if gate.found.high < gate.minimum]
    if missed:
        return INCOMPATIBLE, _gate_reason(missed, "the whole interval lies below {:g}", "lie below the asked values")
    doubtful = [gate for gate in gates if not gate.found.low >= gate.minimum]
    if doubtful:
        return NOT_SHOWN, _gate_reason(
            doubtful, "the interval includes {:g}; more queries would narrow it", "have intervals that include them"
        )
    least = " and ".join(f"{name} is at least {value:g}" for name, value in _minima(gates).items())
    return COMPATIBLE, f"{least}, by the whole interval"


def _gate_reason(gates: Sequence[Gate], one: str, others: str) -> str:
    """The first gate with its numbers, and how many others there are."""
    first = gates[0]
    interval = f"{first.found.low:.3f} to {first.found.high:.3f}"
    more = f" ({len(gates) - 1} more {others})" if len(gates) > 1 else ""
    return f"{first.name} is {first.found.value:.3f} ({interval}): {one.format(first.minimum)}{more}"


def _minima(gates: Sequence[Gate]) -> dict[str, float]:
    """The asked values; all exposures share one."""
    kinds = ("the exposure of every version" if gate.name.startswith("the exposure") else gate.name for gate in gates)
    return {kind: gate.minimum for kind, gate in zip(kinds, gates)}


def _too_few(units: int, what: str) -> str:
    have = "one alone is" if units == 1 else f"{units} {what} are"
    return f"{have} too few to tell; at least {FEWEST_UNITS} are needed"


def non_inferior(gain: Estimate, margin: float = 0.0) -> bool:
    """Whether the lower end of the gain's interval lies above ``-margin``; never if it is NaN.

    margin: the accepted loss, as a fraction of 1; 0 asks for a gain.
    """
    return gain.low > -margin

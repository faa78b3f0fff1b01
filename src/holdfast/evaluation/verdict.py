"""The rules that decide "compatible" from an estimated gain and its interval.

``holdfast.metrics.beats`` is the rule for AC, which compares two scores without intervals.
"""

from holdfast.evaluation.estimates import Estimate

COMPATIBLE, NOT_SHOWN, INCOMPATIBLE, NOT_JUDGED = "compatible", "not shown", "incompatible", "could not be judged"
EXIT_CODES = {COMPATIBLE: 0, NOT_SHOWN: 1, INCOMPATIBLE: 1, NOT_JUDGED: 2}
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
        have = "one alone is" if units == 1 else f"{units} {what} are"
        return NOT_SHOWN, f"{have} too few to tell; at least {FEWEST_UNITS} are needed"
    if non_inferior(gain, -min_gain):
        return COMPATIBLE, f"the whole interval of the gain lies above {wanted}"
    if gain.high < min_gain:
        return INCOMPATIBLE, f"the whole interval of the gain lies below {wanted}"
    return NOT_SHOWN, f"the interval of the gain includes {wanted}; more queries would narrow it"


def non_inferior(gain: Estimate, margin: float = 0.0) -> bool:
    """Whether the lower end of the gain's interval lies above ``-margin``; never if it is NaN.

    margin: the accepted loss, as a fraction of 1; 0 asks for a gain.
    """
    return gain.low > -margin

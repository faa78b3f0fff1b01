"""Where Theorem 1 stops: caps that grow, and prototypes that move. The paper gives neither.

With a = E[cos(polar angle)] the expected gaps for a prototype that has moved by delta are, up to the factor a_k,

    same class                      a_t cos(delta) - a_k
    mean over all d other vertices  (a_t cos(delta) - a_k) / d          whichever way it moved, as sum_i w_i = 0
    the class it moves towards      -a_t cos(beta - delta) - a_k / d    with cos(beta) = -1/d

So both inequalities fail together as soon as a cap grows at all. A cap that shrank pays for a move of up to
arccos(a_k / a_t) on average; against the one class that lies straight ahead it pays for about (1 - a_k/a_t)/d only.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from holdfast.theory.arguments import check_angle, check_dimension
from holdfast.theory.caps import Floats
from holdfast.theory.closed_form import mean_cosine, shrinkage


class Limits(NamedTuple):
    """How far, in radians, a prototype may move before the inequality fails; NaN where it fails without any move."""

    average: float
    """Eq. 1a, and Eq. 1b over all other classes together."""
    towards: float
    """Eq. 1b for the one class that the prototype moves straight towards."""


def largest_moves(d: int, old: float, new: float) -> Limits:
    """The largest moves for caps of ``old`` and ``new`` radians in ``d`` dimensions, from the closed form."""
    check_dimension(d)
    check_angle("old angle", old)
    check_angle("new angle", new)
    if old == math.pi:  # the old cap is the whole sphere: every distance is 1 on average, wherever the new one lies
        return Limits(math.pi, math.pi)
    shrunk = shrinkage(d, old, new)
    if shrunk < 0:
        return Limits(math.nan, math.nan)
    kept = 1 - shrunk
    # arccos(kept), and arccos(-1/d) - arccos(-kept/d) by the sine of a difference: both keep their digits near 0.
    sine = shrunk * (1 + kept) / (math.sqrt(d * d - kept * kept) + kept * math.sqrt(d * d - 1))
    return Limits(2 * math.asin(math.sqrt(shrunk / 2)), math.asin(sine))


def gap_map(d: int, old: float, new_angles: Floats, moves: Floats) -> Floats:
    """E[D_kk] - E[D_kt] of one class, len(moves) x len(new_angles): positive where Eq. 1a holds.

    Divided by d it is the gap of Eq. 1b averaged over all other classes.
    """
    check_angle("old angle", old)
    a_old = mean_cosine(d, old)
    a_new = np.array([mean_cosine(d, float(angle)) for angle in new_angles])
    return a_old * (np.cos(moves)[:, None] * a_new[None, :] - a_old)


def limits_row(d: int, old: float, new: float) -> dict[str, Any]:
    """``largest_moves`` in degrees, beside the caps they belong to."""
    moves = largest_moves(d, old, new)
    return {
        "d": d,
        "old_angle": math.degrees(old),
        "new_angle": math.degrees(new),
        "average": math.degrees(moves.average),
        "towards": math.degrees(moves.towards),
    }

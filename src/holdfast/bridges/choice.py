"""Which kind of map a bridge uses, by what ``trial`` measured on pairs that it was not fitted on.

The place of the item that is nearest in the new space decides, because people look at the first hits. By overlap@10
``local`` lost where it finds most: among a sample of the items, the ten nearest lie far further away than in the index.
"""

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.bridges.maps import Affine, Local, QueryMap, Rotation
from holdfast.bridges.score_scale import ScoreScale
from holdfast.core.errors import HoldfastError, unknown_name

NONE = "none"
BRIDGES: dict[str, type[QueryMap]] = {kind.kind: kind for kind in (Rotation, Affine, Local)}
"""Kinds of map by name. ``none`` uses queries as they are and needs spaces of equal size."""

CANDIDATES: tuple[tuple[str, dict[str, Any]], ...] = (
    (NONE, {}),
    ("rotation", {}),
    ("rotation", {"centred": True}),
    ("affine", {"ridge": 0.1}),
    ("local", {}),
)
"""What ``auto`` compares: about a second at 2,000 pairs."""

SHORT_RANK = 256
"""Rank of the short form of a linear map."""
SHORT_FROM = 1024
"""Size of the smaller space from which on a short form is tried. The matrix of a larger map does not fit into a core's
cache, so that reading it takes most of the time of a single query."""
SHORT_LOSS = 0.005
FEWEST_PAIRS = 10
BEYOND_CHANCE = 4
"""Standard errors above chance that count as clearly better than random hits. Three would be passed by 5 % of unrelated
spaces: the best of several candidates is taken, and hits of similar queries depend on each other."""
FIRST_FROM = 100
"""Held-out items from which on first places decide between maps; with fewer, they vary too much."""


@dataclass(frozen=True)
class Candidate:
    """One kind of map, measured on held-out pairs.

    value: mean over held-out items of the measure, in [0, 1]; higher is better.
    error: standard error of ``value``.
    nearest: mean reciprocal rank of the item that is nearest in the new space; NaN with few held-out pairs, or if
        labels decide.
    scaled: whether its scores are scaled before they are merged with those of the newest version.
    exposure: expected exposure ratio of old items by number of first places (1, 10), in a gallery with half of the
        held-out items embedded by each model; empty with few held-out pairs. 1 is fair.
    """

    kind: str
    options: dict[str, Any]
    value: float
    error: float
    scaled: bool = False
    exposure: dict[int, float] = field(default_factory=dict)
    nearest: float = float("nan")


@dataclass(frozen=True)
class Evidence:
    """How a bridge was chosen.

    measure: "overlap@10" (share of the ten nearest items of the new space that the bridged search shows),
        "reciprocal rank" (of an item's own stored vector), or with labels "top1".
    chance: the value of random hits.
    pairs: all pairs; held_out: those of them that no candidate was fitted on.
    searched: items that the held-out ones were searched among.
    candidates: the chosen one first, then by value.
    curve: (pairs fitted on, value) of the chosen kind: with a quarter, a half and all of the fitted pairs.
    beyond_chance: by how many standard errors the chosen candidate's hits agree better with the wanted ones than with
        those of other queries, without labels and if held-out items are searched among held-out items only. Fitted
        pairs would be found more often than by chance even between unrelated spaces, and labels of few classes are
        often matched by chance. 0 with fewer than ten different vectors in one of the spaces.
    raw_exposure: of old items with queries and scores as they are; None if that cannot be measured.
    """

    measure: str
    chance: float
    pairs: int
    held_out: int
    searched: int
    candidates: tuple[Candidate, ...]
    curve: tuple[tuple[int, float], ...] = ()
    seconds: float = 0.0
    beyond_chance: float = float("nan")
    raw_exposure: dict[int, float] | None = None

    @property
    def chosen(self) -> Candidate:
        """The candidate that ``ranked`` puts first."""
        return self.candidates[0]

    @property
    def without(self) -> Candidate | None:
        """Queries and scores as they are; None if the two spaces cannot be compared.

        The candidate ``none`` differs from it if its scores are scaled.
        """
        found = next((one for one in self.candidates if one.kind == NONE), None)
        if found is None or not found.scaled or self.raw_exposure is None:
            return found
        return replace(found, scaled=False, exposure=self.raw_exposure)


@dataclass(frozen=True)
class Measured:
    """A candidate with its values per held-out item and the scale of its scores.

    first: per held-out item the reciprocal rank of its nearest item in the new space; empty with few held-out pairs,
        or if labels decide.
    """

    candidate: Candidate
    values: NDArray[np.float64]
    first: NDArray[np.float64]
    scale: ScoreScale

    @property
    def deciding(self) -> NDArray[np.float64]:
        """The numbers by which maps are compared."""
        return self.first if len(self.first) >= FIRST_FROM else self.values


FAIR = (0.8, 1.25)
"""Exposure ratios that count as fair."""


def unfairness(exposure: Mapping[int, float]) -> float:
    """How far exposure ratios are outside ``FAIR``: sum of |log ratio| beyond log 1.25; 0 if fair."""
    beyond = (abs(math.log(max(ratio, 1e-3))) - math.log(FAIR[1]) for ratio in exposure.values())
    return sum(max(0.0, excess) for excess in beyond)


def standard_error(values: NDArray[np.float64]) -> float:
    """The standard error of the mean; NaN of one value."""
    return float(values.std(ddof=1)) / len(values) ** 0.5 if len(values) > 1 else float("nan")


def _better(values: NDArray[np.float64], than: NDArray[np.float64], errors: float) -> bool:
    """Whether the mean is higher by more than so many standard errors of the difference."""
    gain = values - than
    return float(gain.mean()) > errors * standard_error(gain)


def _spoils(plain: Candidate, mapped: Candidate) -> bool:
    """Whether a map makes exposure unfair that is fair with queries and scores as they are, for a gain that is small.

    Scaled scores of unrelated spaces can be fair too, but find nothing.
    """
    comparable = not plain.scaled and plain.value >= 0.8 * mapped.value
    return comparable and unfairness(plain.exposure) <= 0 < unfairness(mapped.exposure)


def ranked(measured: Sequence[Measured]) -> list[int]:
    """Indices of candidates, best first. An earlier candidate wins unless a later one is better by a standard error.

    Queries as they are win unless a map is better by two, in values, and not by showing old items unfairly.
    """
    best = 0
    for i in range(1, len(measured)):
        leader, other = measured[best], measured[i]
        if leader.candidate.kind == NONE:
            better = _better(other.values, leader.values, 2) and not _spoils(leader.candidate, other.candidate)
        else:
            better = _better(other.deciding, leader.deciding, 1)
        if better:
            best = i
    rest = sorted((i for i in range(len(measured)) if i != best), key=lambda i: -measured[i].candidate.value)
    return [best, *rest]


def short_form(candidate: Candidate, dims: tuple[int, int]) -> dict[str, Any] | None:
    """Options of the same map with fewer directions; None if it has no such form, or if it is small already."""
    if candidate.kind not in (Rotation.kind, Affine.kind) or min(dims) < SHORT_FROM:
        return None
    return {**candidate.options, "rank": SHORT_RANK}


def as_good(short: Measured, whole: Measured) -> bool:
    """Whether a short form loses at most half a point, or nothing beyond noise, in values and in first places."""
    both = ((whole.values, short.values), (whole.first, short.first))
    return all(
        not _better(more, less, 1) or float((more - less).mean()) <= SHORT_LOSS for more, less in both if len(more)
    )


def candidates_of(kind: str, options: dict[str, Any], same_space: bool) -> list[tuple[str, dict[str, Any]]]:
    """The kinds to compare, with their options. ``none`` competes only in spaces that can be compared."""
    if kind == "auto":
        if options:
            raise HoldfastError(f"options {', '.join(options)} belong to one kind; name it, such as kind='rotation'")
        return [(name, dict(given)) for name, given in CANDIDATES if name != NONE or same_space]
    if kind not in (NONE, *BRIDGES):
        raise unknown_name("kind of bridge", kind, ["auto", NONE, *BRIDGES])
    if kind == NONE and not same_space:
        raise HoldfastError("kind 'none' uses queries as they are, but the two spaces cannot be compared")
    _check_options(kind, options)
    return [(NONE, {}), (kind, options)] if same_space and kind != NONE else [(kind, options)]


def _check_options(kind: str, options: Mapping[str, Any]) -> None:
    """Refuse options that the kind does not have, and values that it cannot use."""
    given = {} if kind == NONE else inspect.signature(BRIDGES[kind].fit).parameters
    known = [name for name, parameter in given.items() if parameter.kind is parameter.KEYWORD_ONLY]
    for name, value in options.items():
        if name not in known:
            raise unknown_name(f"option of {kind}", name, known)
        whole = name in ("rank", "neighbours")
        if name == "centred" and not isinstance(value, bool):
            raise HoldfastError(f"{kind}: centred must be true or false, got {value!r}")
        if whole and value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise HoldfastError(f"{kind}: {name} must be a whole number of at least 1, got {value!r}")
        if not whole and not (isinstance(value, int | float) and 0 <= value < math.inf):
            raise HoldfastError(f"{kind}: {name} must be a number of at least 0, got {value!r}")
        if name in ("temperature", "ridge") and value == 0:
            raise HoldfastError(f"{kind}: {name} must be above 0")

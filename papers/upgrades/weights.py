"""The weight that each collection gets: the one that was best on the others.

Budget: 8 weights of the new score and 5 of the bridged query, looked at on every replacement of the other collections.
A collection and its log of queries count as one. The default of the product is what CACM, Cranfield and SciFact's log
choose together; SciFact's test queries had no part in it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

CHOSEN_AT = 50


def best_weight(cases: Sequence[dict[str, Any]], prefix: str) -> float:
    """The weight with the best mean gain over keeping; every collection counts the same."""
    means: dict[float, list[float]] = {}
    for name in sorted({case["name"][0] for case in cases}):
        for way in cases[0]["ways"]:
            if way.startswith(prefix):
                gains = [case["ways"][way]["gain"][0] for case in cases if case["name"][0] == name]
                means.setdefault(float(way.removeprefix(prefix)), []).append(float(np.mean(gains)))
    return max(means, key=lambda weight: float(np.mean(means[weight])))


def others(cases: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The cases of other collections; without SciFact's test queries, unless there is nothing else."""
    stem = name.removesuffix("-log")
    return [case for case in cases if case["name"][0].removesuffix("-log") != stem and case["name"][0] != "scifact"]


def weight_of_others(cases: Sequence[dict[str, Any]], name: str, prefix: str = f"old@{CHOSEN_AT} ") -> float:
    """The best weight of two-stage search (or, with the prefix "blend ", of blend) on the other collections."""
    return best_weight(others(cases, name), prefix)


def default_weight(cases: Sequence[dict[str, Any]], prefix: str = f"old@{CHOSEN_AT} ") -> float:
    """The best weight on CACM, Cranfield and SciFact's log."""
    return best_weight([case for case in cases if case["name"][0] != "scifact"], prefix)

"""How much memory, disk and time a gallery takes: an estimate from measured figures.

The figures are those of ``bench/scale.py`` with 1,000,000 vectors of 512 numbers on two cores
(``results/bench/scale-2cores.json``). Sizes grow in proportion to items and numbers; the time to build an index grows a
little faster than the number of items.
"""

import math
import re
from dataclasses import dataclass

from holdfast.core.errors import HoldfastError
from holdfast.gallery.gallery_kinds import MOST_PAIRS

MEASURED_ITEMS, MEASURED_DIM = 1_000_000, 512
CORES = 2
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000, "b": 1_000_000_000}


@dataclass(frozen=True)
class EngineFigures:
    """What was measured, with one version unless noted.

    vector_bytes: bytes on disk per number of a vector, index included.
    item_bytes: other bytes on disk per item: graph, fields, catalogue.
    searching_bytes: bytes in memory per number of a vector for fast searches, by number of versions.
    stored_per_s: items stored per second.
    index_cpu_s: processor seconds to index all vectors, in ``index_versions`` versions.
    index_gb: memory of the process that builds the index, in GB.
    search_ms: median time of a search by number of versions.
    """

    vector_bytes: float
    item_bytes: float
    searching_bytes: dict[int, float]
    stored_per_s: float
    index_cpu_s: float
    index_versions: int
    index_gb: float
    search_ms: dict[int, float]


MEASURED = EngineFigures(
    vector_bytes=4.5,
    item_bytes=325,
    searching_bytes={1: 13.8, 2: 9.7, 5: 10.0},
    stored_per_s=7150,
    index_cpu_s=400,
    index_versions=5,
    index_gb=9.73,
    search_ms={1: 1.01, 2: 1.44, 5: 2.38},
)
"""Of the embedded engine."""


@dataclass(frozen=True)
class CapacityPlan:
    """An estimate for a gallery.

    items, dim, versions: as asked for.
    disk_gb: all files of the gallery.
    index_disk_gb: free disk that building the index of the largest version needs.
    memory_gb: memory for fast searches.
    index_memory_gb: memory to build the index of the largest version.
    store_s, index_s: seconds to store all items, and to index them.
    search_ms: the median time of one search.
    bridges_mb: the bridges between the versions.
    reembed_s: seconds to re-embed all items; None without a rate.
    bridge_s: seconds to embed the items from which a new version's bridges are fitted; None without a rate.
    """

    items: int
    dim: int
    versions: int
    disk_gb: float
    index_disk_gb: float
    memory_gb: float
    index_memory_gb: float
    store_s: float
    index_s: float
    search_ms: float
    bridges_mb: float
    reembed_s: float | None
    bridge_s: float | None


def plan_capacity(items: int, dim: int, *, versions: int = 1, embedded_per_s: float | None = None) -> CapacityPlan:
    """Estimate what a gallery on the embedded engine takes, on two cores.

    The items are split evenly between the versions.

    items: how many items.
    dim: numbers of a stored vector.
    versions: how many model versions have items.
    embedded_per_s: items that the newest model embeds per second; gives the time to re-embed.

    >>> from holdfast.gallery.capacity import plan_capacity
    >>> plan = plan_capacity(20_000_000, 512, versions=3, embedded_per_s=500)
    >>> round(plan.reembed_s / 3600, 1)  # hours
    11.1
    """
    for name, value in (("items", items), ("dim", dim), ("versions", versions)):
        if value < 1:
            raise HoldfastError(f"{name} must be at least 1, got {value}")
    if embedded_per_s is not None and not embedded_per_s > 0:
        raise HoldfastError(f"the number of items embedded per second must be above 0, got {embedded_per_s}")
    measured = MEASURED
    largest = math.ceil(items / versions)
    older = versions - 1
    disk = items * (dim * measured.vector_bytes + measured.item_bytes) / 1e9
    share = largest * dim / (MEASURED_ITEMS * MEASURED_DIM)
    depth = math.log(max(largest, 2)) / math.log(MEASURED_ITEMS / measured.index_versions)
    return CapacityPlan(
        items=items,
        dim=dim,
        versions=versions,
        disk_gb=disk,
        index_disk_gb=disk / versions,
        memory_gb=items * dim * _between(measured.searching_bytes, versions) / 1e9,
        index_memory_gb=measured.index_gb * share,
        store_s=items / measured.stored_per_s * (0.5 + 0.5 * dim / MEASURED_DIM),
        index_s=versions * share * depth * measured.index_cpu_s / CORES,
        search_ms=_between(measured.search_ms, versions) * math.log(max(items, 2)) / math.log(MEASURED_ITEMS),
        bridges_mb=versions * older * dim * dim * 4 / 1e6,
        reembed_s=None if embedded_per_s is None else items / embedded_per_s,
        bridge_s=None if embedded_per_s is None else older * MOST_PAIRS / embedded_per_s,
    )


def parse_count(text: str) -> int:
    """A number of items, such as ``250000``, ``20M`` or ``1.5B``.

    >>> from holdfast.gallery.capacity import parse_count
    >>> parse_count("1.5M")
    1500000
    """
    whole = r"[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,3}(?:_[0-9]{3})+|[0-9]+"
    found = re.fullmatch(rf"((?:{whole})(?:\.[0-9]+)?)\s*([kmb]?)", text.strip().lower())
    if found is None:
        raise HoldfastError(f"{text!r}: give a number of items, such as 250000, 20M or 1.5B")
    return round(float(found[1].replace(",", "").replace("_", "")) * _UNITS[found[2]])


def _between(measured: dict[int, float], versions: int) -> float:
    """The value for a number of versions, on the line between the nearest measured ones; beyond them, continued."""
    known = sorted(measured)
    low = max([one for one in known[:-1] if one <= versions], default=known[0])
    high = known[known.index(low) + 1]
    return measured[low] + (measured[high] - measured[low]) * (versions - low) / (high - low)

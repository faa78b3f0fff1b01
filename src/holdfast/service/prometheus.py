"""Metrics of one application in the Prometheus text format, version 0.0.4."""

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))


class Metrics:
    """Counts requests. Every application has its own registry, so several can run in one process."""

    def __init__(self) -> None:
        self.in_flight = 0
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "holdfast_requests", "Requests answered.", ["route", "method", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "holdfast_request_seconds", "Time to answer.", ["route"], buckets=BUCKETS, registry=self._registry
        )
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answered request. Label values come from fixed lists, so clients cannot create time series."""
        labels = (route, method if method in _METHODS else "other", status)
        if labels not in self._children:  # finding a child by its labels takes longer than counting
            self._children[labels] = self._requests.labels(*labels), self._seconds.labels(route)
        counter, histogram = self._children[labels]
        counter.inc()
        histogram.observe(seconds)

    def text(
        self,
        stats: Mapping[str, Any],
        newest: int,
        queues: Mapping[str, tuple[int, int, int]],
        places: Mapping[int, int],
    ) -> bytes:
        """All metrics.

        stats: the gallery's ``stats``.
        newest: number of the version that embeds queries.
        queues: by name, jobs that wait now, jobs so far, batches so far.
        places: by version, how many of the first places its items had; see ``ExposureCounter``.
        """
        families = [*self._request_families(), *_gallery_families(stats, newest, queues)]
        return generate_latest(_Families([*families, *_exposure_families(stats, newest, places)]))

    def _request_families(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            # The times at which the counters were created are not part of text format 0.0.4.
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family
        yield GaugeMetricFamily("holdfast_requests_in_flight", "Requests being answered.", value=self.in_flight)


class _Families(Collector):
    """A list of metric families in the form that ``generate_latest`` takes."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _gallery_families(
    stats: Mapping[str, Any], newest: int, queues: Mapping[str, tuple[int, int, int]]
) -> Iterator[Metric]:
    waiting = GaugeMetricFamily(
        "holdfast_queue_waiting", "Jobs that wait for the encoder or the writer.", labels=["queue"]
    )
    jobs = CounterMetricFamily("holdfast_queue_jobs", "Images encoded, add requests written.", labels=["queue"])
    batches = CounterMetricFamily("holdfast_queue_batches", "Batches of jobs that were run.", labels=["queue"])
    for queue, (jobs_waiting, jobs_done, batches_done) in queues.items():
        waiting.add_metric([queue], jobs_waiting)
        jobs.add_metric([queue], jobs_done)
        batches.add_metric([queue], batches_done)
    yield from (waiting, jobs, batches)
    for name, text in (
        ("items", "Items by the version that embedded them."),
        ("unindexed", "Items that are not indexed yet, by version."),
    ):
        family = GaugeMetricFamily(f"holdfast_gallery_{name}", text, labels=["version"])
        for row in stats["versions"]:
            family.add_metric([str(row["version"])], row[name])
        yield family
    yield GaugeMetricFamily("holdfast_gallery_newest_version", "The version that embeds queries.", value=newest)
    yield GaugeMetricFamily("holdfast_gallery_bytes", "Size on disk in bytes.", value=stats["bytes_on_disk"])


def _exposure_families(stats: Mapping[str, Any], newest: int, places: Mapping[int, int]) -> Iterator[Metric]:
    """Shares of items and of first places by version, and the bridges that carry queries to older versions' items."""
    rows = {row["version"]: row for row in stats["versions"]}
    total = sum(row["items"] for row in rows.values())
    share = GaugeMetricFamily("holdfast_gallery_share", "A version's share of all items.", labels=["version"])
    shown = CounterMetricFamily(
        "holdfast_first_places", "First 10 places of searches of all items, by the item's version.", labels=["version"]
    )
    for number, row in rows.items():
        share.add_metric([str(number)], row["items"] / total if total else 0.0)
    for number in sorted({*rows, *places}):
        shown.add_metric([str(number)], places.get(number, 0))
    in_use = GaugeMetricFamily(
        "holdfast_bridge_in_use",
        "1 for the bridge that carries queries of the newest version to a version's items.",
        labels=["version", "kind"],
    )
    expected = GaugeMetricFamily(
        "holdfast_bridge_expected_exposure",
        "Exposure of a version's items among the first 10, as measured at registration; 1 is fair.",
        labels=["version"],
    )
    bridges = {one["version"]: one for one in rows[newest]["bridges"]} if newest in rows else {}
    for number in rows:
        if number == newest:
            continue
        bridge = bridges.get(number, {})
        in_use.add_metric([str(number), bridge.get("kind", "none")], 1)
        exposure = (bridge.get("exposure") or {}).get("10")
        if exposure is not None:
            expected.add_metric([str(number)], exposure)
    yield from (share, shown, in_use, expected)

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

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answered request. Label values come from fixed lists, so clients cannot create time series."""
        self._requests.labels(route, method if method in _METHODS else "other", status).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self, stats: Mapping[str, Any], newest: int, queues: Mapping[str, tuple[int, int, int]]) -> bytes:
        """All metrics.

        stats: the gallery's ``stats``.
        newest: number of the version that embeds queries.
        queues: by name, jobs that wait now, jobs so far, batches so far.
        """
        return generate_latest(_Families([*self._request_families(), *_gallery_families(stats, newest, queues)]))

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

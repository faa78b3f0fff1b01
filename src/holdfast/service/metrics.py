"""Counters of the service in the text format that Prometheus reads (version 0.0.4)."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))


class Metrics:
    """Only the event loop's thread writes here, so nothing is locked."""

    def __init__(self) -> None:
        self.in_flight = 0
        self._answered: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[str, list[int]] = {}
        self._total: Counter[str] = Counter()

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        # Names come from our table of routes and methods: a client cannot make up new time series.
        self._answered[route, method if method in _METHODS else "other", status] += 1
        counts = self._seconds.setdefault(route, [0] * (len(BUCKETS) + 1))
        counts[bisect_left(BUCKETS, seconds)] += 1
        self._total[route] += seconds  # type: ignore[assignment]  # a Counter adds floats as well

    def text(self, stats: Mapping[str, Any], newest: int, queues: Mapping[str, tuple[int, int, int]]) -> str:
        """queues: by name (waiting now, jobs so far, batches so far)."""
        lines: list[str] = []
        answered = [
            (f'{{route="{route}",method="{method}",status="{status}"}}', count)
            for (route, method, status), count in sorted(self._answered.items())
        ]
        _write(lines, "holdfast_requests_total", "counter", "Requests answered.", answered)
        _write(lines, "holdfast_requests_in_flight", "gauge", "Requests being answered.", [("", self.in_flight)])
        self._write_seconds(lines)
        for place, (name, kind, text) in enumerate(
            (
                ("holdfast_queue_waiting", "gauge", "Jobs that wait for the encoder or the writer."),
                ("holdfast_queue_jobs_total", "counter", "Images encoded, additions written."),
                (
                    "holdfast_queue_batches_total",
                    "counter",
                    "Calls that did them: jobs per batch.",
                ),
            )
        ):
            _write(lines, name, kind, text, [(f'{{queue="{queue}"}}', row[place]) for queue, row in queues.items()])
        for name, text in (("items", "Items by the version that embedded them."), ("unindexed", "Not indexed yet.")):
            rows = [(f'{{version="{row["version"]}"}}', row[name]) for row in stats["versions"]]
            _write(lines, f"holdfast_gallery_{name}", "gauge", text, rows)
        _write(lines, "holdfast_gallery_newest_version", "gauge", "The version that embeds queries.", [("", newest)])
        _write(lines, "holdfast_gallery_bytes", "gauge", "Size on disk.", [("", stats["bytes_on_disk"])])
        return "\n".join(lines) + "\n"

    def _write_seconds(self, lines: list[str]) -> None:
        name = "holdfast_request_seconds"
        lines += [f"# HELP {name} Time to answer.", f"# TYPE {name} histogram"]
        for route, counts in sorted(self._seconds.items()):
            below = 0
            for bound, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
                below += count
                lines.append(f'{name}_bucket{{route="{route}",le="{bound}"}} {below}')
            lines.append(f'{name}_sum{{route="{route}"}} {self._total[route]:.6f}')
            lines.append(f'{name}_count{{route="{route}"}} {below}')


def _write(lines: list[str], name: str, kind: str, text: str, rows: Iterable[tuple[str, int]]) -> None:
    lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{labels} {value}" for labels, value in rows]

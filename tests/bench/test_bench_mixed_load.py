"""The bench of mixed load: how it measures memory and errors, and a short run of it."""

import time
from pathlib import Path

import pytest

pytest.importorskip("qdrant_edge")
pytest.importorskip("fastapi")

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    import mixed_load

    return mixed_load


def samples(start, end, megabytes):
    return [{"s": float(s), "start": float(start), "rss_mb": megabytes(s)} for s in range(start + 5, end, 5)]


def test_growth_is_of_the_last_server_after_its_warm_up(bench):
    earlier = samples(0, 1000, lambda s: 900.0)
    # It fills its caches for three minutes, then stays as it is.
    flat = samples(1000, 1800, lambda s: 300 + min(s - 1000, 180))
    assert bench.growth_of([*earlier, *flat]) == 0
    leaking = samples(1000, 1800, lambda s: 400 + 0.1 * (s - 1000))
    assert bench.growth_of([*earlier, *leaking]) == pytest.approx((400 + 0.1 * 766) / (400 + 0.1 * 213) - 1, abs=0.01)
    assert bench.growth_of(samples(0, 12, lambda s: 1.0)) is None
    assert bench.growth_of([]) is None


def test_errors_are_noted_with_the_time_since_the_start(bench, tmp_path):
    from acknowledged import Servers

    servers, errors = Servers(tmp_path), []
    servers.started, servers.generation = time.monotonic() - 100, 3
    statuses = bench.Statuses(servers, errors)
    for status in (200, 200, 404, 503):
        statuses[status] += 1
    assert dict(statuses) == {200: 2, 404: 1, 503: 1}
    assert [(error["status"], error["server"], error["s_after_start"] > 99) for error in errors] == [(503, 3, True)]

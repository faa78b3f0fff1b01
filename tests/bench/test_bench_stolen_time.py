"""Stolen time: sampled by a process of its own, and counted for the interval of a call."""

import sys
import time
from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def stolen_time(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import stolen_time

    yield stolen_time
    sys.modules.pop("stolen_time")


def test_the_core_that_lost_most_counts(stolen_time):
    stolen = stolen_time.StolenTime()
    stolen._samples = np.array([[0.0, 5.0, 7.0], [1.0, 5.0, 7.0], [2.0, 5.1, 7.3], [3.0, 5.1, 7.3], [4.0, 5.1, 7.3]])
    assert stolen.within(1.2, 1.9) == pytest.approx(0.3)
    assert stolen.within(2.5, 2.6) == pytest.approx(0.0)
    assert stolen.within(1.5, 1.6) == pytest.approx(0.1)  # not more than the interval
    assert stolen.within(-1.0, 9.0) == pytest.approx(0.3)


def test_samples_cover_the_block(stolen_time):
    with stolen_time.StolenTime() as stolen:
        started = time.perf_counter()
        time.sleep(0.1)
        ended = time.perf_counter()
    assert 0 <= stolen.within(started, ended) <= ended - started
    if Path("/proc/stat").exists():
        assert stolen._samples[0, 0] <= started < ended <= stolen._samples[-1, 0]

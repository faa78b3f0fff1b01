"""Every number of a table is worked out anew from the files its row names."""

import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest

from papers.stationary import PAGES, Results
from papers.stationary.result_page import EVERYTHING

RESULTS = Path(__file__).parents[1] / "results"
READ = Results(RESULTS)  # reads each file once
SCORES = ("AC", "AA", "ACA")
SETTINGS = ("table1", "table5")
"""Tables of settings: their rows come from recipes and from no run."""


@functools.cache
def record(file):
    return json.loads((RESULTS / file).read_text(encoding="utf-8"))


def records(files):
    return [record(file) for file in files]


def mean_and_deviation(found, score, protocol="template"):
    """Over records, None where one of them has no such score; no deviation of a single one."""
    values = [record["protocols"].get(protocol, {}).get(score) for record in found]
    if not values or None in values:
        return None, None
    return np.mean(values), np.std(values, ddof=1) if len(values) > 1 else None


def close(value):
    return None if value is None else pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("name", [name for name in PAGES if name not in (*SETTINGS, "goals")])
def test_scores_come_from_files(name):
    for row in PAGES[name].rows(READ, EVERYTHING):
        found = records(row["files"])
        assert [record["seed"] for record in found] == row["seeds"]
        assert [record["environment"]["commit"] for record in found] == row["commits"]
        assert {record["method"] for record in found} <= {row["method"]}
        for score in SCORES:
            for part, protocol in ((row, "template"), (row["instance"], "instance")):
                mean, deviation = mean_and_deviation(found, score, protocol)
                assert part[score] == close(mean), (row["files"], protocol)
                assert part["sd"][score] == close(deviation), (row["files"], protocol)
        for key in {"matrix", "AA_tau"} & set(row):
            assert row[key] == (found[0]["protocols"]["template"][key] if found else None)


def test_goals_come_from_files():
    rows = PAGES["goals"].rows(READ, EVERYTHING)
    assert any(row["rivals"] for row in rows)
    for row in rows:
        found, rivals = records(row["files"]), records(row["rivals"])
        assert {(record["method"], record["tasks"]) for record in found} <= {(row["method"], row["tasks"])}
        assert row["found"] == close(mean_and_deviation(found, row["score"])[0])
        names = {record["method"] for record in rivals}
        assert row["method"] not in names
        if row["goal"] != "at least" and row["needed"] is not None:
            best = max(
                mean_and_deviation([record for record in rivals if record["method"] == name], row["score"])[0]
                for name in names
            )
            assert row["needed"] == close(best - row["short"])
        if row["margin"] is not None:
            assert row["margin"] == close(row["found"] - row["needed"])


def test_table_two_prints_what_its_files_say():
    """Means, deviations and the scores by instance as text, from the files alone."""

    def shown(score, mean, deviation=None):
        if score == "AC" and 0 < mean < 0.005 and deviation is None:
            return "<0.01"
        factor = 1 if score == "AC" else 100
        return f"{factor * mean:.2f}" + ("" if deviation is None else f"±{factor * deviation:.2f}")

    page, spreads = PAGES["table2"], 0
    lines = [line for table in page.tables(READ, EVERYTHING) for line in table.rows]
    for row, line in zip(page.rows(READ, EVERYTHING), lines, strict=True):
        found = records(row["files"])
        if found:
            by_template = [shown(score, *mean_and_deviation(found, score)) for score in SCORES]
            by_instance = " ".join(shown(score, mean_and_deviation(found, score, "instance")[0]) for score in SCORES)
            assert line[2:6] == [*by_template, str(len(found))]
            assert line[7] == by_instance
            spreads += len(found) > 1
    assert spreads


def test_the_device_time_of_table_two_is_that_of_its_files():
    found = [json.loads(path.read_text()) for path in RESULTS.glob("cifar100-10/paper/*-natural-s0.json")]
    minutes = sum(record["gpu_minutes"] for record in found)
    first, *others = PAGES["table2"].tables(READ, EVERYTHING)
    (footer,) = re.findall(r"GPU minutes of this table at seed 0: (\S+) on (.+), (\d+) of 32 runs", first.notes[-1])
    assert footer == (f"{minutes:.1f}", "NVIDIA H200", str(len(found)))
    assert not any("GPU minutes" in note for table in others for note in table.notes)

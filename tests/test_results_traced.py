"""Every number of a table is worked out anew from the files its row names."""

import functools
import json
import statistics
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


@pytest.mark.parametrize("name", [name for name in PAGES if name not in SETTINGS])
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


def shown(score, mean, deviation=None):
    """A score as the tables print it."""
    if score == "AC" and 0 < mean < 0.005 and deviation is None:
        return "<0.01"
    factor = 1 if score == "AC" else 100
    return f"{factor * mean:.2f}" + ("" if deviation is None else f"±{factor * deviation:.2f}")


def lines_of_table_two(title):
    tables = {table.title: table for table in PAGES["table2"].tables(READ, EVERYTHING)}
    return tables[title].rows


@pytest.mark.parametrize(
    ("source", "settings"), [("paper", "The paper's settings"), ("ACA", "Chosen settings")], ids=["paper", "chosen"]
)
@pytest.mark.parametrize(("order", "words"), [("natural", "natural class order"), ("icarl", "iCaRL's class order")])
def test_table_two_prints_what_its_files_say(source, settings, order, words):
    """Means, deviations and the scores by instance as text, from the files alone."""
    rows = [row for row in PAGES["table2"].rows(READ, EVERYTHING) if (row["source"], row["order"]) == (source, order)]
    for row, line in zip(rows, lines_of_table_two(f"{settings}, {words}"), strict=True):
        found = records(row["files"])
        by_template = [shown(score, *mean_and_deviation(found, score)) for score in SCORES]
        by_instance = " ".join(shown(score, mean_and_deviation(found, score, "instance")[0]) for score in SCORES)
        assert line[2:6] == [str(len(found)), *by_template]
        assert line[9] == by_instance


@pytest.mark.parametrize(
    ("source", "settings"), [("paper", "The paper's settings"), ("ACA with rotation", "Chosen settings")]
)
def test_table_two_prints_the_rotated_scores_of_its_files(source, settings):
    rows = [
        row for row in PAGES["table2"].rows(READ, EVERYTHING) if (row["source"], row["order"]) == (source, "natural")
    ]
    title = f"{settings} with rotated queries, natural class order"
    for row, line in zip(rows, lines_of_table_two(title), strict=True):
        found = [record["bridged"] for record in records(row["files"])]
        for column, (pairs, protocol) in {
            3: ("rotation_gallery", "template"),
            4: ("rotation_gallery", "instance"),
            7: ("rotation_other", "template"),
            8: ("rotation_other", "instance"),
        }.items():
            means = [statistics.fmean(one[pairs][protocol][score] for one in found) for score in SCORES]
            assert line[column] == " ".join(shown(score, mean) for score, mean in zip(SCORES, means))


def test_table_two_is_complete_and_from_one_commit():
    files = sorted((RESULTS / "cifar100-10/table2").glob("*.json"))
    found = [record(path.relative_to(RESULTS).as_posix()) for path in files]
    assert not READ.missing(PAGES["table2"].runs())
    assert {one["environment"]["commit"] for one in found} == {"6d6fbf8e015b"}
    assert {one["environment"]["executor"] for one in found} == {"fused", "graph"}
    minutes = sum(one["gpu_minutes"] for one in found)
    tables = PAGES["table2"].tables(READ, EVERYTHING)
    assert tables[-1].notes[-1] == f"GPU minutes of {len(found)} of {len(found)} runs: {minutes:.1f}."
    assert not any("missing" in cell for table in tables for line in table.rows for cell in line)

"""``python -m papers.sweeps`` as a user sees it."""

import json

from typer.testing import CliRunner

from holdfast.core.errors import HoldfastError
from papers.sweeps.__main__ import app


def sweep(*words):
    return CliRunner().invoke(app, [*map(str, words), "--set", "train.epochs=1", "--device", "cpu"])


def test_runs_records_and_report(tiny_recipe, tmp_path):
    words = [tiny_recipe, "--methods", "er,simplex_fd", "--seeds", "0,1", "--parallel", 2, "--out", tmp_path / "s"]
    result = sweep(*words, "--record", tmp_path / "records", "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [row["method"] for row in rows] == ["er", "er", "simplex_fd", "simplex_fd"]
    assert sorted(path.stem for path in (tmp_path / "records").glob("*.json")) == [
        "er-t3-s0", "er-t3-s1", "simplex_fd-t3-s0", "simplex_fd-t3-s1",
    ]  # fmt: skip
    assert (tmp_path / "s" / "report.html").is_file()


def test_a_failed_run_is_named_and_the_exit_says_so(tiny_recipe, tmp_path):
    result = sweep(tiny_recipe, "--seeds", "0", "--out", tmp_path / "s", "--set", "train.lr=1e30")
    assert result.exit_code == 1
    assert "failed: the loss became NaN" in result.output


def test_methods_that_are_not_known():
    for methods, reason in ((",", "names no method"), ("er,nonesuch", "unknown method 'nonesuch'")):
        result = sweep("demo", "--methods", methods)
        assert reason in str(result.exception)


def test_numbers_must_be_numbers(tiny_recipe):
    result = sweep(tiny_recipe, "--tasks", "two")
    assert isinstance(result.exception, HoldfastError)
    assert "whole numbers separated by commas" in str(result.exception)

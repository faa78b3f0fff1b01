"""Run folders: strict about what counts, lenient about the rest."""

import json
import math

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from papers.run_pages import read_run


def written(folder, value):
    (folder / "metrics.json").write_text(value if isinstance(value, str) else json.dumps(value))
    return folder


def protocol(matrix):
    return {"method": "er", "protocols": {"template": {"matrix": matrix}}}


def test_only_method_and_matrix_are_needed(tmp_path):
    run = read_run(written(tmp_path, protocol([[0.5, 9], [None, 0.7]])))
    record = run.protocols["template"]
    np.testing.assert_array_equal(record.matrix, [[0.5, np.nan], [np.nan, 0.7]])
    assert math.isnan(record.AC)
    assert (run.name, run.tasks, run.recipe, run.environment, run.log) == ("ER", [], {}, {}, [])


def test_the_whole_folder_is_read(tmp_path):
    written(tmp_path, {**protocol([[0.5]]), "tasks": [{"task": 1}], "data": {"open_set": True}})
    (tmp_path / "recipe.toml").write_text("[optim]\nlr = 0.1\n")
    (tmp_path / "environment.json").write_text('{"commit": "abc"}')
    killed_while_writing = '{"event": "epoch", "loss": 2.0}\n\n[1]\n{"event": "epoch", "loss": 1.0}\n{"loss": 0.'
    (tmp_path / "log.jsonl").write_text(killed_while_writing)
    run = read_run(tmp_path)
    assert run.recipe == {"optim": {"lr": 0.1}}
    assert run.environment == {"commit": "abc"}
    assert [record["loss"] for record in run.log] == [2.0, 1.0]


def test_missing_metrics(tmp_path):
    with pytest.raises(HoldfastError, match=r"no recipe\.toml in it") as caught:
        read_run(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("{", "not readable as JSON"),
        ([], "names no method"),
        ({"method": 3, "protocols": {}}, "names no method"),
        ({"method": "er"}, "no protocols"),
        ({"method": "er", "protocols": {"template": {"AC": 1}}}, "'template' has no matrix"),
        (protocol([]), "not a list of rows"),
        (protocol([[0.5], [0.5]]), "row 2 has 1 cells"),
        (protocol([[0.5, 0.5]]), "row 1 has 2 cells"),
        (protocol([[58.9]]), r"in \[0, 1\]"),
        (protocol([["0.5"]]), "neither a number nor null"),
        (protocol([[True]]), "neither a number nor null"),
    ],
)
def test_invalid_metrics(tmp_path, value, says):
    with pytest.raises(HoldfastError, match=says) as caught:
        read_run(written(tmp_path, value))
    assert "metrics.json" in str(caught.value)
    assert "\n" not in str(caught.value)

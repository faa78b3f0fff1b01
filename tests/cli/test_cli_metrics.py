"""``holdfast evaluate`` on files somebody else wrote."""

import json

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError

# By hand: of (2,1), (3,1), (3,2) the first two beat the 0.5 of model 1, 0.55 does not beat the 0.6 of model 2.
ROWS = [[0.5], [0.6, 0.6], [0.7, 0.55, 0.8]]
EXPECTED = {
    "T": 3,
    "AC": 2 / 3,
    "AA": 3.75 / 6,
    "ACA": (0.6 + 0.7) / 3,
    "AC_tau": [None, 1.0, 2 / 3],
    "AA_tau": [0.5, 1.7 / 3, 3.75 / 6],
}


def square(rows):
    return np.array([[*row, *[np.nan] * (len(rows) - len(row))] for row in rows])


def write(path, rows):
    if path.suffix == ".csv":
        path.write_text("\n".join(",".join(str(cell) for cell in row) for row in rows))
    elif path.suffix == ".npy":
        np.save(path, square(rows))
    else:
        path.write_text(json.dumps([[None if cell != cell else cell for cell in row] for row in square(rows).tolist()]))
    return path


@pytest.mark.parametrize("suffix", ["csv", "json", "npy"])
@pytest.mark.parametrize("percent", [False, True])
def test_every_form(suffix, percent, tmp_path, holdfast_json):
    rows = [[100 * cell for cell in row] for row in ROWS] if percent else ROWS
    path = write(tmp_path / f"m.{suffix}", rows)
    found = holdfast_json("evaluate", path, *["--percent"] * percent)
    assert found.keys() == EXPECTED.keys()
    assert found["AC_tau"][0] is None
    for key in ("T", "AC", "AA", "ACA"):
        assert found[key] == pytest.approx(EXPECTED[key])
    assert found["AC_tau"][1:] == pytest.approx(EXPECTED["AC_tau"][1:])
    assert found["AA_tau"] == pytest.approx(EXPECTED["AA_tau"])


def test_one_model_has_no_compatibility(tmp_path, holdfast_json, holdfast):
    path = write(tmp_path / "m.csv", [[0.5]])
    found = holdfast_json("evaluate", path)
    assert (found["T"], found["AC"], found["AC_tau"]) == (1, None, [None])
    assert "–" in holdfast("evaluate", path)


@pytest.mark.parametrize("suffix", ["csv", "json", "npy"])
def test_models_that_cannot_be_compared(suffix, tmp_path, holdfast_json, holdfast):
    path = write(tmp_path / f"m.{suffix}", [[0.5], [float("nan"), 0.75]])
    found = holdfast_json("evaluate", path)
    assert (found["AC"], found["AA"], found["ACA"]) == (0, None, None)
    assert found["AA_tau"] == [0.5, None]
    assert found["AA_computable"] == 0.625
    assert "62.50 %" in holdfast("evaluate", path)


def test_for_people(tmp_path, holdfast):
    text = holdfast("evaluate", write(tmp_path / "m.csv", ROWS))
    assert "0.667" in text
    assert "62.50 %" in text
    assert "43.33 %" in text


def test_a_run_is_a_matrix_too(tiny_run, holdfast_json):
    found = holdfast_json("evaluate", tiny_run / "metrics.json")
    protocol = json.loads((tiny_run / "metrics.json").read_text())["protocols"]["template"]
    assert found["AA"] == pytest.approx(protocol["AA"])


@pytest.mark.parametrize("suffix", ["csv", "json", "npy"])
def test_per_cent_must_be_said(suffix, tmp_path, holdfast):
    path = write(tmp_path / f"m.{suffix}", [[0.5], [60.0, 0.6]])
    with pytest.raises(
        HoldfastError, match="row 2, column 1: 60 is over 1; if the scores are per cent, pass --percent"
    ):
        holdfast("evaluate", path)


def test_options_without_effect_are_refused(tmp_path, tiny_run, holdfast):
    matrix = write(tmp_path / "m.csv", ROWS)
    for words in (("--scores", "top5"),):
        with pytest.raises(HoldfastError, match=f"{words[0]} goes with a run, not a matrix"):
            holdfast("evaluate", matrix, *words)
    with pytest.raises(HoldfastError, match="--percent goes with a matrix"):
        holdfast("evaluate", tiny_run, "--percent")

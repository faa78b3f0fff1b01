"""Matrices from files, and the one-line refusals."""

import json

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.metrics import read_matrix

NAN = np.nan
WANTED = np.array([[0.5, NAN, NAN], [0.6, 0.7, NAN], [0.25, 0.8, 0.9]])


@pytest.mark.parametrize(
    "text",
    [
        "0.5\n0.6,0.7\n0.25,0.8,0.9\n",
        "0.5,,\n0.6,0.7,\n0.25,0.8,0.9",
        "0.5,nan,NaN\n 0.6 , 0.7 ,0\n\n0.25,0.8,0.9\n\n",
        "\ufeff0.5,9,-1\n0.6,0.7,x\n0.25,0.8,0.9,\n",
    ],
)
def test_csv(tmp_path, text):
    path = tmp_path / "c.csv"
    path.write_text(text, encoding="utf-8")
    np.testing.assert_array_equal(read_matrix(path), WANTED)


def test_per_cent(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text("50\n60,70\n25,80,90\n")
    np.testing.assert_allclose(read_matrix(path, percent=True), WANTED)
    with pytest.raises(HoldfastError, match=r"c\.csv: row 1.*pass percent=True$"):
        read_matrix(path)


ROWS = [[0.5, None, None], [0.6, 0.7], [0.25, 0.8, 0.9]]


@pytest.mark.parametrize("value", [ROWS, {"matrix": ROWS}, {"protocols": {"template": {"matrix": ROWS, "AC": 1}}}])
def test_json(tmp_path, value):
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(value))
    np.testing.assert_array_equal(read_matrix(path), WANTED)


def test_null_below_the_diagonal_is_not_comparable(tmp_path):
    path = tmp_path / "c.json"
    path.write_text("[[0.5], [null, 0.7]]")
    np.testing.assert_array_equal(read_matrix(path), [[0.5, NAN], [NAN, 0.7]])


def test_npy(tmp_path):
    path = tmp_path / "c.npy"
    np.save(path, np.nan_to_num(WANTED))
    np.testing.assert_array_equal(read_matrix(path), WANTED)


def test_npy_with_pickle_is_refused(tmp_path):
    path = tmp_path / "c.npy"
    np.save(path, np.array([[object()]]), allow_pickle=True)
    with pytest.raises(HoldfastError, match="npy"):
        read_matrix(path)


def test_a_file_of_vectors_is_refused_before_memory_is_allocated(tmp_path):
    """As a square matrix these rows would take 298 GiB."""
    (tmp_path / "v.csv").write_text("0.5,0.25\n" * 200_000)
    np.save(tmp_path / "v.npy", np.zeros((200_000, 2), np.float32))
    for name, says in (("v.csv", "row 3 has 2 cells; with 200000 rows it needs 3"), ("v.npy", "one square array")):
        with pytest.raises(HoldfastError, match=says):
            read_matrix(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("c.csv", "0.5\n0.6\n", "row 2 has 1 cells"),
        ("c.csv", "0.5,0.1,0.2\n0.6,0.7\n", "row 1 has 3 cells"),
        ("c.csv", "0.5\n,0.7\n", "row 2, column 1 is empty"),
        ("c.csv", "a,b\n0.5,0.6\n", "row 1, column 1: 'a' is not a number"),
        ("c.csv", "0.5\n-0.6,0.7\n", "row 2, column 1: -0.6 is negative"),
        ("c.csv", "0.5\n0.6,inf\n", "over 1"),
        ("c.csv", "\n", "no rows"),
        ("c.json", "[]", "no rows"),
        ("c.json", "{}", "no matrix"),
        ("c.json", '{"protocols": {"instance": {"matrix": [[1]]}}}', "no matrix"),
        ("c.json", "[[true]]", "not a number"),
        ("c.json", "[[", "not readable as JSON"),
        ("c.txt", "0.5", r"unknown kind of matrix file.*\.csv, \.json, \.npy"),
    ],
)
def test_matrix_refusals(tmp_path, name, text, says):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(HoldfastError, match=says) as caught:
        read_matrix(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["c.csv", "c.json", "c.npy"])
def test_missing_matrix_file(tmp_path, name):
    with pytest.raises(HoldfastError, match="no such file"):
        read_matrix(tmp_path / name)

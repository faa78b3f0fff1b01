"""Read a compatibility matrix from a CSV, JSON or NPY file."""

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.core.storage import read_array, read_json
from holdfast.core.untrusted_files import open_table


def read_matrix(path: Path, percent: bool = False) -> NDArray[np.float64]:
    """The T x T matrix in ``path``, with scores in [0, 1] and NaN above the diagonal.

    path: one of
        CSV: no header, one row per query model. Rows may end at the diagonal; cells above it are ignored.
        JSON: a list of lists, an object with "matrix", or a run's metrics.json (its template protocol is read).
        NPY: a square array.
    percent: the scores in the file are in [0, 100].

    Two models that cannot be compared have ``nan`` in CSV and NPY, null in JSON. An empty CSV cell at or below the
    diagonal is an error, because it may be a mistake.
    """
    path = Path(path)
    readers = {".csv": _rows_of_csv, ".json": _rows_of_json, ".npy": _rows_of_npy}
    if path.suffix.lower() not in readers:
        raise unknown_name(f"kind of matrix file ({path})", path.suffix, readers)
    rows = readers[path.suffix.lower()](path)
    if not rows:
        raise HoldfastError(f"{path}: has no rows; a matrix needs at least one model")
    for number, row in enumerate(rows, start=1):  # before memory is allocated: a file of vectors may have many rows
        if not number <= len(row) <= len(rows):
            raise HoldfastError(
                f"{path}: row {number} has {len(row)} cells; with {len(rows)} rows it needs {number} to {len(rows)}"
            )
    matrix = np.full((len(rows), len(rows)), np.nan)
    for number, row in enumerate(rows, start=1):
        for column, cell in enumerate(row[:number], start=1):
            matrix[number - 1, column - 1] = _score(cell, percent, f"{path}: row {number}, column {column}")
    return matrix


def _score(cell: Any, percent: bool, where: str) -> float:
    if cell is None:
        return math.nan
    if cell == "":
        raise HoldfastError(f"{where} is empty; write nan if the two models cannot be compared")
    try:
        value = float(cell)
    except (TypeError, ValueError, OverflowError):
        raise HoldfastError(f"{where}: {str(cell)[:40]!r} is not a number") from None
    if isinstance(cell, bool):
        raise HoldfastError(f"{where}: {cell} is not a number")
    if value < 0:
        raise HoldfastError(f"{where}: {value:g} is negative; scores are in [0, 1]")
    if percent and value > 100:
        raise HoldfastError(f"{where}: {value:g} is over 100 per cent")
    if not percent and value > 1:
        raise HoldfastError(f"{where}: {value:g} is over 1; if the scores are per cent, pass percent=True")
    return value / 100 if percent else value


def _rows_of_csv(path: Path) -> list[list[Any]]:
    try:
        with open_table(path) as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise HoldfastError(f"{path}: not readable as CSV ({error})") from error
    for row in rows:
        while row and row[-1] == "":  # a trailing comma, or spreadsheet cells above the diagonal
            row.pop()
    return [row for row in rows if row]


def _rows_of_json(path: Path) -> list[list[Any]]:
    value = read_json(path)
    if isinstance(value, dict) and "protocols" in value:
        for key in ("protocols", "template"):
            value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, dict):
        value = value.get("matrix")
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        raise HoldfastError(f"{path}: has no matrix; write a list of rows, or an object with one under 'matrix'")
    return value


def _rows_of_npy(path: Path) -> list[list[Any]]:
    array = read_array(path)
    if (
        not isinstance(array, np.ndarray)
        or array.ndim != 2
        or array.shape[0] != array.shape[1]
        or array.dtype.kind not in "fiu"
    ):
        raise HoldfastError(f"{path}: has no matrix; it must be one square array of numbers")
    rows: list[list[Any]] = array.tolist()
    return rows

"""Files of judgements: which items are right for which query, and how well they fit.

Forms, told apart by their content:

- BEIR: tab-separated with a header ``query-id``, ``corpus-id``, ``score``.
- TREC: four columns without a header: query, a number that is not used, item, grade.
- query id, item id and perhaps a grade, in CSV or separated by tabs, with a header or without one.
- parquet with such columns.

A grade above 0 is relevant, and a larger one counts more in nDCG. Without grades every pair is relevant.
"""

import csv
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.locations import parquet_errors
from holdfast.core.untrusted_files import bounded_lines, open_table
from holdfast.core.wording import printable
from holdfast.vectors.feature_files import column, open_parquet

Judgements = dict[str, dict[str, float]]
"""Grades by query id and item id."""

_QUERY = ("query", "query-id", "qid", "queryid", "topic")
_ITEM = (
    "gallery",
    "gallery-id",
    "item",
    "item-id",
    "corpus-id",
    "doc",
    "doc-id",
    "docid",
    "docno",
    "document-id",
    "iid",
)
_GRADE = ("grade", "score", "relevance", "rel", "label")
_FORMS = "query id, item id and perhaps a grade (BEIR, CSV), or TREC's query, 0, item, grade"


def read_judgements(path: Path | str) -> Judgements:
    """Grades by query id and item id, those of 0 and below too. Refused if no pair is relevant.

    path: a text file or a parquet file in one of the forms above. A pair may be there twice, but with one grade only.
    """
    path = Path(path)
    rows = _parquet_rows(path) if path.suffix.lower() == ".parquet" else _text_rows(path)
    found: Judgements = {}
    try:
        for where, query, item, grade in rows:
            before = found.setdefault(query, {}).setdefault(item, grade)
            if before != grade:
                raise HoldfastError(
                    f"{where}: query {printable(query)} and item {printable(item)} have the grade {grade:g} here and "
                    f"{before:g} before; keep one"
                )
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise HoldfastError(f"{path}: not readable as a table of judgements ({error})") from error
    if not any(grade > 0 for grades in found.values() for grade in grades.values()):
        raise HoldfastError(f"{path}: names no relevant pair; a grade above 0 is relevant")
    return found


def _text_rows(path: Path) -> Iterator[tuple[str, str, str, float]]:
    with open_table(path) as file:
        places: tuple[int, int, int | None] | None = None
        for number, cells in _cells(path, bounded_lines(file, path)):
            where = f"{path}: line {number}"
            if number == 1 and _plain(cells[0]) in _QUERY:
                places = _header(cells, where)
                width = len(cells)
                continue
            if places is None:
                places, width = _places(len(cells), where, cells), len(cells)
            if len(cells) != width or not cells[places[0]] or not cells[places[1]]:
                raise HoldfastError(f"{where} must be {_FORMS}, as in the lines before, not {cells!r:.200}")
            grade = 1.0 if places[2] is None else _grade(cells[places[2]], where)
            yield where, cells[places[0]], cells[places[1]], grade


def _cells(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and fields of all lines that are not empty. Separated by commas in CSV, else by tabs or spaces."""
    tabs: bool | None = None
    if path.suffix.lower() == ".csv":
        reader = csv.reader(lines, strict=True)
        yield from ((reader.line_num, [cell.strip() for cell in row]) for row in reader if row)
        return
    for number, line in enumerate(lines, start=1):
        if line.strip():
            tabs = "\t" in line if tabs is None else tabs
            yield number, [cell.strip() for cell in line.rstrip("\r\n").split("\t" if tabs else None)]


def _places(width: int, where: str, cells: list[str]) -> tuple[int, int, int | None]:
    """The columns of query, item and grade in a file without a header."""
    if width not in (2, 3, 4):
        raise HoldfastError(f"{where} must be {_FORMS}, not {cells!r:.200}")
    return (0, 1, None if width == 2 else 2) if width < 4 else (0, 2, 3)


def _header(cells: list[str], where: str) -> tuple[int, int, int | None]:
    names = [_plain(cell) for cell in cells]
    item = next((names.index(name) for name in _ITEM if name in names), None)
    grade = next((names.index(name) for name in _GRADE if name in names), None)
    if item is None or (grade is None and len(names) > 2):
        missing = "the item" if item is None else "the grade"
        wanted = ", ".join(_ITEM if item is None else _GRADE)
        raise HoldfastError(
            f"{where}: no column of {missing}; it has {', '.join(cells)}; names that are read: {wanted}"
        )
    return 0, item, grade


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-")


def _grade(cell: Any, where: str) -> float:
    try:
        grade = float(cell)
    except (TypeError, ValueError):
        grade = math.nan
    if not math.isfinite(grade):  # also an empty cell of a parquet file
        raise HoldfastError(f"{where}: grade {cell!r} is not a number")
    return grade


def _parquet_rows(path: Path) -> Iterator[tuple[str, str, str, float]]:
    file, names = open_parquet(path, set())
    named = {_plain(name): name for name in reversed(names)}
    query, item, grade = (
        next((named[name] for name in known if name in named), None) for known in (_QUERY, _ITEM, _GRADE)
    )
    if query is None or item is None:
        missing, known = ("query", _QUERY) if query is None else ("item", _ITEM)
        raise HoldfastError(
            f"{path}: no column of the {missing}; it has {', '.join(names) or 'none'}; names that are read: "
            f"{', '.join(known)}"
        )
    with parquet_errors(path):
        queries, items = column(file, query).tolist(), column(file, item).tolist()
        grades = [1.0] * len(queries) if grade is None else column(file, grade).tolist()
    for row, (one, other, given) in enumerate(zip(queries, items, grades, strict=True)):
        where = f"{path}: row {row}"
        if one is None or other is None:
            raise HoldfastError(f"{where}: an empty id")
        yield where, str(one), str(other), _grade(given, where)

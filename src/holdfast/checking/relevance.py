"""Which gallery items are relevant to which query, from a file."""

import csv
from pathlib import Path

import numpy as np

from holdfast.checking.feature_set import FeatureSet, some
from holdfast.checking.truth import RelevanceTruth
from holdfast.errors import HoldfastError, unknown_name
from holdfast.wording import counted

_COLUMNS = ("query", "gallery", "grade")


def read_relevance(path: Path | str) -> list[tuple[str, str]]:
    """(query id, gallery id) of every relevant pair: those with a grade above 0, or all where there are no grades.

    CSV or TSV, with a header ``query,gallery[,grade]`` or without one; or parquet with columns of those names.
    """
    path = Path(path)
    if not path.exists():
        raise HoldfastError(f"{path}: no such file")
    readers = {".csv": _read_text, ".tsv": _read_text, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise unknown_name(f"kind of relevance file ({path})", path.suffix, readers)
    return readers[path.suffix.lower()](path)


def relevance_truth(
    pairs: list[tuple[str, str]], query_names: np.ndarray, gallery: FeatureSet
) -> tuple[RelevanceTruth, list[str]]:
    """The pairs as row numbers, and a note about those whose ids are nowhere."""
    query_of = {str(name): i for i, name in enumerate(query_names)}
    row_of = {str(name): i for i, name in enumerate(gallery.names())}
    unknown = [pair for pair in pairs if pair[0] not in query_of or pair[1] not in row_of]
    keys = {query_of[q] * len(gallery) + row_of[g] for q, g in pairs if q in query_of and g in row_of}
    if not keys:
        known = f"queries are called {some(query_names, 2)}, gallery items {some(gallery.names(), 2)}"
        raise HoldfastError(f"relevance: none of {len(pairs)} pairs has ids of the features; {known}")
    notes = []
    if unknown:
        named = some([f"{q} - {g}" for q, g in unknown])
        name = "names" if len(unknown) == 1 else "name"
        share = f"{len(unknown)} of {counted(len(pairs), 'pair')}"
        notes.append(f"relevance: {share} {name} an unknown query or item ({named}); ignored")
    return RelevanceTruth(np.array(sorted(keys), dtype=np.int64), len(query_names), len(gallery)), notes


def _read_text(path: Path) -> list[tuple[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
            rows = [(number, [cell.strip() for cell in row]) for number, row in enumerate(lines, start=1) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise HoldfastError(f"{path}: not readable as a table ({error})") from error
    if rows and rows[0][1][0].lower() in ("query", "query_id"):
        rows = rows[1:]
    pairs = []
    for number, row in rows:
        if len(row) not in (2, 3) or not row[0] or not row[1]:
            raise HoldfastError(f"{path}: line {number} must be query id, gallery id and perhaps a grade, not {row}")
        if len(row) == 2 or _grade(row[2], f"{path}: line {number}") > 0:
            pairs.append((row[0], row[1]))
    if not pairs:
        raise HoldfastError(f"{path}: names no relevant pair")
    return pairs


def _grade(cell: str, where: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise HoldfastError(f"{where}: grade {cell!r} is not a number") from None


def _read_parquet(path: Path) -> list[tuple[str, str]]:
    from holdfast.checking.parquet import column, open_parquet

    file, names = open_parquet(path, {"query", "gallery"})
    query, gallery = (column(file, name) for name in _COLUMNS[:2])
    relevant = column(file, "grade") > 0 if "grade" in names else np.ones(len(query), dtype=bool)
    return [(str(q), str(g)) for q, g in zip(query[relevant].tolist(), gallery[relevant].tolist(), strict=True)]

"""Results as they lie on disk, one JSON file per run, and what is made of several of them."""

import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.storage import read_json
from papers.stationary.cells import Cell

SCORES = ("AC", "AA", "ACA")


class Results:
    """A folder such as ``results/``. A file counts only if its recipe is the one its cell asks for now.

    A file that cannot be read as a run's is refused by name, not counted as missing: a run would write over it. So are
    two runs of the same data set that saw different images, since no table may compare them.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self._read: dict[Path, dict[str, Any]] = {}
        self._first_on: dict[str, tuple[str, Path]] = {}

    def record(self, cell: Cell) -> dict[str, Any] | None:
        """What is known of a cell; None if it has not been run, or was with other settings."""
        path = self.root / cell.path
        if path not in self._read:
            if not path.is_file():
                return None
            self._read[path] = read_json(path)
        record = self._read[path]
        if not isinstance(record, dict) or not isinstance(record.get("recipe"), dict):
            raise HoldfastError(f"{path}: has no recipe; it is not the record of a run, move it away")
        try:
            counts = cell.is_of(record["recipe"])
        except HoldfastError as error:
            raise HoldfastError(f"{path}: recorded by another version? {error}; move it away to run it anew") from error
        if counts:
            self._refuse_other_images(cell, record, path)
        return record if counts else None

    def _refuse_other_images(self, cell: Cell, record: dict[str, Any], path: Path) -> None:
        for split, section in cell.recipe["data"].items():
            found = record.get("data", {}).get(split, {}).get("fingerprint")
            if found is None:  # older than fingerprints
                continue
            first, where = self._first_on.setdefault(json.dumps([split, section], sort_keys=True), (found, path))
            if found != first:
                raise HoldfastError(
                    f"{path}: its {split} images ({section['name']}) are others than those of {where}; "
                    "keep runs on different images in different --results folders"
                )

    def matrix(self, cell: Cell) -> list[list[float | None]] | None:
        """A cell's compatibility matrix by template; None if it has not been run."""
        record = self.record(cell)
        return None if record is None else record["protocols"]["template"]["matrix"]

    def self_tests(self, cell: Cell) -> list[float] | None:
        """Each of a cell's models on its own gallery, by template; None if it has not been run."""
        matrix = self.matrix(cell)
        if matrix is None:
            return None
        return [own for model, line in enumerate(matrix) if (own := line[model]) is not None]

    def pretrained(self, study: str) -> dict[str, Any]:
        """The records of the models that a study of IAM-CL2R began with or brought in, by name; empty if unknown."""
        path = self.root / "iam" / "pretrained.json"
        found: dict[str, Any] = read_json(path).get(study, {}).get("models", {}) if path.is_file() else {}
        return found

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those that have not been run, each once: two sets may ask for the same run."""
        return list({cell.path: cell for cell in reversed(cells) if self.record(cell) is None}.values())[::-1]

    def minutes(self, cells: Sequence[Cell]) -> float:
        """Device minutes of those that were run: each one's share, or all its training time where none is known."""
        found = [record for cell in cells if (record := self.record(cell)) is not None]
        return sum(record.get("gpu_minutes") or record["minutes"] for record in found)


def over_seeds(cells: Sequence[Cell]) -> Iterator[list[Cell]]:
    """Cells that differ in the seed alone, together; in the order in which the first of each came."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.set_name, cell.study, cell.method, cell.tasks, cell.order, cell.change), []).append(
            cell
        )
    yield from groups.values()


def summary(records: Sequence[dict[str, Any]], protocol: str = "template") -> dict[str, Any]:
    """Mean AC, AA and ACA in [0, 1] over ``records``, and under ``sd`` their sample deviations (from two runs on).

    A score that one of the runs does not have, as where it was not judged by ``protocol``, or of no run, is None.
    """
    found: dict[str, Any] = {"sd": {}}
    for name in SCORES:
        values = [record["protocols"].get(protocol, {}).get(name) for record in records]
        known = bool(values) and None not in values
        found[name] = statistics.fmean(values) if known else None
        found["sd"][name] = statistics.stdev(values) if known and len(values) > 1 else None
    return found


def row(cells: Sequence[Cell], results: Results, *, paper: Sequence[Any] | None) -> dict[str, Any]:
    """One row of a table as JSON: the mean over those of ``cells`` (one cell at several seeds) that were run.

    ``paper`` is AC, AA % and ACA % as the paper prints them, or None; in the row all scores are in [0, 1]. An AC
    that it prints as "<0.01" stays text. ``commits``: of the code each of ``files`` was made with,
    None where that is not known.
    """
    found = {cell: record for cell in cells if (record := results.record(cell)) is not None}
    first = cells[0]
    return {
        "method": first.method,
        "tasks": first.tasks,
        "set": first.set_name,
        "order": first.order,
        "seeds": [cell.seed for cell in found],
        **summary(list(found.values())),
        "instance": summary(list(found.values()), "instance"),
        "paper": None if paper is None else {"AC": paper[0], "AA": paper[1] / 100, "ACA": paper[2] / 100},
        "missing": [cell.seed for cell in cells if cell not in found],
        "files": [cell.path.as_posix() for cell in found],
        "commits": [record.get("environment", {}).get("commit") for record in found.values()],
    }


def rows_with_matrix(cells: Sequence[Cell], results: Results) -> list[dict[str, Any]]:
    """A row for each cell, with its matrix by template; None where it has not been run."""
    return [{**row([cell], results, paper=None), "matrix": results.matrix(cell)} for cell in cells]

"""Results on disk, one JSON file per run, and rows of tables made from them."""

import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.storage import read_json
from papers.stationary.study_runs import StudyRun

SCORES = ("AC", "AA", "ACA")


class Results:
    """A folder such as ``results/``. A file counts only if its recipe equals the current recipe of its run.

    A file that is not the record of a run is refused, not counted as missing, because a run would overwrite it. Two
    runs on different images of the same data set are refused too, because no table may compare them.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self._read: dict[Path, dict[str, Any]] = {}
        self._current: dict[StudyRun, bool] = {}
        self._first_on: dict[str, tuple[str, Path]] = {}

    def record(self, run: StudyRun) -> dict[str, Any] | None:
        """The record of a run with scores; None if it diverged, has not been run, or was run with other settings."""
        record = self._current_record(run)
        return None if record is None or "diverged" in record else record

    def diverged(self, run: StudyRun) -> bool:
        """Whether the run was tried and ended because a loss, a weight or a map became NaN or infinite."""
        return "diverged" in (self._current_record(run) or {})

    def _current_record(self, run: StudyRun) -> dict[str, Any] | None:
        path = self.root / run.path
        if path not in self._read:
            if not path.is_file():
                return None
            self._read[path] = read_json(path)
        record = self._read[path]
        if not isinstance(record, dict) or not isinstance(record.get("recipe"), dict):
            raise HoldfastError(f"{path}: not the record of a run, it has no recipe; move it away")
        try:
            if run not in self._current:
                self._current[run] = run.is_of(record["recipe"])
        except HoldfastError as error:
            raise HoldfastError(
                f"{path}: recorded by another version? {error}; move it away to run it again"
            ) from error
        if not self._current[run]:
            return None
        self._refuse_other_images(run, record, path)
        return record

    def _refuse_other_images(self, run: StudyRun, record: dict[str, Any], path: Path) -> None:
        for split, section in run.recipe["data"].items():
            found = record.get("data", {}).get(split, {}).get("fingerprint")
            if found is None:  # a record from before fingerprints
                continue
            first, where = self._first_on.setdefault(json.dumps([split, section], sort_keys=True), (found, path))
            if found != first:
                raise HoldfastError(
                    f"{path}: its {split} images ({section['name']}) differ from those of {where}; "
                    "keep runs on different images in different --results folders"
                )

    def matrix(self, run: StudyRun) -> list[list[float | None]] | None:
        """The compatibility matrix of a run by template; None if it has not been run."""
        record = self.record(run)
        return None if record is None else record["protocols"]["template"]["matrix"]

    def self_tests(self, run: StudyRun) -> list[float] | None:
        """Score of each model of a run on its own gallery, by template; None if it has not been run."""
        matrix = self.matrix(run)
        if matrix is None:
            return None
        return [own for model, line in enumerate(matrix) if (own := line[model]) is not None]

    def models(self, run: StudyRun) -> dict[str, Any]:
        """How the pre-trained models that a run started from were trained, by name; empty if it has not been run."""
        return (self.record(run) or {}).get("models", {})

    def missing(self, runs: Sequence[StudyRun]) -> list[StudyRun]:
        """The runs that were not tried, each once; two sets may share a run."""
        return list({run.path: run for run in reversed(runs) if self._current_record(run) is None}.values())[::-1]

    def minutes(self, runs: Sequence[StudyRun]) -> float:
        """Device minutes of the finished runs: the share of each, or its training time if the share is unknown.

        Two sets may share a run; it counts once.
        """
        distinct = {run.path: run for run in runs}.values()
        found = [record for run in distinct if (record := self.record(run)) is not None]
        return sum(record.get("gpu_minutes") or record["minutes"] for record in found)


def grouped_by_seed(runs: Sequence[StudyRun]) -> Iterator[list[StudyRun]]:
    """Groups of runs that differ only in the seed, in order of first appearance."""
    groups: dict[tuple[object, ...], list[StudyRun]] = {}
    for run in runs:
        groups.setdefault((run.set_name, run.study, run.method, run.tasks, run.order, run.change), []).append(run)
    yield from groups.values()


def summary(records: Sequence[dict[str, Any]], protocol: str = "template") -> dict[str, Any]:
    """Mean AC, AA and ACA in [0, 1] over ``records``, and under ``sd`` their sample standard deviations.

    A mean is None if there is no record or one of them lacks the score. A deviation is None for fewer than two records.
    """
    found: dict[str, Any] = {"sd": {}}
    for name in SCORES:
        values = [record["protocols"].get(protocol, {}).get(name) for record in records]
        known = bool(values) and None not in values
        found[name] = statistics.fmean(values) if known else None
        found["sd"][name] = statistics.stdev(values) if known and len(values) > 1 else None
    return found


def row(runs: Sequence[StudyRun], results: Results, *, paper: Sequence[Any] | None) -> dict[str, Any]:
    """One row of a table as JSON: the mean over the finished ones of ``runs``, which differ only in the seed.

    paper: AC, AA % and ACA % as the paper prints them, or None. In the row all scores are in [0, 1]; an AC that the
        paper prints as "<0.01" stays text.
    The row's ``commits`` has the commit of each of its ``files``, None if unknown.
    """
    found = {run: record for run in runs if (record := results.record(run)) is not None}
    first = runs[0]
    return {
        "method": first.method,
        "tasks": first.tasks,
        "set": first.set_name,
        "order": first.order,
        "seeds": [run.seed for run in found],
        **summary(list(found.values())),
        "instance": summary(list(found.values()), "instance"),
        "paper": None if paper is None else {"AC": paper[0], "AA": paper[1] / 100, "ACA": paper[2] / 100},
        "missing": [run.seed for run in results.missing(runs)],
        "diverged": [run.seed for run in runs if results.diverged(run)],
        "files": [run.path.as_posix() for run in found],
        "commits": [record.get("environment", {}).get("commit") for record in found.values()],
    }


def rows_with_matrix(runs: Sequence[StudyRun], results: Results) -> list[dict[str, Any]]:
    """A row for each run, with its matrix by template; None if it has not been run."""
    return [{**row([run], results, paper=None), "matrix": results.matrix(run)} for run in runs]

"""What the paper says of IAM-CL2R, held against the runs at hand: a table says so where a run says otherwise."""

import statistics
from collections.abc import Iterator, Sequence

from holdfast.reproduction.cells import Cell
from holdfast.reproduction.cifar import PAPER_METHODS
from holdfast.reproduction.iam import REPLACED_AT
from holdfast.reproduction.layout import method_name, score
from holdfast.reproduction.results import Results, over_seeds, summary

OWN = "simplex_hoc"
WITH_A_CLASSIFIER = ("er", "fan", "bct", "lce", "advbct", "cvs")
"""Whose prototypes are learned, and so lie elsewhere in a model that was trained elsewhere."""


BORNE_OUT = (
    "d-Simplex-HOC is first in AC and AA, and at each replacement its AA rises and that of methods with a trainable"
    " classifier falls"
)


def held_against(results: Results, cells: Sequence[Cell]) -> Iterator[str]:
    """A note for each number of tasks: what of the paper's claims the runs bear out, and what not."""
    for tasks in sorted({cell.tasks for cell in cells}):
        runs = _Runs(results, [cell for cell in cells if cell.tasks == tasks and cell.method in PAPER_METHODS])
        if OWN not in runs.scores or len(runs.scores) == 1:
            continue
        against = [*runs.not_first(), *runs.not_across(REPLACED_AT[tasks])]
        opening = "Not as the paper says" if against else "As the paper says"
        yield f"{opening} ({tasks} tasks, the runs at hand): {'; '.join(against) or BORNE_OUT}."


class _Runs:
    def __init__(self, results: Results, cells: Sequence[Cell]) -> None:
        """Scores and AA after each task by method, means over the seeds that were run."""
        self.scores, self.over_tasks = {}, {}
        for group in over_seeds(cells):
            records = [record for cell in group if (record := results.record(cell)) is not None]
            if records:
                self.scores[group[0].method] = summary(records)
                curves = [record["protocols"]["template"]["AA_tau"] for record in records]
                self.over_tasks[group[0].method] = [_mean(values) for values in zip(*curves)]

    def not_first(self) -> Iterator[str]:
        """Where another of the paper's methods has more than d-Simplex-HOC."""
        for name in ("AC", "AA"):
            mine = self.scores[OWN][name]
            ahead = {method: scores[name] for method, scores in self.scores.items() if (scores[name] or 0) > mine}
            if ahead:
                others = ", ".join(f"{method_name(method)} {score(name, value)}" for method, value in ahead.items())
                yield f"in {name} d-Simplex-HOC ({score(name, mine)}) is behind {others}"

    def not_across(self, replaced: Sequence[int]) -> Iterator[str]:
        """Where AA falls at a replacement for d-Simplex-HOC, or rises for a method with a trainable classifier."""
        for task in replaced:
            for method in (OWN, *WITH_A_CLASSIFIER):
                before, after = self.over_tasks.get(method, [None] * task)[task - 2 : task]
                if before is None or after is None:
                    continue
                if (after < before) == (method == OWN):
                    moves = f"{'falls' if after < before else 'rises'} at task {task}"
                    yield f"AA of {method_name(method)} {moves}, {score('AA', before)} to {score('AA', after)}"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else None

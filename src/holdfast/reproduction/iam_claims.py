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


def held_against(results: Results, cells: Sequence[Cell]) -> Iterator[str]:
    """A note for each number of tasks: where the runs say otherwise than the paper, else what of it they bear out."""
    for tasks in sorted({cell.tasks for cell in cells}):
        runs = _Runs(results, [cell for cell in cells if cell.tasks == tasks and cell.method in PAPER_METHODS])
        if OWN not in runs.scores:
            continue
        found = [*runs.first(), *runs.across(REPLACED_AT[tasks])]
        for opening, wanted in (("Not as the paper says", False), ("As the paper says", True)):
            said = [text for agrees, text in found if agrees is wanted]
            if said:
                yield f"{opening} ({tasks} tasks, the runs at hand): {'; '.join(said)}."
                break


class _Runs:
    """Each finding is whether it agrees with the paper, and what to say of it; what was not run gives none."""

    def __init__(self, results: Results, cells: Sequence[Cell]) -> None:
        """Scores and AA after each task by method, means over the seeds that were run."""
        self.scores, self.over_tasks = {}, {}
        for group in over_seeds(cells):
            records = [record for cell in group if (record := results.record(cell)) is not None]
            if records:
                self.scores[group[0].method] = summary(records)
                curves = [record["protocols"]["template"]["AA_tau"] for record in records]
                self.over_tasks[group[0].method] = [_mean(values) for values in zip(*curves)]

    def first(self) -> Iterator[tuple[bool, str]]:
        """Whether d-Simplex-HOC has the most of all that have a score."""
        for name in ("AC", "AA"):
            mine = self.scores[OWN][name]
            others = {method: scores[name] for method, scores in self.scores.items() if method != OWN}
            known = {method: value for method, value in others.items() if value is not None}
            ahead = {method: value for method, value in known.items() if value > mine}
            if ahead:
                named = ", ".join(f"{method_name(method)} {score(name, value)}" for method, value in ahead.items())
                yield False, f"in {name} d-Simplex-HOC ({score(name, mine)}) is behind {named}"
            elif known:
                yield True, f"d-Simplex-HOC is first in {name}"

    def across(self, replaced: Sequence[int]) -> Iterator[tuple[bool, str]]:
        """At a replacement AA is to rise for d-Simplex-HOC and to fall for methods with a trainable classifier."""
        agree = dict.fromkeys((True, False), 0)
        for task in replaced:
            for method in (OWN, *WITH_A_CLASSIFIER):
                before, after = self.over_tasks.get(method, [None] * task)[task - 2 : task]
                if before is None or after is None:
                    continue
                rises = method == OWN
                if (after > before) if rises else (after < before):
                    agree[rises] += 1
                    continue
                moves = "falls" if after < before else "rises" if after > before else "stays"
                moved = f"{score('AA', before)} to {score('AA', after)}"
                yield False, f"AA of {method_name(method)} {moves} at task {task}, {moved}"
        if agree[True]:
            yield True, "at replacements its AA rises"
        if agree[False]:
            yield True, "that of methods with a trainable classifier falls wherever it can be compared"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else None

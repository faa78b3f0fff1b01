"""AA after each task, with replacements and without: what figures 6 and 8 share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.reproduction.cells import Cell
from holdfast.reproduction.cifar import OURS
from holdfast.reproduction.exhibit import Exhibit, Figure, Row, Selection, Table
from holdfast.reproduction.iam import OUR_SETTING, iam_cell, with_ours
from holdfast.reproduction.iam_pictures import after_each_task, draw_after_each_task
from holdfast.reproduction.layout import MISSING, method_name, score, still_missing
from holdfast.reproduction.results import Results, row


@dataclass(frozen=True)
class AAOverTasks:
    """name: of the figure. studies: study -> its panel's title. replaced: study -> tasks that begin with a replacement.

    note: what belongs to every number; needed: what whoever wants to run what is missing must have.
    """

    name: str
    data: str
    tasks: int
    methods: tuple[str, ...]
    studies: Mapping[str, str]
    replaced: Mapping[str, tuple[int, ...]]
    stage: int
    note: Callable[[Results], str]
    needed: Callable[[Results], str] | None = None

    def exhibit(self, about: str) -> Exhibit:
        return Exhibit(about, self.cells, self.rows, self.tables, self.figures)

    def cells(self) -> list[Cell]:
        return [cell for study in self.studies for cell in self._of(study)]

    def _of(self, study: str) -> list[Cell]:
        return [iam_cell(study, method, self.tasks, stage=self.stage) for method in with_ours(self.methods)]

    def rows(self, results: Results, selection: Selection) -> list[Row]:
        found = []
        for cell in selection.of(self.cells()):
            record = results.record(cell)
            up_to = None if record is None else record["protocols"]["template"]["AA_tau"]
            found.append({**row([cell], results, paper=None), "study": cell.study, "AA_tau": up_to})
        return found

    def tables(self, results: Results, selection: Selection) -> list[Table]:
        every = self.rows(results, selection)
        replaced = max(self.replaced.values(), key=len)
        marks = [*(task for at in replaced for task in (at - 1, at)), self.tasks]
        lines = []
        for r in every:
            known = [score("AA", r["AA_tau"][task - 1]) for task in marks] if r["AA_tau"] else [MISSING] + [""] * 4
            lines.append([self.studies[r["study"]], method_name(r["method"]), *known])
        header = ["", "method", *(f"AA_{task} %" for task in marks)]
        absent = still_missing(every)
        notes = (
            "AA of the models up to a task: before and at each replacement"
            f" (tasks {' and '.join(map(str, replaced))}), and at the end. The paper has curves without numbers.",
            self.note(results),
            *([OUR_SETTING] if any(r["method"] == OURS and r["seeds"] for r in every) else []),
            *absent,
            *([self.needed(results)] if absent and self.needed else []),
        )
        return [Table(f"{self.data}, {self.tasks} tasks: AA over time", header, lines, right=range(2, 7), notes=notes)]

    def figures(self, results: Results) -> list[Figure]:
        panels = [
            after_each_task(title, results, self._of(study), self.replaced.get(study, ()))
            for study, title in self.studies.items()
        ]
        panels = [panel for panel in panels if panel["lines"]]
        caption = (
            f"AA up to each task, {self.data}, {self.tasks} tasks, seed 0; dotted: a model trained elsewhere comes in."
        )
        return [Figure(self.name, caption, panels, draw_after_each_task)] if panels else []

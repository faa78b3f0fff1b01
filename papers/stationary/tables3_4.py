"""Tables 3 and 4: eight methods on TinyImageNet200/20 and on CUB180/20 with 2, 7, 16 and 31 tasks."""

from dataclasses import dataclass

from papers.stationary.cells import Cell
from papers.stationary.cifar_cells import PAPER_METHODS, TASKS
from papers.stationary.exhibit import Exhibit, Row, Selection, Table, papers
from papers.stationary.iam_cells import LAST
from papers.stationary.layout import LEGEND, method_name, paper_scores, scores, still_missing, through_maps
from papers.stationary.results import Results, row

STAGE = LAST + 1
"""Behind all that needs no further data."""

UNEVEN = (
    'The paper prints "<0.01" where AC is not 0 but below a hundredth. Its ACA at 2 tasks equals its AA, which three'
    " cells against one cannot do, and FAN's AA at 7 tasks repeats the one at 2: neither is a target."
)
SPLITS = (
    "Gallery and queries are CUB's train and test splits, as the paper's counts demand; its footnote has them the other"
    " way round."
)


@dataclass(frozen=True)
class _PaperTable:
    """name: of the paper's numbers. family: the folder of its recipes and of its results."""

    name: str
    family: str
    title: str
    data: str
    note: str

    def cells(self) -> list[Cell]:
        return [
            Cell("paper", f"{self.family}/{method}", method, tasks, stage=STAGE, family=self.family)
            for tasks in TASKS
            for method in PAPER_METHODS
        ]

    def rows(self, results: Results, selection: Selection) -> list[Row]:
        printed = papers(self.name)
        return [
            row([cell], results, paper=printed[cell.method][str(cell.tasks)]) for cell in selection.of(self.cells())
        ]

    def tables(self, results: Results, selection: Selection) -> list[Table]:
        every = self.rows(results, selection)
        lines = [
            [str(r["tasks"]), method_name(r["method"]), *scores(r), str(len(r["seeds"])), paper_scores(r)]
            for r in every
        ]
        absent = still_missing(every)
        notes = (LEGEND, self.note, *through_maps(every), *absent, *([self.data] if absent else []))
        header = ["T", "method", "AC", "AA %", "ACA %", "n", "paper"]
        title = f"{self.title}: the paper's settings, natural class order"
        return [Table(title, header, lines, right=(0, 2, 3, 4, 5), notes=notes)]


_TINY = _PaperTable(
    "table3",
    "tinyimagenet200-20",
    "TinyImageNet200/20",
    "They need `tiny-imagenet-200` and the 20 further ImageNet classes as `tiny-imagenet-20` below `--data`.",
    UNEVEN,
)
_BIRDS = _PaperTable(
    "table4", "cub180-20", "CUB180/20", "They need `CUB_200_2011` as it is downloaded below `--data`.", SPLITS
)

TABLE3 = Exhibit("Table 3: TinyImageNet200/20, 2 to 31 tasks", _TINY.cells, _TINY.rows, _TINY.tables)
TABLE4 = Exhibit("Table 4: CUB180/20, 2 to 31 tasks", _BIRDS.cells, _BIRDS.rows, _BIRDS.tables)

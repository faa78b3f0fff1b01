"""Everything that can be reproduced, by name.

The paper's figures that are drawn anew each time: schematics, theory, and the toy from its committed runs.
"""

from pathlib import Path
from typing import Any

from holdfast.errors import unknown_name
from papers.stationary.cells import Cell
from papers.stationary.curve_figures import FIG6, FIG8
from papers.stationary.exhibit import Exhibit, Figure
from papers.stationary.fig10 import FIG10
from papers.stationary.matrix_figures import FIG4, FIG7
from papers.stationary.settings_tables import TABLE1, TABLE5
from papers.stationary.studies.front import FRONT
from papers.stationary.studies.goals import GOALS_EXHIBIT
from papers.stationary.studies.length import LENGTH
from papers.stationary.studies.mixed import MIXED
from papers.stationary.studies.parts import PARTS_EXHIBIT
from papers.stationary.studies.questions import QUESTIONS_EXHIBIT
from papers.stationary.studies.stride import STRIDE
from papers.stationary.studies.tries import TRIES_EXHIBIT
from papers.stationary.table2 import TABLE2
from papers.stationary.table6 import TABLE6
from papers.stationary.table7 import FIG9, TABLE7
from papers.stationary.table8 import TABLE8
from papers.stationary.tables3_4 import TABLE3, TABLE4
from papers.stationary.theory_figures import PAPER_FIGURES

CAPTIONS = {
    "fig1": "An update seen from the prototypes: caps before and after, from points really sampled on them.",
    "fig2": "Pairs of the same and of different classes before and after an update, with their expected distances.",
    "fig3": "The toy on MNIST: cross-entropy alone against HOC, one run each, total loss and the cross-entropy part.",
    "fig5": "Who owns which vertex: the slot registry over 7 tasks with two replacements.",
    "fig11": "Proposition 2: the density at the expected angle, over dimensions and numbers of classes.",
    "fig12": "Theorem 1: expected distances over dimensions, Monte Carlo beside the closed form.",
}


def _exhibit(name: str) -> Exhibit:
    def draw(data: Any, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        PAPER_FIGURES[name](path)

    trained = "one run of each loss, results/theory/toy-mnist.json" if name == "fig3" else "drawn, not trained"
    return Exhibit(
        f"Figure {name.removeprefix('fig')}: {trained}",
        cells=list,
        rows=lambda results, selection: [],
        tables=lambda results, selection: [],
        figures=lambda results: [Figure(name, CAPTIONS[name], None, draw)],
    )


DRAWN = {name: _exhibit(name) for name in CAPTIONS}


EXHIBITS: dict[str, Exhibit] = {
    "table1": TABLE1,
    "table2": TABLE2,
    "goals": GOALS_EXHIBIT,
    "table8": TABLE8,
    "fig4": FIG4,
    "front": FRONT,
    "parts": PARTS_EXHIBIT,
    "tries": TRIES_EXHIBIT,
    "questions": QUESTIONS_EXHIBIT,
    "stride": STRIDE,
    "length": LENGTH,
    "table3": TABLE3,
    "table4": TABLE4,
    "table5": TABLE5,
    "table6": TABLE6,
    "fig6": FIG6,
    "fig7": FIG7,
    "mixed": MIXED,
    "table7": TABLE7,
    "fig9": FIG9,
    "fig10": FIG10,
    "fig8": FIG8,
    **DRAWN,
}


def chosen(name: str) -> dict[str, Exhibit]:
    """The exhibit of that name, or with ``all`` every one."""
    if name == "all":
        return EXHIBITS
    if name not in EXHIBITS:
        raise unknown_name("exhibit", name, [*EXHIBITS, "all"])
    return {name: EXHIBITS[name]}


def in_order_of_work(cells: list[Cell]) -> list[Cell]:
    """Each file once, stage by stage; in a stage the long ones first, so that runs side by side end together."""
    by_path: dict[str, Cell] = {}
    for cell in cells:
        path = cell.path.as_posix()
        if path not in by_path or cell.stage < by_path[path].stage:
            by_path[path] = cell
    return sorted(by_path.values(), key=lambda cell: (cell.stage, -(cell.steps or 0)))

"""Everything that can be reproduced, by name."""

from holdfast.errors import unknown_name
from holdfast.reproduction.cells import Cell
from holdfast.reproduction.drawn import DRAWN
from holdfast.reproduction.exhibit import Exhibit
from holdfast.reproduction.fig4 import FIG4
from holdfast.reproduction.fig6 import FIG6
from holdfast.reproduction.fig7 import FIG7
from holdfast.reproduction.fig8 import FIG8
from holdfast.reproduction.fig10 import FIG10
from holdfast.reproduction.front import FRONT
from holdfast.reproduction.goals import GOALS_EXHIBIT
from holdfast.reproduction.length import LENGTH
from holdfast.reproduction.mixed import MIXED
from holdfast.reproduction.parts import PARTS_EXHIBIT
from holdfast.reproduction.questions import QUESTIONS_EXHIBIT
from holdfast.reproduction.stride import STRIDE
from holdfast.reproduction.table1 import TABLE1
from holdfast.reproduction.table2 import TABLE2
from holdfast.reproduction.table5 import TABLE5
from holdfast.reproduction.table6 import TABLE6
from holdfast.reproduction.table7 import FIG9, TABLE7
from holdfast.reproduction.table8 import TABLE8
from holdfast.reproduction.tables3_4 import TABLE3, TABLE4
from holdfast.reproduction.tries import TRIES_EXHIBIT

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

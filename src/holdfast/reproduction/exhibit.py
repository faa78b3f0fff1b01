"""What a table or figure of the paper consists of, and how a part of it is chosen."""

import tomllib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.reproduction.cells import Cell
from holdfast.reproduction.results import Results

Row = dict[str, Any]


@dataclass(frozen=True)
class Selection:
    """Which cells are meant; None means all."""

    methods: Collection[str] | None = None
    tasks: Collection[int] | None = None
    seeds: Collection[int] | None = None
    orders: Collection[str] | None = None
    sets: Collection[str] | None = None

    def of(self, cells: Sequence[Cell]) -> list[Cell]:
        return [cell for cell in cells if self._takes(cell)]

    @property
    def narrowed(self) -> bool:
        return self != EVERYTHING

    def _takes(self, cell: Cell) -> bool:
        return all(
            wanted is None or value in wanted
            for wanted, value in (
                (self.methods, cell.method),
                (self.tasks, cell.tasks),
                (self.seeds, cell.seed),
                (self.orders, cell.order),
                (self.sets, cell.set_name),
            )
        )


EVERYTHING = Selection()


@dataclass(frozen=True)
class Table:
    """Text in rows and columns, for a terminal, Markdown or HTML; ``right`` names columns of numbers."""

    title: str
    header: list[str]
    rows: list[list[str]]
    right: Collection[int] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A picture: its file's name, what it shows, the numbers it is drawn from, and the function that draws it."""

    name: str
    caption: str
    data: Any
    draw: Callable[[Any, Path], None]


@dataclass(frozen=True)
class Exhibit:
    """A table or figure. ``cells`` are the runs it needs; the rest is made from whatever results there are."""

    about: str
    cells: Callable[[], list[Cell]]
    rows: Callable[[Results, Selection], list[Row]]
    tables: Callable[[Results, Selection], list[Table]]
    figures: Callable[[Results], list[Figure]] = lambda results: []

    def pictures(self, results: Results, selection: Selection) -> list[Figure]:
        """Its figures; none beside a part of its tables, since they show everything."""
        return [] if selection.narrowed else self.figures(results)


def papers(name: str) -> dict[str, Any]:
    """The numbers the paper prints, from the data file of that name."""
    path = Path(__file__).parent / "paper" / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))

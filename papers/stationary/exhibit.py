"""What a table or figure of the paper consists of, and how a part of it is chosen.

What a selection leaves of the exhibits; where that is nothing it is refused, with what there is to choose from.
"""

import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from papers.stationary.cells import Cell
from papers.stationary.results import Results

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


OPTIONS = {"methods": "--methods", "tasks": "--tasks", "seeds": "--seeds", "orders": "--order", "sets": "--set-name"}
"""What a selection can choose by -> the option that says so."""

Point = dict[str, Any]
"""One run that a row of an exhibit shows, by the words of ``OPTIONS``."""


def matching(
    exhibits: Mapping[str, Exhibit], selection: Selection, warn: Callable[[str], None] = lambda text: None
) -> dict[str, Exhibit]:
    """Those of ``exhibits`` that have something of the selection; ``warn`` hears what of it none of them has."""
    asked = {word: wanted for word in OPTIONS if (wanted := getattr(selection, word)) is not None}
    if not asked:
        return dict(exhibits)
    points = {name: _points(exhibit) for name, exhibit in exhibits.items()}
    found = {name: exhibits[name] for name, own in points.items() if any(_takes(asked, point) for point in own)}
    every = [point for own in points.values() for point in own]
    if found:
        for word in asked:
            _warn_of_others(word, asked, list(found), every, warn)
        return found
    given = " ".join(f"{OPTIONS[word]} {','.join(map(str, wanted))}" for word, wanted in asked.items())
    raise HoldfastError(f"{given} chooses nothing: {_what_there_is(list(exhibits), every, asked)}")


def _points(exhibit: Exhibit) -> list[Point]:
    """Rows made without any results say what an exhibit can show; rows of settings are of no run."""
    rows = exhibit.rows(Results(Path(os.devnull)), EVERYTHING)
    return [
        {"methods": row["method"], "tasks": row["tasks"], "seeds": seed, "orders": row["order"], "sets": row["set"]}
        for row in rows
        if "missing" in row
        for seed in row["missing"]
    ]


def _warn_of_others(
    word: str, asked: Mapping[str, Any], names: list[str], points: list[Point], warn: Callable[[str], None]
) -> None:
    """What was asked for beside something that there is, and is not there."""
    fitting = [point for point in points if _takes({**asked, word: [point[word]]}, point)]
    others = [value for value in asked[word] if not any(point[word] == value for point in fitting)]
    if others:
        given = f"{OPTIONS[word]} {','.join(map(str, others))}"
        warn(f"{given} chooses nothing: {_who_has(names)} {_listed(word, fitting)}")


def _takes(asked: Mapping[str, Any], point: Point) -> bool:
    return all(point[word] in wanted for word, wanted in asked.items())


def _what_there_is(names: list[str], points: list[Point], asked: Mapping[str, Any]) -> str:
    who = _who_has(names)
    if not points:
        return f"{who} no runs to choose from and is shown whole; leave it out"
    never = {word: values for word, values in asked.items() if not any(_takes({word: values}, one) for one in points)}
    if never:
        return f"{who} {'; '.join(_listed(word, points) for word in never)}"
    one_changed = []  # each of them occurs, but not with the others
    for word in asked:
        others = {other: values for other, values in asked.items() if other != word}
        rest = [point for point in points if _takes(others, point)]
        one_changed += [_listed(word, rest)] if rest else []
    if not one_changed:
        return "no two of these go together"
    return f"with all but one of these {who} {', or '.join(one_changed)}"


def _who_has(names: list[str]) -> str:
    return f"{names[0]} has" if len(names) == 1 else "the tables and figures have"


def _listed(word: str, points: Iterable[Point]) -> str:
    """Such as "tasks 2, 7"; methods, orders and sets as they first come, numbers in their order."""
    values = dict.fromkeys(point[word] for point in points)
    ordered = sorted(values) if word in ("tasks", "seeds") else list(values)
    return f"{word} {', '.join(map(str, ordered))}"

"""Pages of results, and the selection of a part of them.

A page is a table or figure of the paper, or a further study. It has runs, rows (as JSON), tables and figures.
``matching`` keeps the pages that contain something of a selection. It refuses an empty selection and lists the values.
"""

import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from papers.stationary.results import Results
from papers.stationary.study_runs import StudyRun

Row = dict[str, Any]


@dataclass(frozen=True)
class Selection:
    """A subset of runs. Each field lists the values to keep; None keeps all."""

    methods: Collection[str] | None = None
    tasks: Collection[int] | None = None
    seeds: Collection[int] | None = None
    orders: Collection[str] | None = None
    sets: Collection[str] | None = None

    def of(self, runs: Sequence[StudyRun]) -> list[StudyRun]:
        return [run for run in runs if self._contains(run)]

    @property
    def narrowed(self) -> bool:
        return self != EVERYTHING

    def _contains(self, run: StudyRun) -> bool:
        return all(
            wanted is None or value in wanted
            for wanted, value in (
                (self.methods, run.method),
                (self.tasks, run.tasks),
                (self.seeds, run.seed),
                (self.orders, run.order),
                (self.sets, run.set_name),
            )
        )


EVERYTHING = Selection()


@dataclass(frozen=True)
class Table:
    """Text in rows and columns, for a terminal, Markdown or HTML. ``right``: indices of right-aligned columns."""

    title: str
    header: list[str]
    rows: list[list[str]]
    right: Collection[int] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A picture.

    name: file name without ending.
    caption: text below the picture.
    data: numbers it is drawn from; None if it does not depend on results.
    draw: called with ``data`` and the file to write.
    """

    name: str
    caption: str
    data: Any
    draw: Callable[[Any, Path], None]


@dataclass(frozen=True)
class ResultPage:
    """A table or figure with the runs it needs. Rows, tables and figures are made from the results that exist.

    about: heading.
    runs: returns the runs it needs.
    rows: returns the rows for ``--json``.
    tables: returns the tables to print.
    figures: returns the figures; they always show everything.
    """

    about: str
    runs: Callable[[], list[StudyRun]]
    rows: Callable[[Results, Selection], list[Row]]
    tables: Callable[[Results, Selection], list[Table]]
    figures: Callable[[Results], list[Figure]] = lambda results: []

    def pictures(self, results: Results, selection: Selection) -> list[Figure]:
        """The figures, or none if ``selection`` leaves a part out, because figures show everything."""
        return [] if selection.narrowed else self.figures(results)


def printed_in_paper(name: str) -> dict[str, Any]:
    """The numbers of a table as the paper prints them, from ``paper/NAME.toml``."""
    path = Path(__file__).parent / "paper" / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


OPTIONS = {"methods": "--methods", "tasks": "--tasks", "seeds": "--seeds", "orders": "--order", "sets": "--set-name"}
"""Field of a selection -> its command-line option."""

Point = dict[str, Any]
"""One run shown in a row, with a value for each key of ``OPTIONS``."""


def matching(
    pages: Mapping[str, ResultPage], selection: Selection, warn: Callable[[str], None] = lambda text: None
) -> dict[str, ResultPage]:
    """The pages that contain a selected run. ``warn`` is called for selected values that none of them has."""
    selected = {word: wanted for word in OPTIONS if (wanted := getattr(selection, word)) is not None}
    if not selected:
        return dict(pages)
    points = {name: _points(page) for name, page in pages.items()}
    found = {name: pages[name] for name, own in points.items() if any(_contains(selected, point) for point in own)}
    every = [point for own in points.values() for point in own]
    if found:
        for word in selected:
            _warn_of_unknown(word, selected, list(found), every, warn)
        return found
    given = " ".join(f"{OPTIONS[word]} {','.join(map(str, wanted))}" for word, wanted in selected.items())
    raise HoldfastError(f"{given} chooses nothing: {_possible_values(list(pages), every, selected)}")


def _points(page: ResultPage) -> list[Point]:
    """All runs a page can show, read from its rows without results. Rows of settings belong to no run."""
    rows = page.rows(Results(Path(os.devnull)), EVERYTHING)
    return [
        {"methods": row["method"], "tasks": row["tasks"], "seeds": seed, "orders": row["order"], "sets": row["set"]}
        for row in rows
        if "missing" in row
        for seed in row["missing"]
    ]


def _warn_of_unknown(
    word: str, selected: Mapping[str, Any], names: list[str], points: list[Point], warn: Callable[[str], None]
) -> None:
    """Warn about the selected values of ``word`` that occur in no run."""
    fitting = [point for point in points if _contains({**selected, word: [point[word]]}, point)]
    others = [value for value in selected[word] if not any(point[word] == value for point in fitting)]
    if others:
        given = f"{OPTIONS[word]} {','.join(map(str, others))}"
        warn(f"{given} chooses nothing: {_who_has(names)} {_listed(word, fitting)}")


def _contains(selected: Mapping[str, Any], point: Point) -> bool:
    return all(point[word] in wanted for word, wanted in selected.items())


def _possible_values(names: list[str], points: list[Point], selected: Mapping[str, Any]) -> str:
    who = _who_has(names)
    if not points:
        return f"{who} no runs to choose from and is shown whole; leave it out"
    never = {
        word: values for word, values in selected.items() if not any(_contains({word: values}, one) for one in points)
    }
    if never:
        return f"{who} {'; '.join(_listed(word, points) for word in never)}"
    one_changed = []  # every value occurs, but not together with the others
    for word in selected:
        others = {other: values for other, values in selected.items() if other != word}
        rest = [point for point in points if _contains(others, point)]
        one_changed += [_listed(word, rest)] if rest else []
    if not one_changed:
        return "no two of these go together"
    return f"with all but one of these {who} {', or '.join(one_changed)}"


def _who_has(names: list[str]) -> str:
    return f"{names[0]} has" if len(names) == 1 else "the tables and figures have"


def _listed(word: str, points: Iterable[Point]) -> str:
    """Such as "tasks 2, 7". Numbers are sorted; methods, orders and sets keep their order of appearance."""
    values = dict.fromkeys(point[word] for point in points)
    ordered = sorted(values) if word in ("tasks", "seeds") else list(values)
    return f"{word} {', '.join(map(str, ordered))}"

"""What a selection leaves of the exhibits; where that is nothing it is refused, with what there is to choose from."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.reproduction.exhibit import EVERYTHING, Exhibit, Selection
from holdfast.reproduction.results import Results

OPTIONS = {"methods": "--methods", "tasks": "--tasks", "seeds": "--seeds", "orders": "--order", "sets": "--set-name"}
"""What a selection can choose by -> the option that says so."""

Point = dict[str, Any]
"""One run that a row of an exhibit shows, by the words of ``OPTIONS``."""


def matching(exhibits: Mapping[str, Exhibit], selection: Selection) -> dict[str, Exhibit]:
    """Those of ``exhibits`` that have something of the selection."""
    asked = {word: wanted for word in OPTIONS if (wanted := getattr(selection, word)) is not None}
    if not asked:
        return dict(exhibits)
    points = {name: _points(exhibit) for name, exhibit in exhibits.items()}
    found = {name: exhibits[name] for name, own in points.items() if any(_takes(asked, point) for point in own)}
    if found:
        return found
    every = [point for own in points.values() for point in own]
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


def _takes(asked: Mapping[str, Any], point: Point) -> bool:
    return all(point[word] in wanted for word, wanted in asked.items())


def _what_there_is(names: list[str], points: list[Point], asked: Mapping[str, Any]) -> str:
    who = f"{names[0]} has" if len(names) == 1 else "the tables and figures have"
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


def _listed(word: str, points: Iterable[Point]) -> str:
    """Such as "tasks 2, 7"; methods, orders and sets as they first come, numbers in their order."""
    values = dict.fromkeys(point[word] for point in points)
    ordered = sorted(values) if word in ("tasks", "seeds") else list(values)
    return f"{word} {', '.join(map(str, ordered))}"

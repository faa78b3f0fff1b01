"""What a row says is changed is what its recipe changes, and nothing else."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from papers.stationary.pages import PAGES
from papers.stationary.studies.open_details import CHANGES
from papers.stationary.study_runs import StudyRun

CHANGED = {
    run.path.as_posix(): run
    for name in ("questions", "parts", "front", "stride", "table8")
    for run in PAGES[name].runs()
    if run.settings
}


def flat(recipe: Any, path: str = "") -> dict[str, Any]:
    """Settings by their dotted names."""
    if not isinstance(recipe, Mapping):
        return {path: recipe}
    return {
        name: value for key, part in recipe.items() for name, value in flat(part, f"{path}.{key}".strip(".")).items()
    }


def differences(run: StudyRun) -> set[str]:
    before, after = (flat(one.recipe.tables) for one in (replace(run, settings=()), run))
    return {name for name in {*before, *after} if before.get(name) != after.get(name)}


@pytest.mark.parametrize("path", CHANGED)
def test_a_change_changes_what_it_names(path):
    run = CHANGED[path]
    named = {text.partition("=")[0] for text in run.settings}
    found = differences(run)
    assert found <= named, f"changes more than it names: {found - named}"
    assert found, "changes nothing"
    assert named - found <= {"evaluation.compact"}, f"as before: {named - found}"


NUMBERS = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?:e-\d+)?")


def said(label: str) -> set[float]:
    return {float(number.replace(",", "")) for number in NUMBERS.findall(label)}


def set_to(settings: tuple[str, ...] | list[str]) -> set[float]:
    values = (text.partition("=")[2] for text in settings)
    return {float(value) for value in values if NUMBERS.fullmatch(value)}


@pytest.mark.parametrize("change", [c for c in CHANGES if c.settings], ids=lambda c: f"{c.run.name}")
def test_numbers_in_the_words_of_a_question(change):
    assert said(change.about) <= set_to(change.settings)

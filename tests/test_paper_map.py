"""docs/paper.md: every path and command it names exists, and nothing of the paper is left out."""

import re
from pathlib import Path

import pytest

from papers.stationary.pages import PAGES

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([^`]+)`", PAGE)))
PATHS = [name for name in NAMED if re.match(r"(src|papers|tests|docs|recipes|results|bench)/", name)]
COMMANDS = [name for name in NAMED if name.startswith(("holdfast ", "python -m papers.stationary "))]


def test_there_is_something_to_check():
    assert len(PATHS) > 30
    assert len(COMMANDS) > 10


@pytest.mark.parametrize("path", PATHS)
def test_paths_exist(path):
    assert (ROOT / path).is_file()


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_exist(command):
    from typer.main import get_command

    from holdfast.cli import app
    from papers.stationary.__main__ import app as study

    verb, *rest = command.removeprefix("holdfast ").removeprefix("python -m papers.stationary ").split()
    found = get_command(app if command.startswith("holdfast ") else study).commands[verb]  # type: ignore[attr-defined]
    if verb == "theory":
        assert rest[0] in found.commands
    if verb == "reproduce":
        assert rest[0] in PAGES


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [("Eq.", range(1, 14)), ("Fig.", range(1, 13)), ("Tab.", range(1, 9)), ("Proposition", (1, 2, 3))],
)
def test_nothing_is_left_out(kind, numbers):
    first_cells = " ".join(re.findall(r"^\| ([^|]+)\|", PAGE, re.MULTILINE))
    for number in numbers:
        near = rf"{re.escape(kind)} (\d+\w?, )*{number}\b" if number != 1 or kind != "Eq." else r"Eq\. 1a, 1b"
        assert re.search(near, first_cells), f"{kind} {number}"


def test_all_slips_are_listed_and_those_cited_exist():
    listed = [int(number) for number in re.findall(r"^(\d+)\. ", PAGE, re.MULTILINE)]
    assert listed == list(range(1, 18))
    assert {int(number) for number in re.findall(r"\[(\d+)\]", PAGE)} <= set(listed)

"""What docs/check.md tells a reader to type works."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from holdfast.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "check.md").read_text(encoding="utf-8")


BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
CODE = [text for language, text in BLOCKS if language == "python"]


def test_python(capsys):
    exec(compile(CODE[-1], "docs/check.md", "exec"), {})
    assert capsys.readouterr().out.startswith("yes yes 0.")


def test_the_made_up_example_prints_what_the_page_shows(tmp_path, monkeypatch):
    """Line by line; digits are left out, because other machines round differently."""
    monkeypatch.chdir(tmp_path)
    exec(compile(next(text for text in CODE if "part1" in text), "docs/check.md", "exec"), {})
    first, *others = pairwise(text for language, text in BLOCKS if not language)
    shown = 0
    for command, output in [*others, first]:  # the first check needs the bridge that a later command fits
        if output.startswith(("Provisional: ", "Better than keeping the old model: ")):
            words = shlex.split(command.replace("\\\n", " "))
            result = CliRunner(env={"COLUMNS": "80"}).invoke(app, words[1:])
            assert result.exit_code == (3 if words[1] == "bridge" else 0), result.output
            printed = {_without_digits(line) for line in result.stdout.splitlines()}
            missing = [line for line in output.splitlines() if _without_digits(line) not in printed]
            assert not missing
            shown += 1
    assert shown == 4


def _without_digits(line):
    return " ".join(re.sub(r"[\d.]+", "0", line).split())


@pytest.mark.parametrize(
    ("file", "start"),
    [("titles.npz", "Better than keeping the old model: "), ("views.npz", "Recommended: two-stage@50")],
)
def test_the_examples_of_known_items(file, start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = [text for text in CODE if f'savez("{file}"' in text]
    exec(compile(code, "docs/check.md", "exec"), {})
    (commands,) = [text for language, text in BLOCKS if not language and f"--known-items {file}" in text]
    for line in commands.splitlines():
        result = CliRunner(env={"COLUMNS": "80"}).invoke(app, shlex.split(line)[1:])
        assert result.exit_code in (0, 1, 3), result.output  # not always enough, and a bridge is judged by check
    assert result.stdout.startswith(start)
    assert "known items are a stand-in for real queries" in " ".join(result.stdout.split())


def test_options_exist():
    verbs = get_command(app).commands  # type: ignore[attr-defined]
    known = {
        name
        for verb in ("check", "check-mixed", "check-history", "compare", "bridge", "embed")
        for option in verbs[verb].params
        for name in option.opts
    }
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) - {"--body-file", "--through-check"}  # of other tools
    assert used
    assert used <= known

"""What docs/bridges.md tells a reader to type works, in order, in an empty folder."""

import re
import shlex
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from holdfast import Bridge
from holdfast.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "bridges.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
OUTPUTS = 6


def test_the_page_from_top_to_bottom(tmp_path, monkeypatch):
    """Every script and command; numbers of outputs may differ a little, because other machines round differently."""
    pytest.importorskip("qdrant_client")
    pytest.importorskip("qdrant_edge")
    monkeypatch.chdir(tmp_path)
    printed, names, shown = "", {}, 0
    for language, text in BLOCKS:
        if language == "python":
            names = run_python(text, said := StringIO())
            printed = said.getvalue()
        elif language == "sh":
            printed = run_commands(text)
        else:
            assert language == "text"
            lines = printed.splitlines()
            assert not [line for line in text.splitlines() if not any(nearly_equal(line, one) for one in lines)]
            shown += 1
        if "scores" in names:
            assert_numpy_lines_equal_the_bridge(names)
    assert shown == OUTPUTS


def run_python(code, said):
    names = {}
    with redirect_stdout(said):
        exec(compile(code, "docs/bridges.md", "exec"), names)
    return names


def run_commands(text):
    printed = ""
    for line in text.replace("\\\n", " ").splitlines():
        result = CliRunner(env={"COLUMNS": "80"}).invoke(app, shlex.split(line)[1:])
        provisional = "holdfast bridge --old" in line  # nothing on this page judges it
        assert result.exit_code == (3 if provisional else 0), (line, result.output, result.exception)
        printed += result.stdout
    return printed


def assert_numpy_lines_equal_the_bridge(names):
    """What the page computes with NumPy from the exported file is what the bridge computes."""
    bridge = Bridge.load("bridges/2-to-1")
    cosines = bridge(names["queries"]) @ names["stored"].T
    np.testing.assert_allclose(names["cosines"], cosines, atol=1e-5)
    np.testing.assert_allclose(names["scores"], bridge.scale.offset + bridge.scale.slope * cosines, atol=1e-5)


def nearly_equal(line, other):
    """Whether two lines have the same words, and numbers that differ by at most 0.03, or 1.5 if they are above 5."""
    words, numbers = zip(*(parts(text) for text in (line, other)), strict=True)
    if words[0] != words[1]:
        return False
    return all(abs(one - two) <= (1.5 if one > 5 else 0.03) for one, two in zip(*numbers, strict=True))


def parts(line):
    number = r"\d+(?:\.\d+)?"
    words = " ".join(re.sub(number, "0", line).split())
    return words, [float(found) for found in re.findall(number, line)]


def test_options_exist():
    """Also those in the text and in commands that need images or a server."""
    verbs = get_command(app).commands  # type: ignore[attr-defined]
    verbs = {**verbs, **{f"gallery {name}": verb for name, verb in verbs["gallery"].commands.items()}}
    found = re.findall(r"(?<!from )holdfast ((?:gallery )?[a-z-]+)((?:\\\n|[^\n`])*)", re.sub(r"\n```", "\n`", PAGE))
    assert len(found) > 15
    for verb, rest in found:
        known = {name for option in verbs[verb].params for name in (*option.opts, *option.secondary_opts)}
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", rest)) <= known, (verb, rest)
    known = {name for verb in verbs.values() for option in verb.params for name in option.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) <= known

"""What docs/gallery.md tells a reader to type works."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from holdfast.cli import app

pytest.importorskip("qdrant_edge")

PAGE = (Path(__file__).parents[2] / "docs" / "gallery.md").read_text(encoding="utf-8")


def test_python(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(code, "docs/gallery.md", "exec"), {})
    assert capsys.readouterr().out == "a 1.000 from version 1\n"


def test_commands_and_options_exist():
    verbs = get_command(app).commands["gallery"].commands  # type: ignore[attr-defined]
    assert set(re.findall(r"holdfast gallery (\w+)", PAGE)) <= set(verbs)
    known = {name for verb in verbs.values() for option in verb.params for name in option.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) <= known

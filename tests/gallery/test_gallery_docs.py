"""What docs/gallery.md and docs/operating.md tell a reader to type works."""

import re
import shutil
from pathlib import Path

import pytest
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

from holdfast.cli import app

pytest.importorskip("qdrant_edge")

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "gallery.md").read_text(encoding="utf-8")
OPERATING = (DOCS / "operating.md").read_text(encoding="utf-8")


def test_python(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(code, "docs/gallery.md", "exec"), {})
    assert capsys.readouterr().out == "a 1.000 from version 1\n"


@pytest.mark.parametrize("page", [PAGE, OPERATING], ids=["gallery", "operating"])
def test_commands_and_options_exist(page):
    verbs = get_command(app).commands["gallery"].commands  # type: ignore[attr-defined]
    assert set(re.findall(r"holdfast gallery (\w+)", page)) <= set(verbs)
    known = {name for verb in verbs.values() for option in verb.params for name in option.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page)) <= known


def test_operating(model_folders, picture_files, pictures, capsys, tmp_path, monkeypatch):
    """Every command of the way through, in order, then the Python beside it."""
    monkeypatch.chdir(tmp_path)
    for number, folder in enumerate(model_folders, 1):
        shutil.copytree(folder, tmp_path / "models" / f"{number:02d}")
    shutil.copytree(picture_files[0].parents[1], tmp_path / "pictures")
    Image.fromarray(pictures[100][..., 0]).save("query.png")
    way, code = re.findall(r"^```\w*\n(.*?)^```", OPERATING, re.MULTILINE | re.DOTALL)
    commands = [line.split()[1:] for line in way.splitlines() if line]
    assert [words[1] for words in commands] == [
        "create", "add", "register", "versions", "search", "backfill", "backfill", "stats", "rollback",
    ]  # fmt: skip
    said = []
    for words in commands:
        words = [*words, "--force"] if words[1] == "register" else words  # these models are not trained
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, (words, result.output, result.exception)
        said.append(result.stdout)
    assert "10 items moved to version 2" in said[5]
    assert "30 items moved to version 2" in said[6]
    assert "40 items embedded again, 0 dropped" in said[8]
    CliRunner().invoke(app, ["gallery", "register", "G", "models/03", "--force"])
    exec(compile(code, "docs/operating.md", "exec"), {})
    assert capsys.readouterr().out == "3 hits, 100% backfilled\n"

"""What docs/check.md tells a reader to type works."""

import re
from pathlib import Path

from typer.main import get_command

from holdfast.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "check.md").read_text(encoding="utf-8")


def test_python(capsys):
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(code, "docs/check.md", "exec"), {})
    assert capsys.readouterr().out.startswith("compatible 0.")


def test_options_exist():
    known = {name for option in get_command(app).commands["check"].params for name in option.opts}  # type: ignore[attr-defined]
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) - {"--out", "--body-file"}  # of the reader's own tools
    assert used
    assert used <= known

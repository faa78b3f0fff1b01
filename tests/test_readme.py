"""What the README tells a reader to type works."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_there_is_code_to_run():
    assert len(PYTHON) >= 2


@pytest.mark.parametrize("code", PYTHON)
def test_python(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an example may save a model
    exec(compile(code, "README.md", "exec"), {})


def test_commands_name_real_verbs_and_recipes():
    from typer.main import get_command

    from holdfast.cli import app
    from holdfast.experiments.load import builtin_recipes

    verbs = get_command(app).commands  # type: ignore[attr-defined]
    recipes = dict(builtin_recipes())
    found = re.findall(r"^holdfast (\w+)(?: (\S+))?", README, re.MULTILINE)
    assert found
    for verb, argument in found:
        assert verb in verbs
        if verb == "run" and not argument.endswith(".toml"):
            assert argument in recipes


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make ([a-z-]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert link.startswith("https://") or (ROOT / link).exists(), link

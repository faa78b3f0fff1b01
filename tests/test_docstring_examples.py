"""Every public name has an example in its docstring, and every example in a docstring of Holdfast runs."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
TESTED_ELSEWHERE = ("losses", "metrics")
"""Packages whose doctests their own tests run."""


def modules_with_examples() -> list[str]:
    """Modules outside ``TESTED_ELSEWHERE`` with an example, but for those that need an extra to be imported."""
    found = []
    for path in sorted((SOURCE / "holdfast").rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            parts = path.relative_to(SOURCE).with_suffix("").parts
            if parts[1] not in TESTED_ELSEWHERE:
                found.append(".".join(parts).removesuffix(".__init__"))
    return found


def run(test: doctest.DocTest) -> None:
    runner = doctest.DebugRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    try:
        runner.run(test)
    except doctest.DocTestFailure as failure:
        pytest.fail(f"{test.name}: {failure.example.source}expected {failure.example.want}got {failure.got}")
    except doctest.UnexpectedException as failure:
        raise failure.exc_info[1] from None


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_of_a_module(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an example may write files
    module = importlib.import_module(name)
    tests = [test for test in doctest.DocTestFinder(exclude_empty=True).find(module, name) if test.examples]
    assert tests
    for number, test in enumerate(tests):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        run(test)


@pytest.mark.parametrize("name", sorted(holdfast.__all__))
def test_a_public_name_has_an_example(name):
    found = getattr(holdfast, name)
    if isinstance(found, dict):  # its docstring would be that of dict; its example is on the page of the reference
        page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
        (code,) = re.findall(rf"### {name}\n.*?```pycon\n(.*?)```", page, re.DOTALL)
        run(doctest.DocTestParser().get_doctest(code, {}, name, None, 0))
    else:
        assert ">>> " in (found.__doc__ or "")


def test_the_other_names_of_the_guides_have_examples():
    """All but two: one needs a store of another system, and one serves until it is stopped; the guides show them."""
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    names = re.findall(r"^\| `(\S+)` \| `(\S+)` \|", page[page.index("## Also used in the guides") :], re.MULTILINE)
    assert len(names) > 10
    for module, name in names:
        if name not in ("stored_sample", "serve"):
            assert ">>> " in (getattr(importlib.import_module(module), name).__doc__ or ""), name

"""The documentation site: its reference pages are up to date, and it builds without a warning."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import holdfast

ROOT = Path(__file__).parents[1]


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def writer():
    return loaded(ROOT / "docs/reference/write_reference.py")


@pytest.mark.parametrize(("page", "write"), [("cli.md", "command_line"), ("api.md", "python_api")])
def test_a_reference_page_is_up_to_date(writer, page, write):
    written = (ROOT / "docs/reference" / page).read_text(encoding="utf-8")
    assert written == getattr(writer, write)(), "run: python docs/reference/write_reference.py"


def test_the_notebook_is_a_page():
    hooks = loaded(ROOT / "docs/site_hooks.py")
    page = hooks.notebook_page(hooks.NOTEBOOK)
    assert page.startswith("# Holdfast in ten minutes\n")
    assert page.count("```python\n") == 6
    assert page.count("```text\n") == 3
    assert page.count('<div class="output">') == 1
    page = SimpleNamespace(file=SimpleNamespace(src_uri="methods/README.md"))
    linked = hooks.on_page_markdown("[a](../holdfast-in-ten-minutes.ipynb)", page=page, config=None, files=None)
    assert linked == "[a](../notebook.md)"


def test_pages_of_results_keep_numbers_on_one_line():
    hooks = loaded(ROOT / "docs/site_hooks.py")
    cells = "<td>≈ 1.00 46.67 39.25</td><td>&lt;0.01 30.14 0.00</td><td>n = 3 seeds</td><td>7 of 9</td><td>ER</td>"
    page = SimpleNamespace(file=SimpleNamespace(src_uri="results/table2.md"), meta={})
    hooks.on_page_markdown("", page=page, config=None, files=None)
    assert page.meta["hide"] == ["toc"]
    shown = hooks.on_page_content(cells, page=page, config=None, files=None)
    kept = "<td>≈_1.00_46.67_39.25</td><td>&lt;0.01_30.14_0.00</td><td>n = 3 seeds</td><td>7_of_9</td><td>ER</td>"
    assert shown == kept.replace("_", "\N{NO-BREAK SPACE}")
    page.file.src_uri = "check.md"
    assert hooks.on_page_content(cells, page=page, config=None, files=None) == cells


def test_every_public_name_has_an_entry_and_a_docstring(writer):
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    site = "".join(writer.api_pages().values())
    names = writer.public_names()
    assert len(names) >= 40
    for name in names:
        assert re.search(rf"^\| `{name}` \| .*\w.* \|$", page, re.MULTILINE), name
        assert f".{name}\n" in site or name == "METHODS", name
        assert (getattr(holdfast, name).__doc__ or "").strip(), name


def test_every_name_that_a_guide_uses_has_an_entry(writer):
    """``from holdfast.package import name`` and `holdfast.package.name` in the guides, but for modules."""
    used = set()
    for page in [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs/engines").glob("*.md"), ROOT / "README.md"]:
        text = page.read_text(encoding="utf-8")
        for module, names in re.findall(r"from (holdfast\.[\w.]+) import ([\w, ]+)", text):
            used |= {f"{module}.{name.strip()}" for name in names.split(",")}
        used |= set(re.findall(r"`(holdfast\.\w+\.[\w.]*\w)", text))
    entries = {name.rsplit(".", 1)[1] for name in writer.GUIDES} | set(writer.public_names())
    assert used
    for full in used:
        module, name = full.rsplit(".", 1)
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(full)  # a module that nothing has imported yet
        if not isinstance(getattr(importlib.import_module(module), name), ModuleType):
            assert name in entries, f"{full}: add it to GUIDES in docs/reference/write_reference.py"


def test_parameters_of_a_docstring_become_a_list():
    with_lists = loaded(ROOT / "docs/site_docstrings.py").with_lists
    text = "Does it.\n\nfirst: one\n    and more\nsecond, third: two\nText after.\n\nSee also: nothing"
    assert with_lists(text) == (
        "Does it.\n\n- `first`: one\n    and more\n- `second`, `third`: two\n\nText after.\n\nSee also: nothing"
    )
    assert with_lists("Does it.\n\n>>> 1 + 1\n2\n") == "Does it.\n\n```pycon\n>>> 1 + 1\n2\n```"


def test_links_out_of_the_site_become_text():
    hooks = loaded(ROOT / "docs/site_hooks.py")

    page = SimpleNamespace(file=SimpleNamespace(src_uri="gallery.md"))
    found = hooks.on_page_markdown(
        "[a](../results) [b](check.md#x) [c](methods) ![d](figures/fig1.png) [e](https://example.org)",
        page=page, config=None, files=None,
    )  # fmt: skip
    assert found == "a [b](check.md#x) [c](methods/README.md) ![d](figures/fig1.png) [e](https://example.org)"


def test_files_of_the_root_are_pages_of_the_site():
    hooks = loaded(ROOT / "docs/site_hooks.py")

    def shown(source, text):
        page = SimpleNamespace(file=SimpleNamespace(src_uri=source))
        return hooks.on_page_markdown(text, page=page, config=None, files=None)

    assert shown("gallery.md", "[a](../SECURITY.md#x) [b](../LICENSE)") == "[a](security.md#x) b"
    assert shown("engines/qdrant.md", "[a](../../CHANGELOG.md)") == "[a](../changelog.md)"
    assert shown("security.md", "[a](docs/service.md#tokens) [b](src/holdfast)") == "[a](service.md#tokens) b"
    assert all((ROOT / name).is_file() for name in hooks.ROOT_PAGES)


@pytest.mark.slow
@pytest.mark.ci
def test_the_site_builds_without_a_warning(tmp_path):
    """``strict: true`` in mkdocs.yml makes every warning an error, dead links included."""
    mkdocs = shutil.which("mkdocs", path=Path(sys.executable).parent)
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [mkdocs, "build", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout + done.stderr == ""
    api = (tmp_path / "site/reference/api/upgrades/index.html").read_text(encoding="utf-8")
    assert "Fit a bridge from the new space to the old one." in api

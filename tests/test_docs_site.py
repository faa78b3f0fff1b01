"""The documentation site: its reference pages are up to date, and it builds without a warning."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

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


def test_every_public_name_has_an_entry_and_a_docstring(writer):
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    names = writer.public_names()
    assert len(names) >= 40
    for name in names:
        assert f".{name}\n" in page or f"### {name}\n" in page, name
        assert (getattr(holdfast, name).__doc__ or "").strip(), name


def test_parameters_of_a_docstring_become_a_list():
    with_lists = loaded(ROOT / "docs/site_docstrings.py").with_lists
    text = "Does it.\n\nfirst: one\n    and more\nsecond, third: two\nText after.\n\nSee also: nothing"
    assert with_lists(text) == (
        "Does it.\n\n- `first`: one\n    and more\n- `second`, `third`: two\n\nText after.\n\nSee also: nothing"
    )


def test_links_out_of_the_site_become_text():
    hooks = loaded(ROOT / "docs/site_hooks.py")

    page = SimpleNamespace(file=SimpleNamespace(src_uri="gallery.md"))
    found = hooks.on_page_markdown(
        "[a](../results) [b](check.md#x) [c](methods) ![d](figures/fig1.png) [e](https://example.org)",
        page=page, config=None, files=None,
    )  # fmt: skip
    assert found == "a [b](check.md#x) [c](methods/README.md) ![d](figures/fig1.png) [e](https://example.org)"


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
    api = (tmp_path / "site/reference/api/index.html").read_text(encoding="utf-8")
    assert "Fit a bridge from the new space to the old one." in api

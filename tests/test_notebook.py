"""docs/holdfast-in-ten-minutes.ipynb: run from a clean state, free of machine paths, and still true when run again."""

import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

NOTEBOOK = Path(__file__).parents[1] / "docs" / "holdfast-in-ten-minutes.ipynb"
POINTS = 1.0
"""How far a score in per cent may be from the committed one: another CPU adds up in another order."""


def cells(notebook, kind):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def shown(cell):
    """What a cell shows; empty where it shows nothing."""
    parts = [output.get("text") or output["data"]["text/plain"] for output in cell["outputs"]]
    return "".join("".join(part) for part in parts)


def results(notebook):
    """What the cells show that show something: the verdict, four ways, a search, and what the searches embedded."""
    return [text for cell in cells(notebook, "code") if (text := shown(cell))]


@pytest.fixture(scope="module")
def committed():
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def test_it_was_run_from_a_clean_state(committed):
    code = cells(committed, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert NOTEBOOK.stat().st_size < 60_000
    assert set(committed["metadata"]) == {"kernelspec", "language_info"}


def test_it_holds_nobodys_paths(committed):
    assert not re.search(r"/(tmp|home|root|Users|work)\b", json.dumps(committed))


def test_its_links_lead_somewhere(committed):
    text = "".join("".join(cell["source"]) for cell in cells(committed, "markdown"))
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert len(links) > 4
    for link in links:
        assert (NOTEBOOK.parent / link).exists(), link


def test_what_it_says_of_its_results_is_so(committed):
    """The words between the cells: a bridge finds less than staying, two-stage search more; ever less is embedded."""
    said, ways, answer, replay = results(committed)
    assert verdict(said) == "recommended: two-stage@50, old query, both scores (0.8) finds more than the old model"
    _, bridge, two_stage, _ = ways.splitlines()
    assert re.search(r"  -\S+ to -\S+$", bridge)
    assert re.search(r"  \+\S+ to \+\S+$", two_stage)
    assert answer.endswith("50 items embedded, 0 new vectors were there\n")
    embedded = [float(number) for number in re.findall(r": (\S+) items embedded", replay)]
    assert embedded == sorted(embedded, reverse=True)
    assert embedded[0] > 10 > 1 > embedded[-1]


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "2", "8"])
def test_it_gives_the_same_again(committed, tmp_path, monkeypatch, threads):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, threads)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    notebook = nbformat.reads(NOTEBOOK.read_text(encoding="utf-8"), as_version=4)
    for cell in cells(notebook, "code"):
        cell["outputs"], cell["execution_count"] = [], None
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    for old, new in zip(results(committed), results(notebook), strict=True):
        assert verdict(old) == verdict(new)
        old_numbers, new_numbers = (re.findall(r"\d+\.\d", text) for text in (old, new))
        np.testing.assert_allclose(np.array(new_numbers, float), np.array(old_numbers, float), atol=POINTS)


def verdict(text):
    """The sentence of the verdict without its numbers; other texts are empty."""
    return text.partition(": nDCG@10")[0] if text.startswith(("recommended", "keep", "not judged")) else ""

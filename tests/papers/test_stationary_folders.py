"""Folders that are not there are refused in every mode, before anything is run, shown or written."""

import pytest
from typer.testing import CliRunner

from holdfast.core.errors import HoldfastError
from papers.stationary.__main__ import app
from papers.stationary.reproduce import _outcome


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_DATA", raising=False)
    (tmp_path / "results").mkdir()
    return tmp_path


def refusal(*words):
    result = CliRunner().invoke(app, ["reproduce", *words])
    assert isinstance(result.exception, HoldfastError), result.output
    assert not result.stdout
    return str(result.exception)


MODES = ([], ["--render"], ["--dry-run"], ["--json"], ["--device", "cpu"])


@pytest.mark.parametrize(
    ("option", "mode"),
    [
        *((option, mode) for option in ("--data", "--models") for mode in MODES),
        *(("--results", mode) for mode in MODES[:-1]),  # runs make it
    ],
)
def test_a_folder_that_is_not_there(option, mode, here):
    assert refusal("table3", option, "nowhere", *mode).startswith(f"nowhere: no such folder; {option} must name")
    assert [path.name for path in here.iterdir()] == ["results"]


def test_no_results_folder_at_all(here):
    (here / "results").rmdir()
    assert refusal("table3").startswith("results: no such folder; --results must name")
    assert CliRunner().invoke(app, ["reproduce", "table1"]).exit_code == 0  # settings need none
    assert refusal("table1", "--results", "nowhere").startswith("nowhere: no such folder")


def test_runs_make_the_results_folder(here):
    """A first run is not refused for want of a place to keep it: only the data are missing here."""
    reason = refusal("table4", "--tasks", "7", "--device", "cpu", "--results", "nowhere")
    assert "no such data folder" in reason


def test_the_data_root_is_looked_for_once_before_any_run(here):
    reason = refusal("table4", "--tasks", "7", "--device", "cpu")
    assert reason.startswith(f"{here / 'data'}: no such data folder; looked for cub180 in it; set HOLDFAST_DATA")
    assert [path.name for path in here.iterdir()] == ["results"]


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ((1, 0, 0), "1 of 1 missing run is done."),
        ((1, 1, 1), "0 of 1 missing run is done."),
        ((8, 8, 8), "0 of 8 missing runs are done."),
        ((8, 7, 0), "1 of 8 missing runs is done; run the same command to resume the others."),
        ((1, 1, 0), "0 of 1 missing run is done; run the same command to resume the others."),
        ((8, 3, 2), "5 of 8 missing runs are done; run the same command to resume the stopped ones."),
    ],
)
def test_what_became_of_the_runs(counts, sentence):
    assert _outcome(*counts) == sentence

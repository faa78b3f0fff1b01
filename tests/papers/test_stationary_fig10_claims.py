"""Figure 10 says, axis by axis, where a run does not bear out what the paper says."""

import json
from types import MappingProxyType

import pytest

from papers.stationary import PAGES, Results
from papers.stationary.fig10 import CENTRE, ablation_run
from papers.stationary.result_page import EVERYTHING

RISING = [0.4 + 0.001 * task for task in range(31)]
FALLING = [0.5 - 0.01 * task for task in range(31)]


@pytest.fixture
def said(tmp_path, monkeypatch):
    """The notes of one axis on the paper's claims, given AC, AA and ACA at its values.

    ``curve`` is AA after each task of every run, except for those in ``curves``.
    """
    monkeypatch.setattr("papers.stationary.study_runs.StudyRun.is_of", lambda self, recipe: True)

    def write(axis, runs, curve=RISING, curves=MappingProxyType({})):
        for value, (ac, aa, aca) in runs.items():
            path = tmp_path / ablation_run(axis, value).path
            path.parent.mkdir(parents=True, exist_ok=True)
            template = {"AC": ac, "AA": aa, "ACA": aca, "AA_tau": curves.get(value, curve)}
            path.write_text(json.dumps({"recipe": {}, "protocols": {"template": template}}))
        table = PAGES["fig10"].tables(Results(tmp_path), EVERYTHING)[list(CENTRE).index(axis)]
        return [note for note in table.notes if "as the paper says" in note.lower()]

    return write


def test_rates_as_in_the_paper(said):
    assert said("rate", {0.01: (0.1, 0.3, 0.05), 0.001: (0.5, 0.5, 0.2), 0.0001: (0.9, 0.4, 0.3)}) == [
        "As the paper says (the runs at hand): rates above 0.001 lower AC, AA and ACA; those below it raise AC at the"
        " cost of AA."
    ]


def test_rates_not_as_in_the_paper(said):
    (note,) = said("rate", {0.01: (0.6, 0.4, 0.3), 0.001: (0.5, 0.5, 0.2), 0.0001: (0.4, 0.6, 0.1)})
    assert note.startswith(
        "Not as the paper says (the runs at hand): AC at 0.01 (0.60) is above that at 0.001 (0.50); ACA at 0.01 (30.00)"
        " is above that at 0.001 (20.00); AC at 0.001 (0.50) is above that at 0.0001 (0.40); AA at 0.0001 (60.00) is"
        " above that at 0.001 (50.00). The paper: rates above 0.001"
    )


def test_buffers(said):
    runs = {0: (0.1, 0.3, 0.1), 20: (0.1, 0.4, 0.1), 50: (0.1, 0.5, 0.1)}
    assert said("buffer", runs)[0].startswith("As the paper says (the runs at hand): AA rises with the buffer")
    (note,) = said("buffer", {**runs, 50: (0.1, 0.35, 0.1)}, FALLING)
    assert "AA at 20 (40.00) is above that at 50 (35.00); AA falls at task 11 with every buffer;" in note
    assert "AA falls at task 21 with every buffer. The paper:" in note
    assert "AA at 0 " not in note


def test_buffers_with_which_a_replacement_costs_accuracy(said):
    runs = {0: (0.1, 0.3, 0.1), 20: (0.1, 0.4, 0.1), 50: (0.1, 0.5, 0.1)}
    (note,) = said("buffer", runs, curves={0: FALLING, 20: FALLING})
    assert "(the runs at hand): AA falls at task 11 with a buffer of 0, 20; AA falls at task 21" in note


def test_images(said):
    assert said("images", {500: (0.5, 0.5, 0.3), 300: (0.4, 0.51, 0.2), 100: (0.3, 0.49, 0.1)}) == [
        "As the paper says (the runs at hand): AC and ACA fall with fewer images per class. AA, which stays relatively"
        " high in the paper, is 49.00 to 51.00."
    ]
    (note,) = said("images", {500: (0.5, 0.5, 0.3), 300: (0.4, 0.51, 0.2), 100: (0.6, 0.49, 0.25)})
    assert "AC at 100 (0.60) is above that at 300 (0.40);" in note
    assert "ACA at 100 (25.00) is above that at 300 (20.00). The paper:" in note


def test_one_run_alone_says_nothing(said):
    assert said("rate", {0.001: (0.5, 0.5, 0.2)}) == []
    assert said("images", {300: (0.5, 0.5, 0.2)}) == []


def test_rates_are_held_against_the_papers_choice_alone(said):
    assert said("rate", {0.01: (0.6, 0.4, 0.3), 0.0001: (0.4, 0.6, 0.1)}) == []


def test_the_kernels_of_a_run_are_named_once_it_is_there(tmp_path, fake):
    def notes():
        return PAGES["fig10"].tables(Results(tmp_path), EVERYTHING)[list(CENTRE).index("buffer")].notes

    fake(ablation_run("buffer", 100), tmp_path)
    assert not any("fused kernels" in note for note in notes())
    fake(ablation_run("buffer", 300), tmp_path)
    assert "Run by the fused kernels, which round differently from torch's: 300." in notes()

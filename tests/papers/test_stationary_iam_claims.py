"""Tables say where a run of IAM-CL2R does not bear out what the paper says."""

import json

import pytest

from papers.stationary import Results
from papers.stationary.iam_runs import iam_run
from papers.stationary.table6 import compared_with_paper

RISING, FALLING = [0.4, 0.41, 0.42, 0.43, 0.44, 0.45, 0.46], [0.5, 0.49, 0.3, 0.29, 0.2, 0.2, 0.2]


@pytest.fixture
def said(tmp_path, monkeypatch):
    monkeypatch.setattr("papers.stationary.study_runs.StudyRun.is_of", lambda self, recipe: True)

    def write(**runs):
        planned = [iam_run("replaced", method, 7) for method in runs]
        for run, (ac, aa, curve) in zip(planned, runs.values()):
            template = {"AC": ac, "AA": aa, "ACA": 0.1, "AA_tau": curve, "AC_tau": curve}
            path = tmp_path / run.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"recipe": {}, "protocols": {"template": template}}))
        return list(compared_with_paper(Results(tmp_path), planned))

    return write


def test_what_is_borne_out(said):
    assert said(simplex_hoc=(0.8, 0.46, RISING), er=(0.1, 0.2, FALLING)) == [
        "As the paper says (7 tasks, the runs at hand): d-Simplex-HOC is first in AC; d-Simplex-HOC is first in AA; at "
        "replacements its AA rises; that of methods with a trainable classifier falls wherever it can be compared."
    ]


def test_only_what_was_compared_is_borne_out(said):
    assert said(simplex_hoc=(0.8, 0.46, RISING), simplex_fd=(0.1, 0.2, RISING)) == [
        "As the paper says (7 tasks, the runs at hand): d-Simplex-HOC is first in AC; d-Simplex-HOC is first in AA; at "
        "replacements its AA rises."
    ]


def test_what_is_not(said):
    (note,) = said(simplex_hoc=(0.1, 0.46, FALLING), simplex_fd=(0.2, 0.3, RISING), cvs=(0.0, 0.2, RISING))
    assert note.startswith("Not as the paper says (7 tasks, the runs at hand): ")
    assert "in AC d-Simplex-HOC (0.10) is behind d-Simplex-FD 0.20;" in note
    assert "in AA" not in note
    assert "AA of d-Simplex-HOC falls at task 3, 49.00 to 30.00; AA of CVS rises at task 3, 41.00 to 42.00;" in note
    assert "AA of d-Simplex-HOC falls at task 5" in note
    assert "d-Simplex-FD rises" not in note  # it has no classifier to lose


def test_what_cannot_be_compared_is_no_objection_and_no_support(said):
    unequal = [0.5, 0.5, None, None, None, None, None]
    assert said(simplex_hoc=(0.8, 0.46, RISING), er=(0.0, None, unequal)) == [
        "As the paper says (7 tasks, the runs at hand): d-Simplex-HOC is first in AC; at replacements its AA rises."
    ]


def test_what_stays_is_not_as_the_paper_says(said):
    level = [0.4] * 7
    (note,) = said(simplex_hoc=(0.8, 0.46, level), er=(0.1, 0.2, level))
    assert "AA of d-Simplex-HOC stays at task 3, 40.00 to 40.00; AA of ER stays at task 3" in note


def test_without_our_subject_there_is_nothing_to_say(said):
    assert said(er=(0.1, 0.2, FALLING)) == []

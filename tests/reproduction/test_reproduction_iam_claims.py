"""Tables say where a run of IAM-CL2R does not bear out what the paper says."""

import json

import pytest

from holdfast.reproduction import Results
from holdfast.reproduction.iam import iam_cell
from holdfast.reproduction.iam_claims import BORNE_OUT, held_against

RISING, FALLING = [0.4, 0.41, 0.42, 0.43, 0.44, 0.45, 0.46], [0.5, 0.49, 0.3, 0.29, 0.2, 0.2, 0.2]


@pytest.fixture
def said(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.reproduction.cells.Cell.is_of", lambda self, recipe: True)

    def write(**runs):
        cells = [iam_cell("replaced", method, 7) for method in runs]
        for cell, (ac, aa, curve) in zip(cells, runs.values()):
            template = {"AC": ac, "AA": aa, "ACA": 0.1, "AA_tau": curve}
            path = tmp_path / cell.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"recipe": {}, "protocols": {"template": template}}))
        return list(held_against(Results(tmp_path), cells))

    return write


def test_what_is_borne_out(said):
    assert said(simplex_hoc=(0.8, 0.46, RISING), er=(0.1, 0.2, FALLING)) == [
        f"As the paper says (7 tasks, the runs at hand): {BORNE_OUT}."
    ]


def test_what_is_not(said):
    (note,) = said(simplex_hoc=(0.1, 0.46, FALLING), simplex_fd=(0.2, 0.3, RISING), cvs=(0.0, 0.2, RISING))
    assert note.startswith("Not as the paper says (7 tasks, the runs at hand): ")
    assert "in AC d-Simplex-HOC (0.10) is behind d-Simplex-FD 0.20;" in note
    assert "in AA" not in note
    assert "AA of d-Simplex-HOC falls at task 3, 49.00 to 30.00; AA of CVS rises at task 3, 41.00 to 42.00;" in note
    assert "AA of d-Simplex-HOC falls at task 5" in note
    assert "d-Simplex-FD rises" not in note  # it has no classifier to lose


def test_what_cannot_be_compared_is_no_objection(said):
    unequal = [*FALLING[:4], None, None, None]
    (note,) = said(simplex_hoc=(0.8, 0.46, RISING), er=(0.0, None, unequal))
    assert note.startswith("As the paper says")


def test_one_method_alone_says_nothing(said):
    assert said(simplex_hoc=(0.8, 0.46, RISING)) == []
    assert said(er=(0.1, 0.2, FALLING)) == []

from pathlib import Path

from holdfast.train.data import data_root
from holdfast.train.data.root import resolve_path


def test_explicit_wins_over_the_variable_which_wins_over_the_default(monkeypatch):
    monkeypatch.setenv("HOLDFAST_DATA", "/from/variable")
    assert data_root("/given") == Path("/given")
    assert data_root() == Path("/from/variable")
    monkeypatch.delenv("HOLDFAST_DATA")
    assert data_root() == Path("data")


def test_an_absolute_path_needs_no_root(tmp_path):
    assert resolve_path(tmp_path / "missing", str(tmp_path / "x.npz")) == tmp_path / "x.npz"
    assert resolve_path(tmp_path, "x.npz") == tmp_path / "x.npz"

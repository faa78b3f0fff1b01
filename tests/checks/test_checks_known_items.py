"""Known items: each query's right answer is the item that it was made from."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from holdfast import check
from holdfast.checks.known_items import read_known_items
from holdfast.cli import app
from holdfast.core.errors import HoldfastError


@pytest.fixture
def made():
    """300 items and 120 queries made from them, by an old model and by a less noisy new one in the same space."""
    rng = np.random.default_rng(0)
    items = rng.standard_normal((300, 16))
    ids = np.array([f"doc-{i}" for i in range(300)])
    asked = rng.permutation(300)[:120]
    old, new = (items[asked] + noise * rng.standard_normal((120, 16)) for noise in (1.5, 0.5))
    return {"gallery": (items, None, ids), "queries_old": old, "queries_new": new}, ids[asked]


def test_they_are_relevance_with_one_item(made):
    sources, right = made
    found = check(**sources, known_items=right)
    same = check(**sources, relevance=[(str(query), item) for query, item in enumerate(right)], score="hit@1")
    assert (found.gain, found.judged_by) == (same.gain, "known items")
    assert (found.verdict, found.exit_code) == ("better", 0)
    assert any(note.startswith("known items are a stand-in for real queries") for note in found.notes)


def test_a_file_of_them(made, tmp_path):
    (gallery, _, ids), old, new = made[0].values()
    np.savez(tmp_path / "index.npz", features=gallery, ids=ids)
    np.savez(tmp_path / "known.npz", old=old, new=new, item=made[1])
    words = ["check", "--gallery", tmp_path / "index.npz", "--known-items", tmp_path / "known.npz"]

    def run(*more, status=0):
        result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(word) for word in (*words, *more)])
        assert result.exit_code == status, result.output
        return result.stdout

    found = json.loads(run("--json"))
    assert (found["judged_by"], found["better"]["answer"]) == ("known items", "yes")
    assert "stand-in for real queries" in " ".join(run().split())
    run("--queries-old", tmp_path / "known.npz", status=2)
    words = words[:3]
    run(status=2)


def test_what_is_wrong_is_named(made, tmp_path):
    sources, right = made
    with pytest.raises(HoldfastError, match="known items: 119 items for 120 queries"):
        check(**sources, known_items=right[1:])
    with pytest.raises(HoldfastError, match="give one of them"):
        check(**sources, known_items=right, relevance=[("0", "doc-1")])
    for arrays, message in (
        ({"old": np.eye(3), "new": np.eye(3)}, "no array item; it has new, old"),
        ({"old": np.eye(3), "new": np.eye(3), "item": np.arange(2)}, "one item are needed for each query"),
    ):
        np.savez(tmp_path / "known.npz", **arrays)
        with pytest.raises(HoldfastError, match=message):
            read_known_items(tmp_path / "known.npz")
    with pytest.raises(HoldfastError, match=r"known items are an \.npz file"):
        read_known_items(tmp_path / "known.csv")

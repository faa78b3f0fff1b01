"""Public test collections as plain files: documents, queries, a log of queries, titles, and human judgements.

    python papers/upgrades/sets.py scifact OUT --corpus scifact.zip --queries queries.jsonl --test t.tsv --train u.tsv
    python papers/upgrades/sets.py cacm OUT/cacm --documents cacm.all --queries query.text --judgements qrels.text
    python papers/upgrades/sets.py cranfield OUT --documents cran.all.1400 --queries cran.qry --judgements cranqrel

Each folder gets ``documents.jsonl``, ``queries.jsonl`` and ``titles.jsonl`` (lines with ``id`` and ``text``; a
title's id is its document's) and ``qrels.json`` (``{query: {document: grade}}``; grades above 0). SciFact also gets
``log.jsonl`` and ``log-qrels.json``: its training queries, which stand in for a log of past queries. ``--corpus`` may
be BEIR's ``corpus.jsonl`` or a zip archive with SciFact's ``corpus_train.csv``.

Documents without a text are left out, and so are judgements of them. Cranfield's grades are turned round (1, "a
complete answer", becomes 4) and -1 is "of no interest"; its queries are numbered by their place in the file, which is
what its judgements refer to. CACM's empty last query is left out.
"""

from __future__ import annotations

import argparse
import ast
import csv
import io
import json
import re
import sys
import zipfile
from pathlib import Path


def smart_records(text: str) -> list[dict[str, str]]:
    """The records of a file in SMART's format: ``.I`` starts a record, ``.T``, ``.W``, ... a field of it."""
    records: list[dict[str, str]] = []
    field = None
    for line in text.splitlines():
        if line.startswith(".I"):
            records.append({"id": line[2:].strip()})
            field = None
        elif re.fullmatch(r"\.[A-Z]\s*", line) and records:
            field = line[1]
            records[-1].setdefault(field, "")
        elif field is not None:
            records[-1][field] += line + " "
    return [{name: " ".join(value.split()) for name, value in record.items()} for record in records]


def scifact_documents(path: Path) -> list[tuple[str, str, str]]:
    """Id, title and abstract of each document, from ``corpus.jsonl`` or a zip archive with ``corpus_train.csv``."""
    if path.suffix == ".jsonl":
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [(line["_id"], line["title"], line["text"]) for line in lines]
    literal = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
    with zipfile.ZipFile(path) as archive, archive.open("corpus_train.csv") as raw:
        rows = list(csv.DictReader(io.TextIOWrapper(raw, "utf-8")))
    abstracts = [[ast.literal_eval(part) for part in literal.findall(row["abstract"])] for row in rows]
    return [
        (row["doc_id"], row["title"], " ".join(" ".join(parts).split()))
        for row, parts in zip(rows, abstracts, strict=True)
    ]


def beir_judgements(path: Path) -> dict[str, dict[str, int]]:
    """``{query: {document: grade}}`` of a TSV file with a header."""
    judgements: dict[str, dict[str, int]] = {}
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        if int(grade) > 0:
            judgements.setdefault(query, {})[document] = int(grade)
    return judgements


def write_lines(path: Path, rows: list[tuple[str, str]]) -> None:
    path.write_text(
        "".join(json.dumps({"id": name, "text": text}, ensure_ascii=False) + "\n" for name, text in rows),
        encoding="utf-8",
    )


def write_set(
    folder: Path,
    documents: list[tuple[str, str, str]],
    queries: list[tuple[str, str]],
    judgements: dict[str, dict[str, int]],
    log: tuple[list[tuple[str, str]], dict[str, dict[str, int]]] | None = None,
) -> None:
    """Write one collection; judgements of documents without a text are dropped."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = [(name, title, body) for name, title, body in documents if (title + body).strip()]
    names = {name for name, _, _ in documents}
    write_lines(folder / "documents.jsonl", [(name, f"{title} {body}".strip()) for name, title, body in documents])
    write_lines(folder / "titles.jsonl", [(name, title) for name, title, _ in documents if title])
    for stem, kind, asked, grades in (
        ("queries", "qrels", queries, judgements),
        *((("log", "log-qrels", *log),) if log else ()),
    ):
        kept = {
            query: {document: grade for document, grade in row.items() if document in names and grade > 0}
            for query, row in grades.items()
        }
        kept = {query: row for query, row in kept.items() if row}
        write_lines(folder / f"{stem}.jsonl", asked)
        (folder / f"{kind}.json").write_text(json.dumps(kept, indent=0), encoding="utf-8")
        judged = sum(len(row) for row in kept.values())
        count = f"{len(asked):,} in {stem}.jsonl, {len(kept):,} of them judged, {judged:,} judgements"
        sys.stderr.write(f"{folder.name}: {len(documents):,} documents, {count}\n")


def write_scifact(folder: Path, corpus: Path, queries: Path, test: Path, train: Path) -> None:
    texts = {line["_id"]: line["text"] for line in map(json.loads, queries.read_text(encoding="utf-8").splitlines())}
    judged, logged = beir_judgements(test), beir_judgements(train)
    write_set(
        folder,
        scifact_documents(corpus),
        [(query, texts[query]) for query in judged],
        judged,
        ([(query, texts[query]) for query in logged], logged),
    )


def write_smart(folder: Path, documents: Path, queries: Path, judgements: Path, *, cranfield: bool) -> None:
    asked = smart_records(queries.read_text(encoding="latin-1"))
    grades: dict[str, dict[str, int]] = {}
    for line in judgements.read_text(encoding="latin-1").splitlines():
        query, document, *rest = line.split()
        code = int(rest[0])
        grades.setdefault(str(int(query)), {})[str(int(document))] = (0 if code < 1 else 5 - code) if cranfield else 1
    records = smart_records(documents.read_text(encoding="latin-1"))
    # Cranfield's text begins with its title: the title is taken away there, so that a document's text has it once.
    rows = []
    for record in records:
        title, body = record.get("T", ""), record.get("W", "")
        rows.append((str(int(record["id"])), title, body.removeprefix(title).strip() if cranfield else body))
    if cranfield:
        rows = [row for row in rows if row[2]]
    names = [str(place + 1) if cranfield else str(int(record["id"])) for place, record in enumerate(asked)]
    write_set(
        folder,
        rows,
        [(name, record["W"]) for name, record in zip(names, asked, strict=True) if record.get("W")],
        grades,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=("scifact", "cacm", "cranfield"))
    parser.add_argument("out", type=Path, help="the folder to write")
    for name in ("corpus", "documents", "queries", "judgements", "test", "train"):
        parser.add_argument(f"--{name}", type=Path)
    options = parser.parse_args()
    if options.set == "scifact":
        write_scifact(options.out, options.corpus, options.queries, options.test, options.train)
    else:
        write_smart(
            options.out, options.documents, options.queries, options.judgements, cranfield=options.set == "cranfield"
        )


if __name__ == "__main__":
    main()

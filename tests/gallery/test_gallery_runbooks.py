"""The runbooks in docs/engines, step by step: PostgreSQL on a real server, Qdrant over its client's local mode."""

import re
import shlex
import subprocess
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from holdfast.cli import app

pytest.importorskip("psycopg")
pytest.importorskip("qdrant_client")
pytest.importorskip("fastapi")

DOCS = Path(__file__).parents[2] / "docs" / "engines"
CLASSES, EACH, OLD, NEW = 15, 20, 8, 12


@pytest.fixture
def vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """300 items by an old and by a sharper new model of another size, and the files that the runbooks need."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(CLASSES, OLD))
    turn, _ = np.linalg.qr(draw.normal(size=(NEW, OLD)))
    labels = np.array([f"k{number}" for number in range(CLASSES)])

    def both(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        names, rows = np.repeat(labels, count), np.repeat(centres, count, axis=0)
        old = rows + 0.5 * draw.normal(size=rows.shape)
        new = (rows + 0.1 * draw.normal(size=rows.shape)) @ turn.T
        return old.astype(np.float32), new.astype(np.float32), names

    old, new, names = both(EACH)
    ids = np.array([f"item-{number:03d}" for number in range(len(old))])
    np.savez("new.npz", features=new, ids=ids)
    asked_old, asked_new, asked = both(10)
    asked_ids = [f"query-{number}" for number in range(len(asked))]
    np.savez("queries-old.npz", features=asked_old, labels=asked, ids=asked_ids)
    np.savez("queries-new.npz", features=asked_new, labels=asked, ids=asked_ids)
    shops = ["north" if number % 3 else "south" for number in range(len(ids))]
    return {"ids": ids, "old": old, "new": new, "labels": names, "shops": shops}


class Runbook:
    """Runs the blocks of a page's runbook in order.

    replaced: texts of the page that are other ones here, such as the address of the server.
    execute: runs an SQL statement as the table's owner.
    """

    def __init__(self, page: str, replaced: dict[str, str], execute: Any = None) -> None:
        text = (DOCS / page).read_text(encoding="utf-8")
        section = re.split(r"^## ", text[text.index("## Runbook") + 3 :], maxsplit=1, flags=re.MULTILINE)[0]
        for written, meant in replaced.items():
            assert written in section
            section = section.replace(written, meant)
        self._blocks = re.findall(r"^```(\w*)\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
        self._execute = execute
        self.said: dict[str, str] = {}

    def run(self) -> None:
        for language, block in self._blocks:
            if language == "python":
                exec(compile(block, "runbook", "exec"), {})
            elif language == "sql":
                for statement in block.split(";\n"):
                    self._execute(statement.strip())
            else:
                self._run_commands(block.splitlines())

    def _run_commands(self, lines: list[str]) -> None:
        served: list[str] = []
        for line in lines:
            words = shlex.split(line)
            if words[:2] == ["holdfast", "serve"]:
                served = words
            elif words[0] == "curl":
                self.said[line] = _answer(Path(served[2]), words[1])
            elif words[0] in ("cp", "mv"):
                subprocess.run(words, check=True)
            else:
                assert words[0] == "holdfast", line
                done = CliRunner().invoke(app, words[1:])
                expected = 3 if words[1] == "bridge" else 0  # a bridge is provisional until the check judges it
                assert done.exit_code == expected, (line, done.output, done.exception)
                self.said[line] = self.said.get(line, "") + done.stdout


def _answer(gallery: Path, url: str) -> str:
    """What the service of a gallery answers."""
    from starlette.testclient import TestClient

    from holdfast.gallery import open_gallery
    from holdfast.service.access_control import AccessControl
    from holdfast.service.app import build_app

    with open_gallery(gallery, device="cpu") as opened:
        served = TestClient(build_app(opened, access=AccessControl({})), base_url="http://127.0.0.1:8321")
        with served as client:
            answer = client.get(url)
    assert answer.status_code == 200
    return answer.text


def check_what_was_said(said: dict[str, str]) -> None:
    (checked,) = [text for line, text in said.items() if line.startswith("holdfast check")]
    assert "300" in checked
    (filtered,) = [text for line, text in said.items() if "--where" in line]
    assert len(re.findall(r"item-\d+", filtered)) == 5
    (versions,) = [text for line, text in said.items() if line.startswith("holdfast gallery versions")]
    assert "version" in versions
    assert Path("G.after/versions/0001").is_dir()  # the registered model
    assert not Path("G/versions/0001").exists()


def test_postgresql(vectors, postgres_server):
    import psycopg

    name = f"shop_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres_server.url, autocommit=True) as administrator:
        administrator.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    owner = postgres_server.url.replace("/postgres?", f"/{name}?")
    reader = owner.replace("holdfast@", "holdfast_reader@")
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute("CREATE TABLE items (id text PRIMARY KEY, embedding vector(8), kind text, shop text)")
        connection.execute("CREATE TABLE new_vectors (id text PRIMARY KEY, embedding vector(12))")
        with connection.cursor() as cursor:
            rows = zip(vectors["ids"], vectors["old"].tolist(), vectors["labels"], vectors["shops"], strict=True)
            cursor.executemany(
                "INSERT INTO items VALUES (%s, %s, %s, %s)", [(str(n), str(v), str(k), s) for n, v, k, s in rows]
            )
            new = zip(vectors["ids"], vectors["new"].tolist(), strict=True)
            cursor.executemany("INSERT INTO new_vectors VALUES (%s, %s)", [(str(n), str(v)) for n, v in new])
        before = connection.execute("SELECT md5(string_agg(items::text, '' ORDER BY id)) FROM items").fetchone()
        runbook = Runbook(
            "postgresql.md", {"postgresql://holdfast_reader@localhost/shop": reader}, execute=connection.execute
        )
        runbook.run()
        connection.execute("ALTER TABLE items DROP COLUMN embedding_new")
        assert connection.execute("SELECT md5(string_agg(items::text, '' ORDER BY id)) FROM items").fetchone() == before
    check_what_was_said(runbook.said)
    metrics = runbook.said["curl http://127.0.0.1:8321/metrics"]
    kinds = re.findall(r'^holdfast_bridge_in_use\{kind="(\w+)",version="0"\} 1', metrics, re.MULTILINE)
    assert len(kinds) == 1
    assert kinds[0] != "none"
    assert "holdfast_bridge_expected_exposure" in metrics
    assert "holdfast_request_seconds" in metrics


@pytest.mark.slow
def test_qdrant(vectors, tmp_path):
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(tmp_path / "qdrant"))
    for collection, size, rows in (("items", OLD, vectors["old"]), ("items_new", NEW, vectors["new"])):
        client.create_collection(collection, models.VectorParams(size=size, distance=models.Distance.COSINE))
        payloads = zip(vectors["ids"].tolist(), vectors["labels"].tolist(), vectors["shops"], strict=True)
        client.upsert(
            collection,
            [
                models.PointStruct(id=n, vector=row, payload={"name": name, "kind": kind, "shop": shop})
                for n, (row, (name, kind, shop)) in enumerate(zip(rows.tolist(), payloads, strict=True))
            ],
        )
    client.close()
    runbook = Runbook("qdrant.md", {"http://localhost:6333": f"qdrant:{tmp_path / 'qdrant'}"})
    runbook.run()
    check_what_was_said(runbook.said)

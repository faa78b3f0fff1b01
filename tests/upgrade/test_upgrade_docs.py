"""The examples of docs/upgrade.md, executed as they stand there."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from holdfast import Upgrade

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "upgrade.md").read_text(encoding="utf-8")
LONGEST = 15


def block(heading):
    """The Python below one heading."""
    text = re.split(r"^#+ (.+)$", PAGE, flags=re.MULTILINE)
    return re.findall(r"^```python\n(.*?)^```", text[text.index(heading) + 1], flags=re.MULTILINE | re.DOTALL)[0]


def executed(names, heading):
    code = block(heading)
    assert len([line for line in code.splitlines() if line.strip()]) <= LONGEST, heading
    exec(compile(code, f"upgrade.md, {heading}", "exec"), names)


@pytest.fixture
def names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = {"__name__": "upgrade_docs"}
    exec(compile(block("2. Serve it"), "upgrade.md", "exec"), found)
    executed(found, "NumPy")
    return found


def test_numpy(names):
    assert names["answer"].embedded > 0
    assert names["upgrade"].search("wine red", k=3).embedded == 0


def test_faiss(names):
    pytest.importorskip("faiss")
    executed(names, "FAISS")


@pytest.mark.slow
def test_pgvector(names):
    sys.path.insert(0, str(ROOT / "tests" / "gallery"))
    from postgres_server import PostgresServer, installed_server

    psycopg = pytest.importorskip("psycopg")
    if installed_server() is None:
        pytest.skip("no PostgreSQL with pgvector is installed")
    server = PostgresServer()
    try:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute("CREATE TABLE items (id bigint, body text, embedding vector(9))")
            for number, (text, row) in enumerate(zip(names["texts"], names["stored"], strict=True)):
                vector = "[" + ",".join(map(str, row)) + "]"
                connection.execute("INSERT INTO items VALUES (%s, %s, %s)", (number, text, vector))
            executed(names | {"connection": connection}, "pgvector")
    finally:
        server.remove()


def test_langchain(names):
    pytest.importorskip("langchain_core")
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import InMemoryVectorStore

    class OldModel(Embeddings):
        def embed_documents(self, texts):
            return names["old_model"](texts).tolist()

        def embed_query(self, text):
            return self.embed_documents([text])[0]

    class Store(InMemoryVectorStore):
        def similarity_search_with_score_by_vector(self, vector, k):
            found = super()._similarity_search_with_score_by_vector(np.asarray(vector).tolist(), k)
            return [(document, score) for document, score, _ in found]

    store = Store(OldModel())
    store.add_texts(names["texts"])
    names["store"] = store
    executed(names, "A LangChain retriever")
    old, new = names["old_model"], names["new_model"]
    upgrade = Upgrade(search=names["search_store"], embed_old=old, embed_new=new, embed_items=new, candidates=6)
    documents = names["UpgradeRetriever"](upgrade=upgrade).invoke("wine red")
    assert documents[0].page_content == "red wine"
    assert len(documents) == 3

"""The examples of docs/upgrade.md, executed as they stand there.

chromadb, LangChain and LlamaIndex are not in the dev extra. `make upgrade-examples` runs these tests with all of them;
there a missing one is a failure.
"""

import importlib
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast import Upgrade

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "upgrade.md").read_text(encoding="utf-8")
LONGEST = 15


def library(name):
    """A module; where it is missing the test is skipped, or fails if HOLDFAST_NEED_EXAMPLES is set."""
    if os.environ.get("HOLDFAST_NEED_EXAMPLES"):
        return importlib.import_module(name)
    return pytest.importorskip(name)


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
    variables = {"__name__": "upgrade_docs"}
    exec(compile(block("2. Serve it"), "upgrade.md", "exec"), variables)
    executed(variables, "NumPy")
    return variables


def test_numpy(names):
    assert names["answer"].embedded > 0
    assert names["upgrade"].search("wine red", k=3).embedded == 0


def test_faiss(names):
    library("faiss")
    executed(names, "FAISS")


@pytest.mark.slow
@pytest.mark.ci
def test_pgvector(names):
    sys.path.insert(0, str(ROOT / "tests" / "gallery"))
    from postgres_server import PostgresServer, installed_server

    psycopg = library("psycopg")
    if installed_server() is None:
        stop = pytest.fail if os.environ.get("HOLDFAST_NEED_POSTGRES") else pytest.skip
        stop("no PostgreSQL with pgvector is installed")
    server = PostgresServer()
    try:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute("CREATE TABLE items (id bigint, body text, embedding vector(9))")
            for number, (text, row) in enumerate(zip(names["texts"], names["stored"].tolist(), strict=True)):
                connection.execute("INSERT INTO items VALUES (%s, %s, %s)", (number, text, str(row)))
            executed(names | {"connection": connection}, "pgvector")
    finally:
        server.remove()


def test_chroma(names):
    client, texts = library("chromadb").EphemeralClient(), names["texts"]
    collection = client.create_collection("items", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None)
    collection.add(ids=[f"item {text}" for text in texts], embeddings=names["stored"].tolist(), documents=texts)
    executed(names | {"collection": collection}, "Chroma")


def test_langchain(names):
    old_model = SimpleNamespace(embed_documents=lambda texts: names["old_model"](texts).tolist())
    store = library("langchain_chroma").Chroma(
        embedding_function=old_model, collection_metadata={"hnsw:space": "cosine"}
    )
    store.add_texts(names["texts"])
    names["store"] = store
    executed(names, "A LangChain retriever")
    upgrade = Upgrade(search=names["search_store"], candidates=6, **names["models"])
    documents = names["UpgradeRetriever"](upgrade=upgrade).invoke("wine red")
    assert [document.page_content for document in documents] == [hit.content for hit in names["answer"].hits]


def test_llama_index(names):
    core = library("llama_index.core")
    stored = zip(names["texts"], names["stored"].tolist(), strict=True)
    nodes = [core.schema.TextNode(text=text, embedding=vector) for text, vector in stored]
    names["index"] = core.VectorStoreIndex(nodes, embed_model=core.MockEmbedding(embed_dim=9))
    executed(names, "A LlamaIndex retriever")
    hits = names["UpgradeRetriever"]().retrieve("wine red")
    assert [hit.node.text for hit in hits] == [hit.content for hit in names["answer"].hits]

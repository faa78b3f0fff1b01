"""The server with a gallery's vectors goes away and comes back while the gallery is served over HTTP."""

import logging

import numpy as np
import pytest

from holdfast import Gallery
from holdfast.core.errors import UnavailableError
from holdfast.gallery import Address, Item
from holdfast.gallery.attached import open_source
from holdfast.gallery.engines import postgres_engine as postgres

pytest.importorskip("fastapi")


def test_a_store_that_is_away_is_503_with_a_reason(model_folders, postgres_server, tmp_path, monkeypatch, caplog):
    from starlette.testclient import TestClient

    from holdfast.service.access_control import AccessControl
    from holdfast.service.app import build_app

    monkeypatch.setattr(postgres, "RECONNECT_SECONDS", 0.3)
    with Gallery.create(tmp_path / "g", model_folders[0], engine=postgres_server.url) as gallery:
        gallery.add([Item(str(n), vector=row) for n, row in enumerate(np.eye(32))])
        question = {"vector": [1.0] * 32, "k": 3}
        items = {"items": [{"id": "late", "vector": [1.0] * 32}]}
        with TestClient(build_app(gallery, access=AccessControl({})), base_url="http://127.0.0.1") as client:
            assert client.post("/v1/search/vector", json=question).status_code == 200
            postgres_server.stop()
            try:
                with caplog.at_level(logging.ERROR, logger="holdfast.service"):
                    found = [
                        client.post("/v1/search/vector", json=question),
                        client.post("/v1/items", json=items),
                        client.get("/v1/ready"),
                        client.get("/metrics"),
                    ]
                assert client.get("/v1/health").status_code == 200
            finally:
                postgres_server.start()
            for answer in found:
                assert answer.status_code == 503, answer.text
                assert "the gallery's store cannot be reached or written" in answer.json()["error"]["reason"]
                assert "postgresql:" not in answer.text
                assert answer.headers["retry-after"] == "5"
            assert "postgresql:" in caplog.text
            assert client.post("/v1/search/vector", json=question).status_code == 200
            assert client.post("/v1/items", json=items).json() == {"stored": 1, "version": 1}
            assert client.post("/v1/search/vector", json={**question, "k": 40}).json()["hits"][0]["id"] == "late"


def test_an_attached_table_outlives_a_restart_of_its_server(postgres_server, monkeypatch):
    import psycopg

    monkeypatch.setattr("holdfast.gallery.attached.postgres_table.WAIT_SECONDS", 3)

    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute("CREATE TABLE restarted (id int PRIMARY KEY, v vector(3))")
        connection.execute("INSERT INTO restarted VALUES (1, '[1,0,0]'), (2, '[0,1,0]')")
    source = open_source(Address(postgres_server.url, "restarted", "id", "v"))
    query = np.array([1.0, 0, 0], dtype=np.float32)
    postgres_server.stop()
    with pytest.raises(UnavailableError, match="cannot be opened"):
        source.search(query, 1)
    postgres_server.start()
    assert [near.id for near in source.search(query, 1)] == ["1"]
    postgres_server.stop()
    postgres_server.start()
    assert source.count() == 2  # the loss is noticed by this call, which is made once more
    source.close()
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("DROP TABLE restarted")

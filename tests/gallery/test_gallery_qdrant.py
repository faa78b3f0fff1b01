"""What a Qdrant server is sent, by a server that only writes it down, and what happens when it is away."""

import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.gallery import Gallery, Item, open_engine
from holdfast.gallery.engines import qdrant_engine as qdrant
from holdfast.gallery.engines.engine import EngineAddress, new_engine_address

pytest.importorskip("qdrant_client")


class Recorder(BaseHTTPRequestHandler):
    """Says yes to everything; ``away``: how many connections are dropped without an answer first."""

    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.seen.append((self.command, self.path, json.loads(body or b"null"), self.headers.get("api-key")))
        if self.server.away > 0:
            self.server.away -= 1
            self.connection.close()
            return
        status, result = self.server.results(self.command, self.path)
        text = json.dumps({"result": result, "status": "ok", "time": 0.0}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

    def log_message(self, *words):
        pass


def plain_results(command, path):
    if path.endswith("/exists"):
        return 200, {"exists": False}
    if path == "/collections":
        return 200, {"collections": [{"name": "mine-v0001"}, {"name": "mine_too-v0001"}, {"name": "other"}]}
    if "/points" in path or "/index" in path:
        return 200, {"operation_id": 1, "status": "completed"}
    return 200, True


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    made.seen, made.away, made.results = [], 0, plain_results
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def url_of(server):
    return f"http://127.0.0.1:{server.server_port}"


def test_shards_replicas_and_key(server, tmp_path, monkeypatch):
    monkeypatch.setenv("QDRANT_API_KEY", "from-the-environment")
    with pytest.warns(UserWarning, match="insecure connection"):
        engine = open_engine(
            new_engine_address(url_of(server), namespace="mine", shards=6, replicas=3), tmp_path, "hnsw"
        )
    assert engine.collections() == ["v0001"]
    engine.create("v0002", 512)
    command, path, body, key = server.seen[-1]
    assert (command, path, key) == ("PUT", "/collections/mine-v0002", "from-the-environment")
    assert body["vectors"] == {"size": 512, "distance": "Dot"}
    assert body["hnsw_config"] == {"m": 16, "ef_construct": 100}
    assert (body["shard_number"], body["replication_factor"], body["write_consistency_factor"]) == (6, 3, 2)
    engine.close()


def test_an_upsert_waits_and_is_cut_where_it_is_large(server, tmp_path, monkeypatch):
    monkeypatch.setattr(qdrant, "_NUMBERS_AT_ONCE", 10)
    engine = open_engine(new_engine_address(url_of(server), namespace="mine"), tmp_path, "exact")
    engine.upsert("v0001", range(5), np.ones((5, 4), dtype=np.float32), [{"flag": True, "n": i} for i in range(5)])
    sent = [(path, [point["id"] for point in body["points"]]) for _, path, body, _ in server.seen[1:]]
    assert sent == [("/collections/mine-v0001/points?wait=true", ids) for ids in ([0, 1], [2, 3], [4])]
    assert server.seen[1][2]["points"][1]["payload"] == {"flag-bool": "True", "n": 1}
    engine.close()


def test_fields_are_indexed_before_their_first_values(server, tmp_path):
    engine = open_engine(new_engine_address(url_of(server), namespace="mine"), tmp_path, "hnsw")
    for n in range(2):
        engine.upsert("v0001", [n], np.ones((1, 4), dtype=np.float32), [{"flag": True, "n": n, "name": "a"}])
    sent = [(path.partition("?")[0].rpartition("/")[2], body) for _, path, body, _ in server.seen[1:]]
    assert [name for name, _ in sent] == ["index", "index", "index", "points", "points"]
    found = {body["field_name"]: body["field_schema"] for name, body in sent if name == "index"}
    assert found == {"flag-bool": "keyword", "n": "float", "name": "keyword"}
    engine.close()


def test_a_server_that_is_away_is_asked_again(server, tmp_path, monkeypatch):
    engine = open_engine(new_engine_address(url_of(server), namespace="mine"), tmp_path, "exact")
    server.away = 2
    engine.delete("v0001", [1, 2])
    assert [path for _, path, _, _ in server.seen[1:]] == 3 * ["/collections/mine-v0001/points/delete?wait=true"]
    server.away = 10**6
    monkeypatch.setattr(qdrant, "RECONNECT_SECONDS", 0)
    with pytest.raises(HoldfastError, match=f"{url_of(server)}: no answer"):
        engine.drop("v0001")
    engine.close()


def test_a_refusal_is_one_line(server, tmp_path):
    server.results = lambda command, path: (403, {})
    with pytest.raises(HoldfastError, match="403") as caught:
        open_engine(EngineAddress(url_of(server), "mine"), tmp_path, "exact")
    assert "\n" not in str(caught.value)
    with pytest.raises(HoldfastError, match="replicas must be at least 1"):
        new_engine_address("http://here:6333", replicas=0)
    with pytest.raises(HoldfastError, match="for engines on a server"):
        new_engine_address("embedded", shards=2)


def test_a_copy_of_the_folder_that_lacks_the_last_keys_is_refused(address_of, model_folders, tmp_path):
    vectors = np.eye(32)[:2]
    with Gallery.create(tmp_path / "g", model_folders[0], engine=address_of("qdrant")) as gallery:
        gallery.add([Item("0", vector=vectors[0])])
    shutil.copytree(tmp_path / "g", tmp_path / "copy")
    with Gallery.open(tmp_path / "g") as gallery:
        gallery.add([Item("1", vector=vectors[1])])
    with pytest.raises(HoldfastError, match=r"copy: older than its vectors \(.*\), which another copy of this folder"):
        Gallery.open(tmp_path / "copy")
    with Gallery.open(tmp_path / "g") as gallery:
        assert [hit.id for hit in gallery.search(vector=vectors[1], k=1)] == ["1"]

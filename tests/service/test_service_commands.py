"""The verbs of ``holdfast gallery`` on a gallery that is being served: done by the process that serves it."""

import json
import os
import shutil
import threading

import numpy as np
import pytest
from service_inputs import png, serving
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.core.errors import HoldfastError
from holdfast.gallery import Item
from holdfast.service import owner_tasks
from holdfast.service.access_control import AccessControl, read_tokens
from holdfast.service.body_limits import Limits
from holdfast.service.served_gallery import ServerRecord, run_on_server


def run_verb(*words, status=0):
    done = CliRunner().invoke(app, ["gallery", *map(str, words)])
    assert done.exit_code == status, done.output + repr(done.exception)
    return done.stdout


@pytest.fixture
def served(gallery, make_client, tmp_path):
    """The folder of a gallery, and a client of its service."""
    client = make_client(served=True)
    assert ServerRecord.read(tmp_path / "g") is not None
    return tmp_path / "g", client


def test_look_add_search_and_delete(served, gallery, pictures, tmp_path, monkeypatch):
    folder, client = served
    before = json.loads(run_verb("stats", folder, "--json"))
    assert (before["items"], before["engine"]) == (40, "embedded")
    assert [row["items"] for row in json.loads(run_verb("versions", folder, "--json"))] == [40]
    assert "40 items, 40 with a label" in run_verb("stats", folder)
    (tmp_path / "more" / "cat").mkdir(parents=True)
    for n in range(40):
        (tmp_path / "more" / "cat" / f"{n}.png").write_bytes(png(255 - pictures[n]))
    (tmp_path / "more" / "cat" / "bad.png").write_bytes(b"no image")
    monkeypatch.chdir(tmp_path)  # paths that the other process would not find as they are
    done = json.loads(run_verb("add", "g", "more", "--labels-from-folders", "--meta", "shop=north", "--json", status=1))
    assert done["added"] == 40
    assert [one["id"] for one in done["refused"]] == ["cat/bad.png"]
    assert client.get("/v1/item?id=cat/7.png").json()["metadata"] == {"shop": "north"}
    (first, *_) = hits = json.loads(run_verb("search", "g", "more/cat/7.png", "--k", "3", "--json"))
    assert (first["id"], first["label"], len(hits)) == ("cat/7.png", "cat", 3)
    assert hits == [hit.as_json() for hit in gallery.search("more/cat/7.png", k=3)]
    found = json.loads(run_verb("search", "g", "--id", "cat/7.png", "--where", "shop=north", "--k", "50", "--json"))
    assert sorted(hit["id"] for hit in found) == sorted(f"cat/{n}.png" for n in range(40) if n != 7)
    among = ("search", "g", "more/cat/7.png", "--k", "3", "--indexed-by")
    assert json.loads(run_verb(*among, "1", "--json")) == hits
    with pytest.raises(HoldfastError, match="unknown version '2'; known: 1"):
        CliRunner().invoke(app, ["gallery", *among, "2"], catch_exceptions=False)
    assert json.loads(run_verb("delete", "g", "cat/7.png", "nowhere", "--json", status=1)) == {
        "deleted": ["cat/7.png"],
        "unknown": ["nowhere"],
    }
    assert client.get("/v1/item?id=cat/7.png").status_code == 404
    with pytest.raises(HoldfastError, match="no item 'nowhere'"):
        CliRunner().invoke(app, ["gallery", "search", "g", "--id", "nowhere"], catch_exceptions=False)


def test_a_command_that_fails_is_answered(served, monkeypatch):
    folder, client = served

    def broken(gallery, stop, tell):
        raise RuntimeError("a defect\nof two lines")

    monkeypatch.setitem(owner_tasks.TASKS, "stats", broken)
    with pytest.raises(HoldfastError, match=r"^internal error of the service; see its log$"):
        run_on_server(folder, "stats")
    assert client.get("/v1/health").status_code == 200


def test_many_ids_and_long_ones(served, gallery):
    folder, _ = served
    names = [f"{n:04d}" + "x" * 500 for n in range(600)]
    rows = np.random.default_rng(0).standard_normal((600, 32))
    gallery.add(Item(name, vector=row) for name, row in zip(names, rows, strict=True))
    assert len(json.loads(run_verb("delete", folder, *names, "--json"))["deleted"]) == 600


def test_vectors_of_a_file_go_through_the_service(served, gallery, tmp_path):
    folder, _ = served
    dim = gallery.newest().stored_dim
    rows = np.random.default_rng(5).standard_normal((70, dim)).astype(np.float32)
    rows[9, 1] = np.inf
    np.savez(tmp_path / "old.npz", features=rows, ids=np.arange(70), labels=np.full(70, "cup"), price=np.arange(70))
    done = json.loads(run_verb("add", folder, tmp_path / "old.npz", "--version", 1, "--json", status=1))
    assert (done["added"], done["replaced"], [one["id"] for one in done["refused"]]) == (69, 0, ["9"])
    (hit,) = gallery.search(vector=rows[66], k=1)
    assert (hit.id, hit.label, hit.metadata, hit.score) == ("66", "cup", {"price": 66}, pytest.approx(1))
    with pytest.raises(HoldfastError, match="unknown version '7'"):
        CliRunner().invoke(
            app,
            ["gallery", "add", str(folder), str(tmp_path / "old.npz"), "--version", "7"],
            catch_exceptions=False,
        )


def test_items_with_much_metadata_go_through_the_service(gallery, make_client, tmp_path):
    """A batch of them is larger than the body that other clients may send."""
    make_client(served=True, limits=Limits(body=2**16))
    dim, count = gallery.newest().stored_dim, 40
    rows = np.random.default_rng(5).standard_normal((count, dim)).astype(np.float32)
    texts = {f"text{n}": np.full(count, "x" * 4000) for n in range(4)}
    np.savez(tmp_path / "old.npz", features=rows, ids=np.arange(count), **texts)
    done = json.loads(run_verb("add", tmp_path / "g", tmp_path / "old.npz", "--version", 1, "--json"))
    assert (done["added"], done["refused"]) == (count, [])


def test_only_the_owner_can_run_tasks(gallery, make_client, models, tmp_path):
    """The token of the owner is in a file of the gallery's folder; no token of the service is enough."""
    token = "a-token-of-more-than-sixteen"
    access = AccessControl(read_tokens(None, {"HOLDFAST_WRITE_TOKEN": token}))
    client, folder = make_client(access, served=True), tmp_path / "g"
    assert (folder / "served.json").stat().st_mode & 0o777 == 0o600
    owner = {"Authorization": f"Bearer {ServerRecord.read(folder).token}"}
    assert not any("admin" in path for path in client.get("/v1/openapi.json").json()["paths"])
    for task in (*owner_tasks.TASKS, "stop"):
        for headers in ({}, {"Authorization": f"Bearer {token}"}, {"Authorization": "Bearer of-another-token"}):
            answer = client.post(f"/v1/admin/{task}", json={}, headers=headers)
            assert answer.status_code == 401, answer.text
            assert "only the user who serves" in answer.json()["error"]["reason"]
    assert client.get("/v1/gallery", headers=owner).status_code == 401  # it is for these tasks only
    assert client.post("/v1/admin/stop", json={}, headers=owner).status_code == 404

    def register(body):
        answer = client.post("/v1/admin/register", json=body, headers=owner)
        return answer.status_code, [json.loads(line) for line in answer.text.splitlines()]

    status, lines = register({"model": str(models[1]), "force": True})
    assert (status, lines[-1]["result"]["number"]) == (200, 2)
    assert all("progress" in line for line in lines[:-1])
    for body, expected in (([], 400), ({"model": "nowhere"}, 200), ({"nonsense": 1}, 200)):
        status, lines = register(body)
        assert status == expected
        assert lines[-1]["error"]
    assert gallery.newest().number == 2


def test_a_record_that_a_killed_server_left_is_passed_over(filled, tmp_path):
    folder = shutil.copytree(filled, tmp_path / "left")
    ServerRecord("http://127.0.0.1:9", "a-token").write(folder)
    assert json.loads(run_verb("stats", folder, "--json"))["items"] == 40


@pytest.mark.skipif(os.getuid() == 0, reason="root reads every file")
def test_another_user_is_told_why(served):
    folder, _ = served
    (folder / "served.json").chmod(0)
    with pytest.raises(HoldfastError, match="only the user who serves the gallery can use it"):
        run_on_server(folder, "stats")


def test_the_end_of_the_service_stops_a_backfill_and_answers_it(gallery, models, filled, tmp_path):
    folder, begun, found = tmp_path / "g", threading.Event(), {}

    def note_progress(figures):
        # The first report comes before anything is moved.
        if figures["progress"]["moved"]:
            begun.set()

    def backfill():
        found.update(run_on_server(folder, "backfill", rate=5, on_progress=note_progress))

    thread = threading.Thread(target=backfill)
    with serving(gallery, AccessControl({})):
        run_on_server(folder, "register", model=str(models[1]), force=True)
        thread.start()
        assert begun.wait(30)
    thread.join(30)
    assert 0 < found["progress"]["moved"] < 40
    assert not (folder / "served.json").exists()

"""What is PostgreSQL's own: its index, its limits, its restarts, and sharing a server."""

import os
import shutil
import signal
import sqlite3
import threading
import time

import numpy as np
import pytest
from test_gallery_kill import check_after_kill

from holdfast import Gallery
from holdfast.core.errors import HoldfastError, UnavailableError
from holdfast.gallery import Item, open_engine
from holdfast.gallery.engines import postgres_engine as postgres
from holdfast.gallery.engines.engine import EngineAddress, new_engine_address
from holdfast.gallery.filters import parse_filter


@pytest.fixture
def address(address_of):
    return address_of("postgresql")


def made_engine(address, tmp_path, **options):
    return open_engine(new_engine_address(address, **options), tmp_path)


def asked(engine, statement, *values):
    return engine._connections.read(lambda connection: connection.execute(statement, values).fetchall())


def index_scans(engine, index="v0001_hnsw"):
    asked(engine, "SELECT pg_stat_force_next_flush()")
    (row,) = asked(engine, f"SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = '{index}'")
    return row[0]


def test_index_recall_and_few_that_fit(address, tmp_path):
    """5,000 vectors in clusters: recall@10 of the index against exact search; what few items have is found too."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((200, 32), dtype=np.float32)
    some = centres[rng.integers(0, 200, 5_060)] + 0.6 * rng.standard_normal((5_060, 32), dtype=np.float32)
    some /= np.linalg.norm(some, axis=1, keepdims=True)
    engine = made_engine(address, tmp_path)
    engine.create("v0001", 32)
    fields = [{"rare": i % 1250 == 7, "n": i} for i in range(5_000)]
    engine.upsert("v0001", range(5_000), some[:5_000], fields)
    assert engine.unindexed("v0001") == 5_000
    assert engine.build_index("v0001")
    assert engine.unindexed("v0001") == 0
    shares = []
    for query in some[5_000:]:
        near = engine.search("v0001", query, 10)
        truth = engine.search("v0001", query, 10, exact=True)
        assert sorted(near, key=lambda one: -one.score) == near
        shares.append(len({one.key for one in near} & {one.key for one in truth}) / 10)
        both = {one.key: one.score for one in truth}
        assert all(one.score == pytest.approx(both.get(one.key, one.score), abs=1e-6) for one in near)  # float32
    assert np.mean(shares) >= 0.98
    assert index_scans(engine) == 60  # none of them for the exact answers
    where = parse_filter({"rare": True}, {"rare"})
    found = engine.search("v0001", some[5_000], 4, where)
    assert {one.key for one in found} == {7, 1257, 2507, 3757}
    assert index_scans(engine, "v0001_fields") == 1
    assert len(engine.search("v0001", some[5_000], 5, where)) == 4
    assert len(engine.search("v0001", some[5_000], 3_000)) == 3_000
    engine.drop("v0001")
    engine.close()


def test_a_walk_that_ends_before_enough_fit(address, tmp_path, monkeypatch):
    """The index may end its walk early; the items that fit the filter are found all the same."""
    monkeypatch.setitem(postgres._READ_SETTINGS, "hnsw.iterative_scan", "off")
    monkeypatch.setitem(
        postgres._READ_SETTINGS, "enable_sort", "off"
    )  # or the planner sorts all that fit, without the index
    some = np.random.default_rng(0).standard_normal((2_000, 8), dtype=np.float32)
    some /= np.linalg.norm(some, axis=1, keepdims=True)
    some = some[np.argsort(-some @ some[0])]  # by nearness to the query: what is rare is farthest
    engine = made_engine(address, tmp_path)
    engine.create("v0001", 8)
    engine.upsert("v0001", range(2_000), some, [{"rare": i >= 1_995} for i in range(2_000)])
    assert engine.build_index("v0001")
    where = parse_filter({"rare": True}, {"rare"})
    assert engine._search("v0001", some[0], 5, where, rescored=64, searched=20) == []
    assert index_scans(engine) == 1
    assert [one.key for one in engine.search("v0001", some[0], 5, where)] == [1995, 1996, 1997, 1998, 1999]
    engine.drop("v0001")
    engine.close()


def test_each_of_several_collections_is_searched_with_fewer_candidates(address, tmp_path):
    some = np.random.default_rng(0).standard_normal((3_000, 8), dtype=np.float32)
    engine = made_engine(address, tmp_path)
    engine.create("v0001", 8)
    engine.upsert("v0001", range(3_000), some, [{} for _ in some])
    assert engine.build_index("v0001")

    def searched(k, share):
        engine.search("v0001", some[0], k, share=share)
        return int(engine._connections.read(lambda reader: reader.execute("SHOW hnsw.ef_search").fetchone()[0]))

    # For all vectors 128; for a part fewer, down to a fifth, but not fewer than are compared again.
    assert [searched(10, share) for share in (1.0, 0.5, 0.2, 0.0, 1.0)] == [128, 64, 26, 26, 128]
    assert [searched(40, 0.2), searched(2_000, 1.0)] == [80, 1000]
    engine.drop("v0001")
    engine.close()


def test_sizes_that_pgvector_takes(address, tmp_path):
    """Vectors of more than 4,000 numbers get no index: all of them are compared."""
    engine = made_engine(address, tmp_path)
    for dim, indexed in ((4000, True), (16_000, False)):
        engine.create("v0001", dim)
        engine.upsert("v0001", [1], np.ones((1, dim), dtype=np.float32), [{}])
        assert engine.unindexed("v0001") == indexed
        assert engine.build_index("v0001") is indexed
        assert engine.search("v0001", np.ones(dim, dtype=np.float32), 1) == [(1, dim)]
        engine.drop("v0001")
    with pytest.raises(HoldfastError, match="vectors of 16001 numbers: pgvector takes at most 16,000"):
        engine.create("v0001", 16_001)
    engine.close()


def test_galleries_share_a_server(address, model_folders, tmp_path):
    galleries = [Gallery.create(tmp_path / name, model_folders[0], engine=address) for name in "ab"]
    for number, gallery in enumerate(galleries):
        gallery.add([Item(f"{number}", vector=np.ones(32))])
    assert [[hit.id for hit in one.search(vector=np.ones(32))] for one in galleries] == [["0"], ["1"]]
    namespace = galleries[0]._state.catalogue.setting("namespace")
    galleries[0].close()
    with pytest.raises(HoldfastError, match=f"the namespace {namespace} is in use"):
        Gallery.create(tmp_path / "c", model_folders[0], engine=address, namespace=namespace)
    galleries[1].close()
    for bad in ("Upper", 'quote"', "a.b", "", "1st", "x" * 41):
        with pytest.raises(HoldfastError, match="use at most 40 small letters"):
            Gallery.create(tmp_path / "c", model_folders[0], engine=address, namespace=bad)


def test_open_elsewhere(address, tmp_path, monkeypatch):
    monkeypatch.setattr(postgres, "LOCK_SECONDS", 0.2)
    engine = made_engine(address, tmp_path, namespace="only_one")
    with pytest.raises(HoldfastError, match="the gallery's vectors are open elsewhere"):
        made_engine(address, tmp_path, namespace="only_one")
    engine.close()
    made_engine(address, tmp_path, namespace="only_one").close()


OLDER = r"older than its vectors \(postgresql://.*, holdfast_\w+\), which another copy of this folder has changed since"


@pytest.fixture
def copied(address, model_folders, tmp_path):
    """A gallery of three items and an older copy of its folder, both closed."""
    vectors = np.eye(32)[:6]
    with Gallery.create(tmp_path / "g", model_folders[0], engine=address) as gallery:
        gallery.add([Item(f"{i}", vector=vectors[i]) for i in range(3)])
    return tmp_path / "g", shutil.copytree(tmp_path / "g", tmp_path / "copy"), vectors


def assert_holds(folder, ids, vectors):
    with Gallery.open(folder) as gallery:
        assert gallery.stats()["items"] == gallery.stats()["versions"][0]["vectors"] == len(ids)
        for name in ids:
            (hit,) = gallery.search(vector=vectors[int(name)], version=1, k=1)
            assert (hit.id, hit.score) == (name, pytest.approx(1))


@pytest.mark.parametrize("change", ["add", "delete", "add and delete", "register"])
def test_an_older_copy_of_the_folder_is_refused(copied, change, model_folders):
    folder, copy, vectors = copied
    ids = ["0", "1", "2"]
    with Gallery.open(folder) as gallery:
        if "add" in change:
            gallery.add([Item("3", vector=vectors[3])])
            ids.append("3")
        if "delete" in change:
            gallery.delete([ids.pop()])
        if change == "register":
            gallery.register(model_folders[1])
    for _ in range(2):
        with pytest.raises(HoldfastError, match=f"copy: {OLDER}; use that copy, or restore"):
            Gallery.open(copy)
    assert_holds(folder, ids, vectors)


def test_an_older_copy_that_is_all_that_is_left(copied):
    """As docs/engines/postgresql.md says."""
    folder, copy, vectors = copied
    with Gallery.open(folder) as gallery:
        gallery.add([Item("3", vector=vectors[3])])
        schema = gallery._state.catalogue.setting("namespace")
        engine = gallery._state.engine
        with sqlite3.connect(copy / "catalogue.sqlite") as catalogue:
            ((key,),) = catalogue.execute("SELECT value FROM settings WHERE name = 'next_key'").fetchall()
        for statement in (f"DELETE FROM {schema}.v0001 WHERE key >= {key}", f"DROP TABLE {schema}.generation"):
            engine._connections.write(lambda connection, statement=statement: connection.execute(statement))
    assert_holds(copy, ["0", "1", "2"], vectors)


def test_the_copy_that_wrote_goes_on(copied):
    """Opening a copy to look at it changes nothing."""
    folder, copy, vectors = copied
    for one in (folder, copy, copy, folder):
        assert_holds(one, ["0", "1", "2"], vectors)
    with Gallery.open(copy) as gallery:
        gallery.add([Item("4", vector=vectors[4])])
    with pytest.raises(HoldfastError, match=OLDER):
        Gallery.open(folder)
    assert_holds(copy, ["0", "1", "2", "4"], vectors)


def test_a_copy_made_while_the_gallery_is_written_to_is_refused(copied, tmp_path):
    """It has the same generation, but not the last keys."""
    folder, _, vectors = copied
    with Gallery.open(folder) as gallery:
        gallery.add([Item("3", vector=vectors[3])])
        hot = shutil.copytree(folder, tmp_path / "hot")
        gallery.add([Item("4", vector=vectors[4])])
    with pytest.raises(HoldfastError, match=f"hot: {OLDER}"):
        Gallery.open(hot)
    assert_holds(folder, ["0", "1", "2", "3", "4"], vectors)


def test_a_copy_that_wrote_while_the_connection_was_lost(copied, monkeypatch):
    monkeypatch.setattr(postgres, "RECONNECT_SECONDS", 0.2)
    folder, copy, vectors = copied
    with Gallery.open(folder) as gallery:
        engine = gallery._state.engine
        pid = engine._connections._writer.info.backend_pid
        asked(engine, "SELECT pg_terminate_backend(%s, 5000)", pid)
        with Gallery.open(copy) as other:
            other.add([Item("4", vector=vectors[4])])
        with pytest.raises(UnavailableError, match="another copy of the gallery's folder has written while the conn"):
            gallery.add([Item("3", vector=vectors[3])])
    assert_holds(copy, ["0", "1", "2", "4"], vectors)


def test_a_gallery_of_an_earlier_release_has_no_generation(copied):
    folder, copy, vectors = copied
    with Gallery.open(folder) as gallery:
        engine = gallery._state.engine
        engine._connections.write(lambda connection: connection.execute(f"DROP TABLE {engine._table('generation')}"))
        gallery._state.catalogue.put_settings({"generations": []})
        engine._next_generation = None  # nor does that release store one
        gallery.add([Item("3", vector=vectors[3])])
    with pytest.raises(HoldfastError, match=OLDER):
        Gallery.open(copy)
    assert_holds(folder, ["0", "1", "2", "3"], vectors)
    with Gallery.open(folder) as gallery:
        gallery.delete(["3"])
    assert_holds(folder, ["0", "1", "2"], vectors)


def test_a_schema_that_was_given_stays(address, tmp_path):
    given, own = (made_engine(address, tmp_path, namespace=name) for name in ("given_one", "own_one"))
    given._connections.write(lambda connection: connection.execute("CREATE SCHEMA given_one"))
    for engine in (given, own):
        engine.create("v0001", 3)
        engine.drop("v0001")
    there = {name for (name,) in asked(own, "SELECT nspname FROM pg_namespace WHERE nspname LIKE %s", "%_one")}
    assert "given_one" in there
    assert "own_one" not in there
    given._connections.write(lambda connection: connection.execute("DROP SCHEMA given_one"))
    given.close()
    own.close()


@pytest.mark.parametrize(
    "url",
    ["postgresql://me:secret@here/db", "postgres://here/db?user=me&password=secret", "https://me:secret@here:6333"],
)
def test_a_password_is_never_kept(url, model_folders, tmp_path):
    with pytest.raises(HoldfastError, match="would be kept in plain sight") as caught:
        Gallery.create(tmp_path / "g", model_folders[0], engine=url)
    assert "secret" not in str(caught.value)
    assert not (tmp_path / "g").exists()


def test_no_server_there_is_one_line(tmp_path):
    for url in (f"postgresql://me@/db?host={tmp_path}", "postgresql://here/db?nonsense=1"):
        with pytest.raises(HoldfastError) as caught:
            open_engine(EngineAddress(url, "x"), tmp_path)
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(url)


def test_a_restart_in_the_middle_of_ingest(postgres_server, model_folders, tmp_path):
    """The server is stopped at once, twice; writer and reader wait for it, and all that was acknowledged is there."""
    told, stop, wrong = [], threading.Event(), []
    with Gallery.create(tmp_path / "g", model_folders[0], engine=postgres_server.url) as gallery:
        gallery.add([Item("first", vector=np.ones(32))])

        def write():
            try:
                for turn in range(10**6):
                    if stop.is_set():
                        return
                    rows = np.random.default_rng(turn).standard_normal((50, 32))
                    gallery.add([Item(f"{turn}/{i}", vector=row) for i, row in enumerate(rows)])
                    told.append(turn)
            except Exception as error:
                wrong.append(error)

        def ask():
            try:
                while not stop.is_set():
                    assert gallery.search(vector=np.ones(32), k=1)[0].id == "first"
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=write), threading.Thread(target=ask)]
        for thread in threads:
            thread.start()
        for pause in (0.13, 0.21):
            time.sleep(pause)
            postgres_server.stop()
            postgres_server.start()
            before, deadline = len(told), time.monotonic() + 20
            while len(told) < before + 2 and not wrong and time.monotonic() < deadline:
                time.sleep(0.02)
        stop.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        found = {hit.id for hit in gallery.search(vector=np.ones(32), k=10_000)}
        assert found == {"first"} | {f"{turn}/{i}" for turn in told for i in range(50)}
        (row,) = gallery.stats()["versions"]
        assert row["items"] == row["vectors"] == len(found)


@pytest.mark.parametrize("kind", ["read", "write"])
def test_work_is_done_again_on_other_connections(postgres_server, kind):
    """If it loses two connections, not if it loses three or if the connection is fine."""
    connections = postgres.Connections(postgres_server.url, "tries", {})
    tries = []

    def work(connection, lost):
        tries.append(connection)
        if len(tries) <= lost:
            connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return connection.execute("SELECT 7").fetchone()[0]

    run = getattr(connections, kind)
    try:
        assert run(lambda connection: work(connection, 2)) == 7
        assert len(set(map(id, tries))) == len(tries) == 3
        tries.clear()
        with pytest.raises(UnavailableError, match="terminating connection"):
            run(lambda connection: work(connection, 3))
        assert len(tries) == 3
        tries.clear()
        with pytest.raises(UnavailableError, match="nowhere"):
            run(lambda connection: tries.append(1) or connection.execute("SELECT * FROM nowhere"))
        assert len(tries) == 1
    finally:
        connections.close()


def trials(few):
    """More of them with HOLDFAST_TRIALS."""
    return int(os.environ.get("HOLDFAST_TRIALS", few))


@pytest.mark.slow
def test_killed_ingest(address, model_folders, nursery, tmp_path):
    with Gallery.create(tmp_path / "g", model_folders[0], engine=address) as gallery:
        gallery.register(model_folders[1])
    check_after_kill(nursery, tmp_path / "g", trials(2))


@pytest.mark.slow
def test_stopped_server_and_killed_ingest(postgres_server, model_folders, nursery, tmp_path):
    """The server goes first, then the process that waits for it."""
    with Gallery.create(tmp_path / "g", model_folders[0], engine=postgres_server.url) as gallery:
        gallery.register(model_folders[1])

    def restart(process):
        postgres_server.stop()
        time.sleep(0.1)
        os.kill(process, signal.SIGKILL)
        postgres_server.start()

    check_after_kill(nursery, tmp_path / "g", trials(1), kill=restart)

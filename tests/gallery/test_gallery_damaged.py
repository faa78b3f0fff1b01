"""Gallery folders with stray, missing and damaged files: one clear line or no difference, and nothing is deleted."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from holdfast import Gallery
from holdfast.core.errors import HoldfastError, UnavailableError
from holdfast.gallery import Item
from holdfast.gallery.engines import embedded_engine as embedded
from holdfast.gallery.gallery_versions import read_basis

pytest.importorskip("qdrant_edge")

QUERY = np.arange(1.0, 33.0)


@pytest.fixture(scope="module")
def filled(model_folders, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged") / "g"
    with Gallery.create(folder, model_folders[0]) as made:
        prices = [*range(19), "a text"]
        made.add(Item(str(n), vector=np.eye(32)[n] + 0.1, metadata={"price": price}) for n, price in enumerate(prices))
    return folder


@pytest.fixture
def folder(filled, tmp_path):
    return shutil.copytree(filled, tmp_path / "g")


def files_of(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def test_names_that_do_not_match_exactly_are_ignored_and_never_deleted(folder):
    vectors, versions = folder / "vectors", folder / "versions"
    with Gallery.open(folder) as gallery:
        expected = gallery.search(vector=QUERY, k=20)
    stray = [
        shutil.copytree(vectors / "v0001.0001", vectors / name)
        for name in ("v0001.bak", "v0001.0001.bak", "v0001.00002", "v0001.2", "backup", "v0001.zzzz", "v0001")
    ]
    stray += [shutil.copytree(versions / "0001", versions / name) for name in ("0001.bak", "00002", "2", "old")]
    for place in (folder, vectors, versions):
        (place / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
        stray.append(place / ".DS_Store")
    (vectors / "v0001.0009").write_text("a file")
    (versions / "0009").write_text("a file")
    stray += [vectors / "v0001.0009", versions / "0009"]
    before = [(path, files_of(path)) for path in stray]
    for _ in range(2):
        with Gallery.open(folder) as gallery:
            assert gallery.search(vector=QUERY, k=20) == expected
            gallery.add([Item("new", vector=QUERY)])
            gallery.build_index()
            assert gallery.search(vector=QUERY, k=1)[0].id == "new"
            gallery.delete(["new"])
    assert [(path, files_of(path)) for path in stray if path.exists()] == before


def test_the_newest_generation_counts_also_beyond_9999(folder):
    vectors = folder / "vectors"
    shutil.copytree(vectors / "v0001.0001", vectors / "v0001.9999")
    (vectors / "v0001.0001").rename(vectors / "v0001.10000")
    with Gallery.open(folder) as gallery:
        assert len(gallery.search(vector=QUERY, k=20)) == 20
    assert sorted(path.name for path in vectors.iterdir()) == ["v0001.10000"]


def change(folder, statement):
    with sqlite3.connect(folder / "catalogue.sqlite") as connection:
        connection.execute(statement)
    connection.close()


def change_version(folder, text, other):
    with sqlite3.connect(folder / "catalogue.sqlite") as connection:
        before = connection.execute("SELECT record FROM versions").fetchone()
        assert text in before[0]
        connection.execute("UPDATE versions SET record = ?", (before[0].replace(text, other),))
    connection.close()


def cut_segments(folder):
    for path in (folder / "vectors" / "v0001.0001").rglob("*"):
        if path.is_file() and path.stat().st_size:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])


def fill_segments(folder):
    for path in (folder / "vectors" / "v0001.0001" / "segments").rglob("*"):
        if path.is_file():
            path.write_bytes(b"\xff" * path.stat().st_size)


DAMAGE = {
    "no vectors": lambda g: shutil.rmtree(g / "vectors"),
    "no collection": lambda g: shutil.rmtree(g / "vectors" / "v0001.0001"),
    "an empty collection": lambda g: (shutil.rmtree(g / "vectors/v0001.0001"), (g / "vectors/v0001.0001").mkdir()),
    "segments cut short": cut_segments,
    "segments overwritten": fill_segments,
    "no versions": lambda g: shutil.rmtree(g / "versions"),
    "no settings": lambda g: change(g, "DROP TABLE settings"),
    "no items": lambda g: change(g, "DROP TABLE items"),
    "no fields": lambda g: change(g, "DROP TABLE fields"),
    "an empty catalogue": lambda g: (g / "catalogue.sqlite").write_bytes(b""),
    "not a database": lambda g: (g / "catalogue.sqlite").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000),
    "broken settings": lambda g: change(g, "UPDATE settings SET value = '{' WHERE name = 'engine'"),
    "an engine that is a number": lambda g: change(g, "UPDATE settings SET value = '3' WHERE name = 'engine'"),
    "a broken version": lambda g: change(g, "UPDATE versions SET record = '{'"),
    "a version of other fields": lambda g: change(g, "UPDATE versions SET record = '{\"a\": 1}'"),
    "a version that is a list": lambda g: change(g, "UPDATE versions SET record = '[]'"),
    "a version with null for a list": lambda g: change_version(g, '"unreachable": []', '"unreachable": null'),
    "a version with a text for a number": lambda g: change_version(g, '"stored_dim": 32', '"stored_dim": "32"'),
    "a version whose bridge is a number": lambda g: change_version(g, '"bridges": []', '"bridges": [3]'),
    "a version whose bridge has no hashes": lambda g: change_version(g, '"bridges": []', '"bridges": [{"version": 0}]'),
    "no rows of versions": lambda g: change(g, "DELETE FROM versions"),
    "broken metadata": lambda g: change(g, "UPDATE items SET metadata = '{'"),
    "a broken last key": lambda g: (g / "vectors/v0001.0001/last_indexed_key.json").write_text('{"a": 1}'),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_one_line(folder, damage):
    damage(folder)
    for _ in range(2):  # the lock is given back
        with pytest.raises(HoldfastError) as caught, Gallery.open(folder) as gallery:
            gallery.search(vector=QUERY, k=5)
        assert "\n" not in str(caught.value)
        assert "open elsewhere" not in str(caught.value)


def test_segments_come_back_from_the_log(folder):
    """While the write-ahead log has all vectors, nothing is lost without the segments."""
    shutil.rmtree(folder / "vectors" / "v0001.0001" / "segments")
    with Gallery.open(folder) as gallery:
        assert len(gallery.search(vector=QUERY, k=30)) == 20


def test_payloads_that_are_damaged_are_found_by_a_filter(folder):
    """The store reads them only when a filter has no index, and its panic is not an Exception."""
    for path in (folder / "vectors").rglob("payload_storage/page_0.dat"):
        path.write_bytes(b"\xff" * path.stat().st_size)
    with pytest.raises(HoldfastError, match="vectors are damaged") as caught, Gallery.open(folder) as gallery:
        gallery.search(vector=QUERY, k=5, filter={"price": "a text"})
    assert "\n" not in str(caught.value)


def test_a_closed_gallery_is_not_called_damaged(folder):
    gallery = Gallery.open(folder)
    gallery.close()
    with pytest.raises(HoldfastError, match="g: the gallery is closed"):
        gallery.get(["a"])


@pytest.mark.parametrize(("stored", "when"), [(0, "of Holdfast 0.2 or earlier"), (9, "of a later Holdfast")])
def test_another_format_is_named(folder, stored, when):
    change(folder, f"PRAGMA user_version = {stored}")
    with pytest.raises(HoldfastError, match=f"gallery format {stored}, {when}, and this one reads format 3; create"):
        Gallery.open(folder)


def test_a_catalogue_that_cannot_be_read_now_is_not_called_damaged(folder, monkeypatch):
    with Gallery.open(folder) as gallery:
        catalogue = gallery._state.catalogue
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        with pytest.raises(UnavailableError, match="disk I/O error; try again"), catalogue.locked():
            raise error


def test_a_page_of_the_catalogue_that_is_damaged_is_found_by_a_later_call(folder):
    path = folder / "catalogue.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'items'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    content[(page - 1) * size : page * size] = b"\xff" * size
    path.write_bytes(content)
    with pytest.raises(HoldfastError, match="damaged") as caught, Gallery.open(folder) as gallery:
        gallery.delete(["1"])
    assert "\n" not in str(caught.value)


def test_a_basis_of_another_type_or_in_a_broken_link_is_refused(folder):
    version = folder / "versions" / "0001"
    np.save(version / "basis.npy", np.ones((59, 32), bool))
    with pytest.raises(HoldfastError, match=r"basis\.npy: not a basis, but bool"):
        read_basis(version)
    (version / "basis.npy").unlink()
    (version / "basis.npy").symlink_to("basis.npy")
    with pytest.raises(HoldfastError, match=r"basis\.npy"):
        read_basis(version)


def test_a_missing_basis_is_named_when_it_is_needed(folder):
    (folder / "versions" / "0001" / "basis.npy").unlink()
    picture = np.zeros((16, 16), np.uint8)
    with Gallery.open(folder) as gallery, pytest.raises(HoldfastError, match=r"basis\.npy: missing, or not for"):
        gallery.search(picture)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"])
def test_only_regular_files_are_in_a_collection(folder, make):
    path = folder / "vectors" / "v0001.0001" / "wal" / "open-1"
    path.unlink()
    make(path)
    with pytest.raises(HoldfastError, match="wal/open-1: not a regular file"):
        Gallery.open(folder)


@pytest.fixture
def tries(monkeypatch):
    """The collections that another process loads first, by name."""
    found, try_loading = [], embedded._try_loading
    monkeypatch.setattr(embedded, "_try_loading", lambda at, size: found.append(at.name) or try_loading(at, size))
    return found


def id_tracker(folder):
    """The file of keys of the segment that has the vectors: records of 13 bytes, which end with a row's number."""
    return max(folder.glob("vectors/*/segments/*/mutable_id_tracker.mappings"), key=lambda path: path.stat().st_size)


def claim_many_rows(folder):
    path = id_tracker(folder)
    path.write_bytes(path.read_bytes()[:9] + b"\xff" * 4 + path.read_bytes()[13:])


RECORDS = {
    "closed": lambda folder: None,
    "of an earlier version": lambda folder: folder.joinpath("vectors/v0001.0001/checksums.json").unlink(),
}


@pytest.mark.parametrize("before", RECORDS.values(), ids=RECORDS)
def test_an_id_tracker_that_aborts_the_process_is_one_line(folder, before):
    """The store would allocate memory for 4 billion rows."""
    before(folder)
    claim_many_rows(folder)
    crash = (
        r"vectors/v0001.0001: vectors are damaged \(the store crashes when it loads them, Aborted: memory allocation"
    )
    for _ in range(2):
        with pytest.raises(HoldfastError, match=crash) as caught:
            Gallery.open(folder)
        assert str(caught.value).endswith("; restore the folder from a backup")


def test_an_id_tracker_that_fills_the_disk_is_one_line(folder):
    """The store would write 2 GiB of versions, for as many rows as the damaged number says."""
    with Gallery.open(folder) as gallery:
        gallery.build_index()
    (path,) = folder.glob("vectors/*/segments/*/id_tracker.mappings")
    content = path.read_bytes()  # the number of keys (8 bytes), then records of 13 bytes
    path.write_bytes(content[:17] + (2**28).to_bytes(4, "little") + content[21:])
    with pytest.raises(HoldfastError, match="vectors are damaged"):
        Gallery.open(folder)
    assert max(file.stat().st_size for file in folder.rglob("*")) < 2**30


def test_a_process_that_is_killed_while_it_tries_a_collection_does_not_mean_damage(folder, monkeypatch, tmp_path):
    (folder / "vectors" / "v0001.0001" / "checksums.json").unlink()
    program = tmp_path / "killed"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr("sys.executable", str(program))
        with pytest.raises(UnavailableError, match=r"was interrupted \(Killed\)"):
            Gallery.open(folder)
    Gallery.open(folder).close()


def test_a_closed_gallery_is_loaded_by_this_process_alone(folder, tries):
    for _ in range(2):
        with Gallery.open(folder) as gallery:
            gallery.add([Item("new", vector=QUERY)])
            gallery.build_index()
            gallery.delete(["new"])
    assert tries == []


@pytest.mark.parametrize(
    "content", [None, b"", b"[]", b'{"segments": {}}', b"{" * 100], ids=["missing", "empty", "list", "other", "torn"]
)
def test_a_gallery_without_a_record_of_checksums_is_tried_once(folder, tries, content):
    record = folder / "vectors" / "v0001.0001" / "checksums.json"
    record.unlink()
    if content is not None:
        record.write_bytes(content)
    for _ in range(2):
        with Gallery.open(folder) as gallery:
            assert len(gallery.search(vector=QUERY, k=30)) == 20
    assert tries == ["v0001.0001"]


def test_an_old_record_of_checksums_refuses_nothing(folder, tries):
    """As after a kill: the files are newer than the record."""
    record = folder / "vectors" / "v0001.0001" / "checksums.json"
    old = record.read_bytes()
    with Gallery.open(folder) as gallery:
        gallery.add([Item("new", vector=QUERY)])
    assert record.read_bytes() != old
    record.write_bytes(old)
    with Gallery.open(folder) as gallery:
        assert gallery.search(vector=QUERY, k=1)[0].id == "new"
    assert tries == ["v0001.0001"]


def test_a_process_that_cannot_try_a_collection_refuses_nothing(folder, tries, monkeypatch):
    for program in ("/bin/false", "/nothing-here"):
        (folder / "vectors" / "v0001.0001" / "checksums.json").unlink()
        monkeypatch.setattr("sys.executable", program)
        with Gallery.open(folder) as gallery:
            assert len(gallery.search(vector=QUERY, k=30)) == 20
    assert tries == ["v0001.0001"] * 2


def test_a_collection_that_a_killed_process_still_tries_is_waited_for(folder):
    """The kernel ends the other process a moment after its parent, and the lock of the log with it."""
    script = (
        "import qdrant_edge, sys, time; s = qdrant_edge.EdgeShard.load(sys.argv[1]); print(flush=True); time.sleep(1)"
    )
    words = [sys.executable, "-c", script, str(folder / "vectors" / "v0001.0001")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with Gallery.open(folder) as gallery:
            assert len(gallery.search(vector=QUERY, k=30)) == 20


@pytest.mark.parametrize("tried_by", ["this process", "another process"])
def test_without_its_lock_file_an_open_gallery_is_not_called_damaged(folder, tried_by):
    script = "import sys; from holdfast import Gallery; Gallery.open(sys.argv[1])"
    with Gallery.open(folder) as gallery:
        (folder / "lock").unlink()
        if tried_by == "another process":
            (folder / "vectors" / "v0001.0001" / "checksums.json").unlink()
        words = [sys.executable, "-c", script, str(folder)]
        other = subprocess.run(words, capture_output=True, text=True, check=False)
        assert f"{folder}: the gallery is open elsewhere; close it there first" in other.stderr
        gallery.add([Item("new", vector=QUERY)])
    with Gallery.open(folder) as gallery:
        assert gallery.stats()["items"] == 21


def test_keys_that_are_too_large_and_vectors_that_are_missing_are_one_line(folder):
    path = id_tracker(folder)
    content = path.read_bytes()
    path.write_bytes(content[:1] + b"\xff" * 8 + content[9:])
    with pytest.raises(HoldfastError, match=r"damaged \(a key is not a number of 63 bits\)"):
        Gallery.open(folder)
    path.write_bytes(content)
    flags = next(folder.glob("vectors/*/segments/*/vector_storage/deleted/flags_a.dat"))
    flags.write_bytes(b"\xff" * flags.stat().st_size)
    with Gallery.open(folder) as gallery, pytest.raises(HoldfastError, match=r"damaged \(a key has no vector\)"):
        gallery._state.engine.fetch("v0001", range(30))

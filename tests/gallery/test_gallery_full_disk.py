"""A full disk ends in one line: the embedded store would be ended by a signal, because it writes mapped memory."""

import shutil
import sqlite3
from collections import namedtuple

import numpy as np
import pytest

from holdfast.core.errors import UnavailableError
from holdfast.gallery import catalogue
from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.engines import embedded_engine as embedded

pytest.importorskip("qdrant_edge")
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def disk(monkeypatch):
    """Says how much room the disk has from now on."""
    return lambda free: monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(10**12, 0, free))


@pytest.fixture
def engine(tmp_path):
    from holdfast.gallery.engines.embedded_engine import EdgeEngine

    (tmp_path / "vectors").mkdir()
    made = EdgeEngine(tmp_path / "vectors")
    made.create("v0001", 4)
    made.upsert("v0001", [1], np.eye(1, 4, dtype=np.float32), [{}])
    yield made
    made.close()


def test_nothing_is_written_without_room(engine, disk):
    disk(2**20)
    for change in (
        lambda: engine.upsert("v0001", [2], np.eye(1, 4, dtype=np.float32), [{}]),
        lambda: engine.create("v0002", 4),
    ):
        with pytest.raises(UnavailableError, match=r"the disk is full: 1.0 MiB are free.* needs 36; free some space"):
            change()
    assert engine.count("v0001") == 1
    assert engine.collections() == ["v0001"]


def test_loading_needs_room_for_the_log_only_where_it_has_none(tmp_path, disk):
    disk(8 * 2**20)
    with pytest.raises(UnavailableError, match="the disk is full"):
        embedded.check_disk_space_to_load(tmp_path)
    (tmp_path / "wal").mkdir()
    (tmp_path / "wal" / "open-1").write_bytes(b"\1" * 32 * 2**20)
    embedded.check_disk_space_to_load(tmp_path)


def test_a_catalogue_that_cannot_be_opened_is_not_called_broken(tmp_path, monkeypatch):
    Catalogue(tmp_path / "catalogue.sqlite", new=True).close()

    def failing(*words, **options):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(catalogue.sqlite3, "connect", failing)
    with pytest.raises(UnavailableError, match=r"cannot be opened \(disk I/O error\); is the disk full"):
        Catalogue(tmp_path / "catalogue.sqlite")

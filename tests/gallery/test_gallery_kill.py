"""Killed at random moments of ingest, everything acknowledged is there once, and nothing is half-written."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from holdfast import Gallery
from holdfast.gallery import Item

pytest.importorskip("qdrant_edge")

KILLS = int(os.environ.get("HOLDFAST_KILLS", "8"))

INGEST = """
gallery_state.INDEX_FROM = 400  # so that kills fall into index builds too
rng = np.random.default_rng(seed)
with Gallery.open(folder) as gallery:
    note("open")
    turn = 0
    while True:
        ids = [str(i) for i in rng.choice(3000, 100, replace=False)]
        version = 1 + turn % 2
        vectors = rng.standard_normal((100, 32))
        mark = {"turn": seed * 10**6 + turn}
        gallery.add([Item(i, vector=v, metadata=mark) for i, v in zip(ids, vectors)], version=version)
        note("added", seed * 10**6 + turn, version, *ids)
        if turn % 3 == 2:
            note("deleting", *ids[:20])
            gallery.delete(ids[:20])
            note("deleted", *ids[:20])
        turn += 1
"""


def follow(lines: list[str], known: dict, doubtful: set) -> None:
    """What a killed process had acknowledged; ``doubtful``: what it may or may not have deleted."""
    doubtful.clear()
    for line in lines:
        word, *rest = line.split()
        if word == "added":
            known.update(dict.fromkeys(rest[2:], (int(rest[0]), int(rest[1]))))
        for name in rest if word == "deleted" else ():
            known.pop(name, None)
    if lines and lines[-1].startswith("deleting"):
        doubtful.update(lines[-1].split()[1:])


@pytest.mark.parametrize("trials", [2, pytest.param(KILLS, marks=pytest.mark.slow)])
def test_killed_ingest(model_folders, nursery, tmp_path, trials):
    folder = tmp_path / "g"
    with Gallery.create(folder, model_folders[0]) as gallery:
        gallery.register(model_folders[1])
    check_after_kill(nursery, folder, trials)


def check_after_kill(nursery, folder: Path, trials: int, **how: Callable[[int], None]) -> None:
    """Kill a process that writes to a gallery of two versions, again and again; each time all is as it must be."""
    moments, known, doubtful = random.Random(0), {}, set()
    for trial in range(trials):
        lines = nursery.run_and_kill(INGEST, moments, 8, folder=str(folder), seed=trial, **how)
        follow(lines, known, doubtful)
        with Gallery.open(folder) as gallery:
            there = gallery.get([str(i) for i in range(3000)])
            # The batch under way when the process died may be there as a whole, unacknowledged.
            late = {name for name, item in there.items() if item["metadata"]["turn"] > last_turn(known, trial)}
            assert len(late) in (0, 100)
            for name, (turn, version) in known.items():
                if name in doubtful and name not in there:
                    continue
                if name not in late:
                    assert (there[name]["metadata"]["turn"], there[name]["version"]) == (turn, version), name
            assert set(there) - set(known) <= late | doubtful
            found = [hit.id for hit in gallery.search(vector=np.ones(32), k=5000, exact=True)]
            assert sorted(found) == sorted(there)
            rows = gallery.stats()["versions"]
            assert [row["vectors"] for row in rows] == [row["items"] for row in rows]
            assert gallery._state.catalogue.unsettled() == {}
            known = {name: (item["metadata"]["turn"], item["version"]) for name, item in there.items()}
    assert len(known) >= 80


def last_turn(known: dict, trial: int) -> int:
    """The last acknowledged turn of this trial."""
    return max([turn for turn, _ in known.values() if turn >= trial * 10**6], default=trial * 10**6 - 1)


OPEN = """
note("open")
(Path(folder) / "vectors" / "v0001.0001" / "checksums.json").unlink(missing_ok=True)
with Gallery.open(folder) as gallery:
    gallery.add([Item("new", vector=np.ones(32))])
while True:
    pass
"""


def test_killed_while_another_process_tries_the_vectors(model_folders, nursery, tmp_path):
    """A gallery without a record of checksums, as an earlier version wrote it, is opened and the process killed."""
    folder, moments = tmp_path / "g", random.Random(0)
    with Gallery.create(folder, model_folders[0]) as gallery:
        gallery.add(Item(str(n), vector=row) for n, row in enumerate(np.eye(32) + 0.1))
    for trial in range(8):
        nursery.run_and_kill(OPEN, moments, 1, folder=str(folder), seed=trial)
        with Gallery.open(folder) as gallery:
            assert len(gallery.search(vector=np.ones(32), k=50)) in (32, 33)


def test_what_belongs_to_nobody_is_swept(model_folders, tmp_path):
    """A kill between the engine's write and the catalogue's, and one in the middle of a registration."""
    folder = tmp_path / "g"
    with Gallery.create(folder, model_folders[0]) as gallery:
        gallery.add([Item("kept", vector=np.ones(32))])
        keys = gallery._state.catalogue.reserve(2, 1)
        gallery._state.engine.upsert("v0001", keys, np.eye(32, dtype=np.float32)[:2], [{}, {}])
        gallery._state.engine.create("v0002", 32)
        (folder / "versions" / "0002").mkdir()
        assert gallery._state.engine.count("v0001") == 3
        assert [hit.id for hit in gallery.search(vector=np.eye(32)[0], k=1)] == ["kept"]
    with Gallery.open(folder) as gallery:
        assert gallery._state.engine.collections() == ["v0001"]
        assert gallery._state.engine.count("v0001") == 1
        assert not (folder / "versions" / "0002").exists()
        assert gallery.register(model_folders[1]).number == 2

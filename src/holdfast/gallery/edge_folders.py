"""Where the embedded engine keeps a collection, and how its index is built while searches go on.

qdrant-edge builds an index in one call that lets no other Python thread run, minutes long for a large collection. So a
copy is indexed by a process of its own, and then takes the collection's place: ``v0001.0003`` is the third generation
of ``v0001``, the last one counts, and it appears by a rename. Nothing is written to a collection meanwhile.
"""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import HoldfastError, UnavailableError
from holdfast.gallery.folder import bytes_below
from holdfast.storage import TEMPORARY, read_json, replacing_folder, sweep_temporaries, write_json

_LAST_KEY = "last_indexed_key.json"
# It ends when we do (prctl 1 is PR_SET_PDEATHSIG, where there is such a thing), and lets searches go first.
_BUILD = """
import ctypes, json, os, sys
path, places = sys.argv[1], json.loads(sys.argv[2])
try:
    ctypes.CDLL(None).prctl(1, 9)
    os.nice(10)
except (AttributeError, OSError):
    pass
sys.path[:] = places
import qdrant_edge
shard = qdrant_edge.EdgeShard.load(path)
shard.optimize()
shard.flush()
shard.close()
"""


_LOG, _SPARE = 32 * 2**20, 4 * 2**20
"""A part of the write-ahead log, taken whole when it begins, and what else changes when a collection is loaded."""


def refuse_no_room_to_load(collection: Path) -> None:
    """Loading makes room for the log, unless the log has it already."""
    _refuse_full_disk(collection, _SPARE + max(0, _LOG - bytes_below(collection / "wal")))


def refuse_no_room_to_write(folder: Path, size: int) -> None:
    """So many bytes of vectors go into the log and the store, and may begin a part of the log."""
    _refuse_full_disk(folder, _SPARE + _LOG + 4 * size)


def _refuse_full_disk(folder: Path, needed: int) -> None:
    """qdrant-edge writes through mapped memory: on a full disk the process is ended by SIGBUS, without a word."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UnavailableError(
            f"{folder}: the disk is full: {free / 2**20:.1f} MiB are left, and the embedded store needs "
            f"{needed / 2**20:.0f} to work in; make room, nothing stored is lost"
        )


class EdgeFolders:
    """The folders of all collections below one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        sweep_temporaries(folder)
        self._current: dict[str, Path] = {}
        for path in sorted(folder.iterdir()):
            self._current[path.name.rpartition(".")[0]] = path
        self.sweep()

    def current(self) -> dict[str, Path]:
        return dict(self._current)

    @contextlib.contextmanager
    def next_generation(self, collection: str) -> Iterator[Path]:
        """An empty folder that, on a clean exit, becomes the collection's newest generation in one step."""
        before = self._current.get(collection)
        number = 1 if before is None else int(before.name.rpartition(".")[2]) + 1
        path = self._folder / f"{collection}.{number:04d}"
        with replacing_folder(path) as temporary:
            yield temporary
        self._current[collection] = path

    def last_indexed_key(self, collection: str) -> int:
        """The largest key when the collection was indexed, 0 before it is: keys only ever grow."""
        file = self._current[collection] / _LAST_KEY
        return int(read_json(file)) if file.exists() else 0

    def index_into(self, collection: str, copy: Path, *, last_key: int) -> None:
        """Copy the collection's files and let another process index all vectors of the copy."""
        shutil.copytree(self._current[collection], copy, dirs_exist_ok=True)
        words = [sys.executable, "-c", _BUILD, str(copy), json.dumps(sys.path)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            raise HoldfastError(f"{self._folder}: the index of {collection} could not be built ({last})")
        write_json(copy / _LAST_KEY, last_key)

    def remove(self, collection: str) -> None:
        # By rename first: a folder that is half removed must not be found again.
        aside = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=self._folder))
        self._current.pop(collection).replace(aside / "old")
        shutil.rmtree(aside, ignore_errors=True)

    def sweep(self) -> None:
        """Remove older generations; whoever still searches one keeps what it has mapped."""
        kept = set(self._current.values())
        for path in self._folder.iterdir():
            if path not in kept and not path.name.startswith(TEMPORARY):
                with contextlib.suppress(OSError):
                    shutil.rmtree(path)

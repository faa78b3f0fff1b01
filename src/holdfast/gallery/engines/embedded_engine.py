"""The embedded engine: qdrant-edge, in this process, one folder per collection.

No other Python thread runs during a call of qdrant-edge, so calls that take long are made by another process
(``embedded_process``). It indexes a copy, and the copy then replaces the collection. ``v0001.0003`` is the third
generation of ``v0001``; a new generation appears by a rename, and the last one counts. Nothing is written to a
collection meanwhile.

The id tracker of a segment says in which row the vector of each key is. A damaged one can make qdrant-edge abort the
process that loads it. The checksums of all id trackers are recorded when a collection is closed. A collection with
other checksums, or without a record, is first loaded by another process: after a kill, after damage, and if an earlier
version wrote it. The record itself never leads to a refusal, so it may be old, torn or missing.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError, UnavailableError, first_line, how_to_install
from holdfast.core.storage import TEMPORARY, read_json, remove_temporaries, replacing_folder, write_json
from holdfast.core.untrusted_files import open_regular, whole_number
from holdfast.core.wording import printable
from holdfast.gallery.engines import embedded_process
from holdfast.gallery.engines.engine import EngineHit, index_candidates, with_ties
from holdfast.gallery.filters import Condition, Filter, Value, fields_from_stored, matches, stored_field
from holdfast.gallery.folder import bytes_below, open_elsewhere

EF_SEARCH = 128
"""Candidates when searching."""
RESCORED_PER_HIT, FEWEST_RESCORED = 3, 30
"""A large collection is searched by 4-bit copies of its vectors (``index_collection``). For ``k`` hits three times as
many are compared again in float32, and at least 30; fewer in each of several collections (``index_candidates``)."""
QUICK_CONDITIONS, QUICK_NUMBERS = 8, 64
"""Conditions, and numbers in all of them, that one call of qdrant-edge compares: 0.1 s with 40,000 points."""
READ_AT_ONCE = 200
"""Points whose fields are read in one call, which takes 2 ms."""
SYNC_TRIES = 100
FLUSH_FROM = 5000
"""Points that only the log has on disk are read from it when a collection is loaded. More are flushed."""


class EdgeEngine:
    """Vectors in float32, compared by inner product. A write is on disk, in the write-ahead log, when its call returns.

    Fields of the first write are indexed then, later ones by ``build_index``. Until then searches read them.
    """

    parallel = False  # no other Python thread runs during a call

    def __init__(self, folder: Path) -> None:
        try:
            import qdrant_edge
        except ImportError:
            raise HoldfastError(f"the embedded gallery needs qdrant-edge: {how_to_install('gallery')}") from None
        self._edge: Any = qdrant_edge
        # Where few neighbours match a filter, their neighbours are looked at, too; else the search ends early.
        self._filtered = qdrant_edge.AcornSearchParams(enable=True, max_selectivity=0.4)
        self._folder = folder
        self._folders = CollectionFolders(folder)
        self._shards: dict[str, Any] = {}
        self._unflushed: dict[str, int] = {}  # points that were changed since the last flush
        # Keys that no index holds; the store's own count includes deleted ones.
        self._unindexed: dict[str, set[int]] = {}
        self._field_types: dict[str, dict[str, type]] = {}  # fields that have an index
        self._writing = threading.RLock()
        for collection in self._folders.current():
            self._load(collection)

    def create(self, collection: str, dim: int) -> None:
        check_disk_space_to_write(self._folder, 0)
        with self._folders.next_generation(collection) as made:
            if self._shards:  # other threads may search
                _run_process("create", made, str(dim))
            else:
                embedded_process.create_collection(self._edge, str(made), dim)
        self._load(collection)

    def collections(self) -> list[str]:
        return sorted(self._shards)

    def upsert(
        self, collection: str, keys: Sequence[int], vectors: np.ndarray, fields: Sequence[Mapping[str, Value]]
    ) -> None:
        check_disk_space_to_write(self._folder, vectors.nbytes)
        point = self._edge.Point
        points = [
            point(key, vector, dict(stored_field(*field) for field in row.items()))
            for key, vector, row in zip(keys, vectors.tolist(), fields, strict=True)
        ]
        with self._writing:
            if self.count(collection) == 0:  # takes some 0.1 s a field, in which no other thread runs
                fields_of_all = embedded_process.field_types(point.payload for point in points)
                embedded_process.index_fields(self._edge, self._shards[collection], fields_of_all)
                self._field_types[collection] = embedded_process.indexed_fields(self._edge, self._shards[collection])
            self._update(collection, self._edge.UpdateOperation.upsert_points(points), len(points))
            self._unindexed[collection].update(keys)

    def delete(self, collection: str, keys: Sequence[int]) -> None:
        with self._writing:
            self._update(collection, self._edge.UpdateOperation.delete_points(list(keys)), len(keys))
            self._unindexed[collection].difference_update(keys)

    def search(
        self,
        collection: str,
        query: np.ndarray,
        k: int,
        where: Filter | None = None,
        *,
        exact: bool = False,
        share: float = 1.0,
    ) -> list[EngineHit]:
        edge = self._edge
        if where is not None and not self._is_quick(collection, where):
            return self._search_by_reading(collection, query, k, where)
        every = exact or not self._has_index(collection)
        if every:
            params = self._exact()
        else:
            rescored = index_candidates(max(RESCORED_PER_HIT * k, FEWEST_RESCORED), k, share)
            params = edge.SearchParams(
                hnsw_ef=index_candidates(EF_SEARCH, k, share),
                acorn=None if where is None else self._filtered,
                quantization=edge.QuantizationSearchParams(rescore=True, oversampling=rescored / k),
            )

        def best(count: int) -> list[Any]:
            request = edge.SearchRequest(
                query=edge.Query.Nearest(query.tolist()),
                limit=count,
                filter=None if where is None else self._filter(where),
                params=params,
                with_payload=False,
                with_vector=False,
            )
            points: list[Any] = self._shards[collection].search(request)
            return points

        points = with_ties(best, k, lambda point: float(point.score)) if every else best(k)
        return self._best(k, self._found(collection, points))

    def _search_by_reading(self, collection: str, query: np.ndarray, k: int, where: Filter) -> list[EngineHit]:
        """Compare all vectors whose fields match, block by block: qdrant-edge would stop all threads until it is done.

        It reads a point's fields again for every value of a condition that no index answers.
        """
        edge, shard = self._edge, self._shards[collection]
        best: list[EngineHit] = []
        fields = [name for one in where for name in (one.field, stored_field(one.field, True)[0])]
        start: int | None = 0
        while start is not None:
            request = edge.ScrollRequest(offset=start, limit=READ_AT_ONCE, with_payload=fields, with_vector=False)
            records, start = shard.scroll(request)
            keys = {one.id for one in records if matches(where, fields_from_stored(one.payload or {}))}
            if keys:
                request = edge.SearchRequest(
                    query=edge.Query.Nearest(query.tolist()),
                    limit=len(keys),
                    filter=edge.Filter(must=[edge.HasIdCondition(keys)]),
                    params=self._exact(),
                    with_payload=False,
                    with_vector=False,
                )
                best = self._best(k, best + self._found(collection, shard.search(request)))
        return best

    def _exact(self) -> Any:
        return self._edge.SearchParams(exact=True, quantization=self._edge.QuantizationSearchParams(ignore=True))

    def _found(self, collection: str, points: Sequence[Any]) -> list[EngineHit]:
        return [EngineHit(key, point.score) for key, point in zip(self._keys(collection, points), points, strict=True)]

    @staticmethod
    def _best(k: int, found: list[EngineHit]) -> list[EngineHit]:
        return sorted(found, key=lambda one: (-one.score, one.key))[:k]

    def fetch(self, collection: str, keys: Sequence[int]) -> dict[int, np.ndarray]:
        records = self._shards[collection].retrieve(list(keys), with_payload=False, with_vector=True)
        return dict(zip(self._keys(collection, records), self._vectors(collection, records), strict=True))

    def scan(self, collection: str, *, block: int = 1000, after: int = -1) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        start: int | None = after + 1
        while True:
            request = self._edge.ScrollRequest(offset=start, limit=block, with_payload=False, with_vector=True)
            records, start = self._shards[collection].scroll(request)
            if records:
                keys = np.array(self._keys(collection, records), dtype=np.int64)
                yield keys, np.array(self._vectors(collection, records))
            if start is None:
                return

    def count(self, collection: str) -> int:
        # An exact count lists all keys, and no other thread runs meanwhile. This one adds up
        # the segments' own counts: a key that is written again or moved is removed from the segment that held it.
        return int(self._shards[collection].count(self._edge.CountRequest(exact=False)))

    def drop(self, collection: str) -> None:
        with self._writing:
            self._unflushed.pop(collection, None)
            self._field_types.pop(collection, None)
            self._shards.pop(collection).close()
            self._folders.remove(collection)

    def build_index(self, collection: str) -> bool:
        if self.unindexed(collection) == 0:
            return False
        with self._writing:
            self._folders.sweep()
            self._flush(collection)
            with self._folders.next_generation(collection) as copy:
                self._folders.index_into(collection, copy, last_key=max(self._unindexed[collection]))
            # Running searches keep the old generation; it is closed when the last of them ends.
            self._load(collection)
        return True

    def unindexed(self, collection: str) -> int:
        return len(self._unindexed[collection])

    def claim(self, generation: str) -> str | None:
        return None  # a copy of the gallery's folder has vectors of its own

    def close(self) -> None:
        for collection in list(self._unflushed):
            self._flush(collection)
        while self._shards:
            collection, shard = self._shards.popitem()
            shard.close()
            _record_checksums(self._folders.current()[collection])
        self._folders.sweep()

    def _load(self, collection: str) -> None:
        folder = self._folders.current()[collection]
        size = _check_files(folder)
        check_disk_space_to_load(folder)
        with _explain_damage(folder):
            checksums = _checksums(folder)
        if checksums != _recorded_checksums(folder):
            _try_loading(folder, size)
        newer: list[int] = []
        start: int | None = self._folders.last_indexed_key(collection) + 1
        with _explain_damage(folder):
            shard = _Shard(embedded_process.load_collection(self._edge, str(folder)), folder)
        while start is not None:
            request = self._edge.ScrollRequest(offset=start, limit=10_000, with_payload=False, with_vector=False)
            records, start = shard.scroll(request)
            newer += self._keys(collection, records)
        self._unindexed[collection] = set(newer)
        self._field_types[collection] = embedded_process.indexed_fields(self._edge, shard)
        self._shards[collection] = shard

    def _keys(self, collection: str, points: Sequence[Any]) -> list[int]:
        found = [point.id for point in points]
        if not all(isinstance(key, int) and key < 2**63 for key in found):
            raise _damaged(self._folders.current()[collection], "a key is not a number of 63 bits")
        return found

    def _vectors(self, collection: str, records: Sequence[Any]) -> list[np.ndarray]:
        found = [record.vector for record in records]
        if not all(isinstance(vector, list) for vector in found):
            raise _damaged(self._folders.current()[collection], "a key has no vector")
        return [np.asarray(vector, dtype=np.float32) for vector in found]

    def _has_index(self, collection: str) -> bool:
        """Whether a graph holds any vector. Without one every search compares all vectors."""
        return len(self._unindexed[collection]) < self.count(collection)

    def _is_quick(self, collection: str, where: Filter) -> bool:
        """Whether an index can answer every condition, and all in little time. A text is looked up, not compared."""
        known, numbers = self._field_types[collection], 0
        for condition in where:
            wanted = [stored_field(condition.field, value) for value in condition.among] or [(condition.field, 0.0)]
            if any(known.get(name) is not (str if isinstance(value, str) else float) for name, value in wanted):
                return False
            numbers += sum(not isinstance(value, str) for _, value in wanted)
        return len(where) <= QUICK_CONDITIONS and numbers <= QUICK_NUMBERS

    def _update(self, collection: str, operation: Any, points: int) -> None:
        shard = self._shards[collection]
        shard.update(operation)
        # What ``update`` has logged survives a killed process; after this it also survives a power failure. The other
        # files are flushed now and then only: no other thread runs during ``flush``, which takes up to 0.1 s.
        _sync_log(self._folders.current()[collection])
        self._unflushed[collection] = self._unflushed.get(collection, 0) + points
        if self._unflushed[collection] >= FLUSH_FROM:
            self._flush(collection)

    def _flush(self, collection: str) -> None:
        self._shards[collection].flush()
        self._unflushed.pop(collection, None)

    def _filter(self, where: Filter) -> Any:
        return self._edge.Filter(must=[self._condition(condition) for condition in where])

    def _condition(self, condition: Condition) -> Any:
        edge = self._edge
        if not condition.among:
            return edge.FieldCondition(condition.field, range=edge.RangeFloat(**dict(condition.bounds)))
        texts: dict[str, list[str]] = {}
        accepted = []
        for name, kept in (stored_field(condition.field, value) for value in condition.among):
            if isinstance(kept, str):
                texts.setdefault(name, []).append(kept)
            else:  # by range, so that a whole number equals the same float
                accepted.append(edge.FieldCondition(name, range=edge.RangeFloat(gte=float(kept), lte=float(kept))))
        # All texts in one condition: for each of 256 conditions the points were read again.
        accepted += [edge.FieldCondition(name, match=edge.MatchAny(values)) for name, values in texts.items()]
        return edge.Filter(should=accepted)


_LAST_KEY, _CHECKSUMS = "last_indexed_key.json", "checksums.json"


def _sync_log(collection: Path) -> None:
    """Write a collection's log to disk. Other threads run meanwhile.

    A thread of qdrant-edge prepares the next file of the log under another name. If it renames that file now, the log
    is listed again.
    """
    log = collection / "wal"
    for _ in range(SYNC_TRIES):
        try:
            for path in (*log.iterdir(), log):
                handle = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
        except FileNotFoundError:
            continue
        return
    raise UnavailableError(f"{log}: files of the log vanish while they are written; is another process using them?")


@contextlib.contextmanager
def _explain_damage(folder: Path) -> Iterator[None]:
    """Report a collection that qdrant-edge cannot read in one line."""
    try:
        yield
    except BaseException as error:
        # A panic of Rust is not an Exception, and its class cannot be imported.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise _damaged(folder, first_line(error)) from error


def _damaged(folder: Path, reason: str) -> HoldfastError:
    if embedded_process.LOCKED in reason:  # the gallery's lock file was removed while another process held it
        return open_elsewhere(folder.parent.parent)
    return HoldfastError(f"{folder}: vectors are damaged ({reason[:200]}); restore the folder from a backup")


def _check_files(collection: Path) -> int:
    """Refuse links, pipes and devices, which qdrant-edge would follow or wait for. The sum of the files' sizes."""
    total = 0
    for path in collection.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # removed by a process that is about to end (``load_collection``)
            found = path.lstat()
            total += found.st_size
            if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
                raise HoldfastError(f"{printable(path)}: not a regular file; restore the folder from a backup")
    return total


class _Shard:
    """A loaded collection. Some damage is found only by a later call; that is one line, too."""

    def __init__(self, shard: Any, folder: Path) -> None:
        self._shard, self._folder = shard, folder

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._shard, name)

        def call(*arguments: Any, **options: Any) -> Any:
            with _explain_damage(self._folder):
                return method(*arguments, **options)

        return call


def _process(task: str, folder: Path, *numbers: str) -> subprocess.CompletedProcess[str]:
    """Have another process do a task of ``embedded_process`` in a folder."""
    script, parent = embedded_process.__file__, str(os.getpid())
    words = [sys.executable, script, json.dumps(sys.path), parent, task, str(folder), *numbers]
    return subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)


def _run_process(task: str, folder: Path, *numbers: str) -> None:
    """As ``_process``; an error if the process fails."""
    done = _process(task, folder, *numbers)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise HoldfastError(f"{folder.parent}: the embedded store could not {task} a collection ({last})")


def _try_loading(collection: Path, size: int) -> None:
    """Refuse a collection that another process cannot load, or not within limits.

    With a damaged number qdrant-edge allocates any amount, and writes files of any size. Intact collections took up to
    nine times the bytes of their segments on disk (20 text fields of each item, without an index), the mapped files and
    0.2 GiB. The limit of memory is at least twice as much. What the log adds to a file is smaller than the log.

    size: the sum of the files' sizes. Most are mapped.
    """
    memory = 3 * 2**29 + 2**26 * (os.cpu_count() or 1) + 2 * size + 32 * bytes_below(collection / "segments")
    try:
        done = _process("load", collection, str(memory), str(2**28 + 2 * size))
    except OSError:
        return  # the process could not be started, which says nothing about the files
    if done.returncode == embedded_process.NOT_LOADED:
        raise _damaged(collection, done.stdout)
    if done.returncode < 0:
        how = signal.strsignal(-done.returncode)
        if -done.returncode in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM):
            raise UnavailableError(
                f"{collection}: loading the vectors was interrupted ({how}); is there enough memory?"
            )
        said = ": ".join([str(how), *done.stderr.strip().splitlines()[:1]])
        raise _damaged(collection, f"the store crashes when it loads them, {said}")


def _checksums(collection: Path) -> dict[str, int]:
    """The CRC-32 of each file of an id tracker, by its name below the collection's folder."""
    found = {}
    for path in sorted(collection.glob("segments/*/*id_tracker.*")):
        checksum = 0
        with open_regular(path) as file:
            while block := file.read(2**20):
                checksum = zlib.crc32(block, checksum)
        found[path.relative_to(collection).as_posix()] = checksum
    return found


def _recorded_checksums(collection: Path) -> Any:
    """What the record says; None if it is missing or damaged."""
    try:
        return read_json(collection / _CHECKSUMS)
    except (HoldfastError, OSError):
        return None


def _record_checksums(collection: Path) -> None:
    """Record the checksums of a closed collection, if that is possible."""
    with contextlib.suppress(HoldfastError, OSError):
        checksums = _checksums(collection)
        if checksums != _recorded_checksums(collection):
            (collection / _CHECKSUMS).write_text(json.dumps(checksums), encoding="utf-8")


_LOG, _SPARE = 32 * 2**20, 4 * 2**20
"""Bytes: of a segment of the write-ahead log, allocated at once, and of other changes when a collection is loaded."""


def check_disk_space_to_load(collection: Path) -> None:
    """Refuse to load a collection if the disk has no space for its log."""
    _check_disk_space(collection, _SPARE + max(0, _LOG - bytes_below(collection / "wal")))


def check_disk_space_to_write(folder: Path, size: int) -> None:
    """Refuse to write ``size`` bytes of vectors if the disk has no space for them in the log and in the store."""
    _check_disk_space(folder, _SPARE + _LOG + 4 * size)


def _check_disk_space(folder: Path, needed: int) -> None:
    """qdrant-edge writes through mapped memory: on a full disk SIGBUS ends the process without a message."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UnavailableError(
            f"{folder}: the disk is full: {free / 2**20:.1f} MiB are free, and the embedded store needs "
            f"{needed / 2**20:.0f}; free some space, nothing stored is lost"
        )


_FOLDER_NAME = re.compile(r"([A-Za-z0-9_]+)\.([0-9]{4,9})", re.ASCII)


def _generation_number(path: Path) -> int:
    """The number of a collection's generation, from 1; 0 for a path that is not a folder with exactly such a name."""
    name = _FOLDER_NAME.fullmatch(path.name)
    if name is None or path.is_symlink() or not path.is_dir() or path.name != f"{name[1]}.{int(name[2]):04d}":
        return 0
    return int(name[2])


def _collection_name(path: Path) -> str:
    return path.name.rpartition(".")[0]


class CollectionFolders:
    """The folders of all collections below one folder. Files and folders with other names are ignored."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        remove_temporaries(folder)
        self._current: dict[str, Path] = {}
        for path in sorted(folder.iterdir(), key=_generation_number):
            if _generation_number(path):
                self._current[_collection_name(path)] = path
        self.sweep()

    def current(self) -> dict[str, Path]:
        return dict(self._current)

    @contextlib.contextmanager
    def next_generation(self, collection: str) -> Iterator[Path]:
        """An empty folder that becomes the collection's newest generation, in one step, if the block does not raise."""
        before = self._current.get(collection)
        number = 1 if before is None else _generation_number(before) + 1
        path = self._folder / f"{collection}.{number:04d}"
        with replacing_folder(path) as temporary:
            yield temporary
            _record_checksums(temporary)
        self._current[collection] = path

    def last_indexed_key(self, collection: str) -> int:
        """The largest key when the collection was indexed, 0 if it was not. New keys are always larger."""
        file = self._current[collection] / _LAST_KEY
        return whole_number(read_json(file), f"{file}: the last key", 0, 2**62) if file.exists() else 0

    def index_into(self, collection: str, copy: Path, *, last_key: int) -> None:
        """Copy the collection's files, and index all vectors of the copy in another process."""
        shutil.copytree(self._current[collection], copy, dirs_exist_ok=True)
        _run_process("index", copy)
        write_json(copy / _LAST_KEY, last_key)

    def remove(self, collection: str) -> None:
        # Renamed first: a partly removed folder must not be found when the gallery is opened again.
        aside = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=self._folder))
        self._current.pop(collection).replace(aside / "old")
        shutil.rmtree(aside, ignore_errors=True)

    def sweep(self) -> None:
        """Remove older generations; searches that still run keep their mapped files.

        A folder of an unknown collection stays: another thread is creating it. Other names, such as those of backup
        copies, are not touched.
        """
        for path in self._folder.iterdir():
            if not _generation_number(path):
                continue
            current = self._current.get(_collection_name(path))
            if current is not None and _generation_number(path) < _generation_number(current):
                with contextlib.suppress(OSError):
                    shutil.rmtree(path)

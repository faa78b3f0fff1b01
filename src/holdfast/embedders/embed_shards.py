"""Embed many items into a folder of shards: on one or several devices or on Ray, and resumable by shard."""

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.core.file_lock import locked
from holdfast.core.locations import (
    Location,
    absolute,
    file_size,
    is_address,
    join,
    list_files,
    local_path,
    pyarrow_for,
    write_bytes,
)
from holdfast.core.problems import SKIP_ADVICE, Problem, problems_error, problems_text
from holdfast.core.storage import remove_temporaries
from holdfast.embedders.batches import EmbeddedItems
from holdfast.embedders.image_encoder import ImageEncoder, batch_size_on, expand_devices
from holdfast.embedders.on_ray import ray_cluster
from holdfast.embedders.processes import Embedded, ShardWork, embed_here, embed_in_processes
from holdfast.embedders.source_items import Files, Items
from holdfast.embedders.sources import ItemSource, open_source
from holdfast.vectors.feature_set import WRITTEN_TYPES
from holdfast.vectors.feature_shards import (
    MANIFEST,
    Manifest,
    Shard,
    missing_shards,
    read_manifest,
    shard_summary,
    write_manifest,
    write_shard,
)

SHARD_SIZE = 10_000
UNREADABLE = "unreadable.csv"
_LOCK = ".lock"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class EmbeddedShards:
    """What ``embed_shards`` returns.

    folder: where the shards are.
    manifest: what they hold.
    vectors: vectors of all shards.
    written: shards that this call wrote; the others were there.
    skipped: what could not be embedded.
    """

    folder: str
    manifest: Manifest
    vectors: int
    written: int
    skipped: list[Problem]


def embed_shards(
    model: str | Path,
    source: Location | Sequence[Location],
    out: Location,
    *,
    shard_size: int | None = None,
    dtype: str = "float32",
    labels: bool = True,
    skip_unreadable: bool = False,
    device: str | Sequence[str] = "cpu",
    processes: int = 1,
    ray: str | None = None,
    batch_size: int | None = None,
    progress: Progress = lambda done, total: None,
) -> EmbeddedShards:
    """Embed items into a folder of parquet shards of ids and unit vectors, of any number.

    The same call after an interruption continues with the shards that are missing. A shard with items that cannot be
    read is not written, unless they may be skipped; all other shards are written first, then one error names them.

    model: the folder of a saved encoder.
    source: as in ``embed``.
    out: the folder, a path or an address in an object store (s3://bucket/folder).
    shard_size: items of a shard; default 10,000, or what the folder has.
    dtype: "float32" or "float16".
    labels: keep labels; see ``embed``.
    skip_unreadable: leave out items that cannot be read or embedded; ``unreadable.csv`` in the folder lists them.
    device: where the model runs: a name, or several, with a process for each. ``cuda`` is all GPUs that torch sees.
    processes: processes on the CPU.
    ray: embed on a Ray cluster: ``auto`` (the one on this machine, else one is started) or its address. ``device`` and
        ``processes`` are not used then: actors use the cluster's GPUs, or its CPUs if it has none.
    batch_size: items of one forward pass; default by device and size of an image.
    progress: called with the number of items done, those of earlier calls included, and the number of all.

    >>> import numpy as np
    >>> from holdfast import Encoder, VectorInput, build_backbone, embed_shards
    >>> np.savez("vectors.npz", features=np.eye(4), ids=["a", "b", "c", "d"])
    >>> Encoder(build_backbone("identity", in_channels=4), preprocess=VectorInput(4)).save_pretrained("model")
    >>> found = embed_shards("model", "vectors.npz", "shards", shard_size=3)
    >>> found.vectors, found.written
    (4, 2)
    """
    _check_options(out, dtype, shard_size=shard_size, batch_size=batch_size, processes=processes)
    devices = ["cpu"] if ray is not None else expand_devices(device, processes)
    encoder = ImageEncoder.load(model, devices[0] if len(devices) == 1 else "cpu")
    given = [source] if isinstance(source, str | Path) else list(source)
    items = open_source(encoder.input, [absolute(one) for one in given])
    if items.problems and not (skip_unreadable and len(items)):
        total = len(items) + len(items.problems)
        raise problems_error(items.name, list(items.problems), total, advice=SKIP_ADVICE, noun=items.noun)
    with _locked(out):
        manifest = _manifest(out, items, encoder, dtype=dtype, labels=labels, shard_size=shard_size)
        missing = missing_shards(out, manifest)
        todo = [(number, items.items.part(*_ends(manifest, number))) for number in missing]
        done = len(items) - sum(len(part) for _, part in todo)

        def on_items(more: int) -> None:
            nonlocal done
            done += more
            progress(done, len(items))

        writer = _Writer(out, manifest, items, skip=skip_unreadable)
        with contextlib.closing(_embedded(encoder, Path(model), todo, devices, ray, batch_size, on_items)) as found:
            for number, embedded in found:
                writer.write(number, embedded)
        return writer.finish(len(missing))


def _ends(manifest: Manifest, number: int) -> tuple[int, int]:
    rows = manifest.rows(number)
    return rows.start, rows.stop


def _check_options(out: Location, dtype: str, **numbers: int | None) -> None:
    if dtype not in WRITTEN_TYPES:
        raise unknown_name("type of features", dtype, WRITTEN_TYPES)
    for name, value in numbers.items():
        if value is not None and value < 1:
            raise HoldfastError(f"{name} must be at least 1, got {value}")
    if not is_address(out) and local_path(out).exists() and not local_path(out).is_dir():
        raise HoldfastError(f"{out}: a file; shards are written to a folder")
    pyarrow_for(str(out))


@contextlib.contextmanager
def _locked(out: Location) -> Iterator[None]:
    """Keep other processes out of a local folder, and remove what a killed one left."""
    if is_address(out):
        yield
        return
    folder = local_path(out)
    if folder.is_dir() and not (folder / MANIFEST).exists() and set(list_files(folder)) - {_LOCK}:
        raise HoldfastError(f"{out}: already there, and not a folder of shards; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / _LOCK, busy=HoldfastError(f"{out}: another process writes to this folder")):
        remove_temporaries(folder)
        yield


def _manifest(
    out: Location,
    items: ItemSource,
    encoder: ImageEncoder,
    *,
    dtype: str,
    labels: bool,
    shard_size: int | None,
) -> Manifest:
    """The manifest of the folder: a new one, or the old one if it is for the same model, source and options."""
    known = read_manifest(out) if file_size(join(out, MANIFEST)) is not None else None
    if shard_size is None:
        shard_size = SHARD_SIZE if known is None else known.shard_size
    with_labels = labels and items.labels is not None
    digest = items.digest(labels=with_labels)
    wanted = Manifest(encoder.name, encoder.dim, dtype, len(items), shard_size, with_labels, digest, [items.name])
    if known is None:
        write_manifest(out, wanted)
        return wanted
    mine, other = asdict(wanted), asdict(known)
    for field, what in _DIFFERENCES.items():
        if mine[field] != other[field]:
            values = f" ({str(other[field])[:12]}, now {str(mine[field])[:12]})" if what[1] else ""
            raise HoldfastError(f"{out}: holds shards {what[0]}{values}; choose another folder, or delete this one")
    return known


_DIFFERENCES = {
    "model": ("of another model", True),
    "dim": ("of vectors of another size", True),
    "dtype": ("of another type", True),
    "shard_size": ("of another size", True),
    "source": ("of another source or with other labels, or the source has changed", False),
}


def _embedded(
    encoder: ImageEncoder,
    model: Path,
    todo: Sequence[tuple[int, Items]],
    devices: Sequence[str],
    ray: str | None,
    batch_size: int | None,
    on_items: Callable[[int], None],
) -> Generator[Embedded, None, None]:
    """The shards ``todo``, embedded in any order; the other parameters are those of ``embed_shards``."""
    if not todo:
        return
    if ray is None:
        work = ShardWork(model, todo, batch_size or batch_size_on(devices[0], encoder.input))
        used = devices[: len(todo)]
        if len(used) == 1:
            yield from embed_here(encoder, work, on_items)
        else:
            yield from embed_in_processes(work, used, on_items)
        return
    with ray_cluster(ray) as cluster:
        size = batch_size or batch_size_on(cluster.device, encoder.input)
        yield from cluster.embed(ShardWork(model, todo, size), encoder.input, on_items)


class _Writer:
    """Writes shards as their features arrive, and reports at the end."""

    def __init__(self, out: Location, manifest: Manifest, source: ItemSource, *, skip: bool) -> None:
        self._out, self._manifest, self._source, self._skip = out, manifest, source, skip
        self._held_back: list[Problem] = []
        self._written = 0

    def write(self, number: int, found: EmbeddedItems) -> None:
        """Write a shard. With items that cannot be read, and must not be skipped, it is not written."""
        source, rows = self._source, self._manifest.rows(number)
        problems = [source.items.problem(rows.start + row, found.reasons[row]) for row in sorted(found.reasons)]
        if problems and not self._skip:
            self._held_back += problems
            return
        kept = [row for row in range(len(found.vectors)) if row not in found.reasons]
        places = [rows.start + row for row in kept]
        local = isinstance(source.items, Files) and not is_address(source.items.place(rows.start))
        shard = Shard(
            [str(source.ids[place]) for place in places],
            found.vectors[kept],
            [str(source.labels[place]) for place in places] if self._manifest.labels and source.labels else None,
            [source.items.place(place) for place in places] if local else None,
            problems,
        )
        write_shard(self._out, number, shard, self._manifest)
        self._written += 1

    def finish(self, missing: int) -> EmbeddedShards:
        """Write the list of unreadable items; refused if shards were held back because of them.

        missing: shards that were missing at the start.
        """
        if self._held_back:
            listed = self._list(self._held_back)
            kept = f"; {missing - self._written} of {self._manifest.shards} shards are not written"
            raise problems_error(
                self._source.name,
                self._held_back,
                len(self._source),
                listed=listed,
                advice=f"{SKIP_ADVICE}{kept}",
                noun=self._source.noun,
            )
        vectors, skipped = 0, list(self._source.problems)
        for number in range(self._manifest.shards):
            count, problems = shard_summary(self._out, number)
            vectors += count
            skipped += problems
        if skipped:
            self._list(skipped)
        else:
            self._clear_list()
        if not vectors:
            raise problems_error(self._source.name, skipped, len(self._source), noun=self._source.noun)
        return EmbeddedShards(str(self._out), self._manifest, vectors, self._written, skipped)

    def _clear_list(self) -> None:
        """Remove the list that a run left before the files were repaired."""
        if is_address(self._out):
            if file_size(join(self._out, UNREADABLE)) is not None:
                self._list([])
        else:
            (local_path(self._out) / UNREADABLE).unlink(missing_ok=True)

    def _list(self, problems: Sequence[Problem]) -> str:
        file = join(self._out, UNREADABLE)
        write_bytes(file, problems_text(problems).encode())
        return file

"""A folder of features in shards: parquet files of ids and unit vectors, and a manifest that says what they are.

``manifest.json`` is written first. A shard holds consecutive items of the source, so its name and its items follow
from the manifest alone. ``feature_files`` reads the whole folder, or one shard as a file of its own. If the images are
local files, shards have a column ``paths``. Unreadable items are in a shard's metadata. The folder may be in an object
store.
"""

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.locations import (
    Location,
    file_size,
    is_address,
    join,
    list_files,
    local_path,
    open_input,
    parquet_errors,
    pyarrow_for,
    read_bytes,
    write_bytes,
)
from holdfast.core.problems import Problem
from holdfast.core.untrusted_files import parse_json
from holdfast.core.wording import counted, printable
from holdfast.vectors.feature_set import MODEL_NAME, WRITTEN_TYPES

MANIFEST = "manifest.json"
_KIND = "holdfast feature shards"
_UNREADABLE = b"unreadable"
MOST_SHARDS, MOST_MANIFEST = 10**7, 2**20


@dataclass(frozen=True)
class Manifest:
    """What a folder of shards holds.

    model: hash of the model's weights; None for a model without weights.
    dim: numbers of a vector.
    dtype: "float32" or "float16".
    items: items of the source, unreadable ones included.
    shard_size: items of a shard; the last one may have fewer.
    labels: whether items have labels.
    source: digest of the source's ids, labels and places.
    sources: what was given as the source, for messages.
    """

    model: str | None
    dim: int
    dtype: str
    items: int
    shard_size: int
    labels: bool
    source: str
    sources: list[str]

    @property
    def shards(self) -> int:
        """The number of shards."""
        return -(-self.items // self.shard_size)

    def rows(self, number: int) -> slice:
        """The items of a shard, as rows of the source."""
        return slice(number * self.shard_size, min((number + 1) * self.shard_size, self.items))


@dataclass(frozen=True)
class Shard:
    """The items of one shard.

    ids: N texts.
    vectors: N x dim, of length 1.
    labels: N texts, or None.
    paths: N absolute paths of images, or None.
    unreadable: the items that were left out.
    """

    ids: Sequence[str]
    vectors: np.ndarray
    labels: Sequence[str] | None = None
    paths: Sequence[str] | None = None
    unreadable: Sequence[Problem] = ()


def shard_name(number: int) -> str:
    return f"shard-{number:06d}.parquet"


def is_shard_folder(location: Location) -> bool:
    """Whether the location is a folder with a manifest of shards."""
    if not is_address(location) and not local_path(location).is_dir():
        return False
    return file_size(join(location, MANIFEST)) is not None


def write_manifest(folder: Location, manifest: Manifest) -> None:
    record = {"kind": _KIND, **asdict(manifest), "shards": manifest.shards}
    write_bytes(join(folder, MANIFEST), (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())


def read_manifest(folder: Location) -> Manifest:
    """The manifest of a folder; refused if there is none or it is damaged."""
    file = join(folder, MANIFEST)
    if file_size(file) is None:
        raise HoldfastError(f"{folder}: not a folder of shards (no {MANIFEST}); holdfast embed --out FOLDER writes one")
    record = parse_json(read_bytes(file, MOST_MANIFEST), file)
    if not isinstance(record, dict) or record.get("kind") != _KIND:
        raise HoldfastError(f"{file}: not a manifest of shards")
    try:
        found = Manifest(**{one.name: record[one.name] for one in fields(Manifest)})
        whole = (found.dim, found.items, found.shard_size)
        valid = all(type(number) is int and number > 0 for number in whole) and found.dtype in WRITTEN_TYPES
        valid = valid and isinstance(found.model, str | None) and found.shards <= MOST_SHARDS
    except (KeyError, TypeError):
        valid = False
    if not valid:
        raise HoldfastError(f"{file}: damaged; delete the folder and write it again")
    return found


def missing_shards(folder: Location, manifest: Manifest) -> list[int]:
    """Numbers of the shards that are not written yet."""
    known = set(list_files(folder))
    return [number for number in range(manifest.shards) if shard_name(number) not in known]


def write_shard(folder: Location, number: int, shard: Shard, manifest: Manifest) -> None:
    """Write one shard. It appears whole or not at all, and replaces an earlier one."""
    pyarrow = pyarrow_for(folder)
    values = pyarrow.array(np.ascontiguousarray(shard.vectors, dtype=manifest.dtype).reshape(-1))
    columns = {"ids": pyarrow.array(shard.ids, pyarrow.string())}
    columns["features"] = pyarrow.FixedSizeListArray.from_arrays(values, manifest.dim)
    for name, texts in (("labels", shard.labels), ("paths", shard.paths)):
        if texts is not None:
            columns[name] = pyarrow.array(texts, pyarrow.string())
    listed = [(printable(one.path), one.reason, one.origin) for one in shard.unreadable]
    metadata = {_UNREADABLE: json.dumps(listed)}
    if manifest.model is not None:
        metadata[MODEL_NAME.encode()] = manifest.model
    table = pyarrow.table(columns).replace_schema_metadata(metadata)
    data = io.BytesIO()
    pyarrow.parquet.write_table(table, data, write_page_checksum=True)
    write_bytes(join(folder, shard_name(number)), data.getvalue())


def read_shard(folder: Location, number: int, manifest: Manifest) -> Shard:
    """One shard, with float32 vectors; refused if it is damaged or not of this manifest."""
    with _opened(folder, number) as (file, name):
        _check_columns(file, name, manifest)
        table = file.read()
        lists = table.column("features").combine_chunks()
        values = np.asarray(lists.flatten().to_numpy(zero_copy_only=False), dtype=np.float32)
        if lists.null_count or len(values) != len(table) * manifest.dim:
            raise HoldfastError(f"{name}: 'features' must hold {manifest.dim} numbers a row")
        texts = {key: table.column(key).to_pylist() for key in ("ids", "labels", "paths") if key in table.column_names}
        if any(None in column for column in texts.values()):
            raise HoldfastError(f"{name}: an item without an id, a label or a path")
        vectors = values.reshape(len(table), manifest.dim)
        return Shard(texts["ids"], vectors, texts.get("labels"), texts.get("paths"), _unreadable(file))


def read_shard_ids(folder: Location, number: int, manifest: Manifest) -> list[str]:
    """The ids of one shard."""
    with _opened(folder, number) as (file, name):
        _check_columns(file, name, manifest)
        found: list[str] = file.read(columns=["ids"]).column(0).to_pylist()
        return found


def shard_summary(folder: Location, number: int) -> tuple[int, list[Problem]]:
    """The number of vectors of a shard, and the items that were left out; no vector is read."""
    with _opened(folder, number) as (file, _):
        return file.metadata.num_rows, _unreadable(file)


class FeatureShards:
    """A complete folder of shards; refused if shards are missing.

    folder: a path or an address.

    >>> import numpy as np
    >>> from holdfast import Encoder, VectorInput, build_backbone, embed_shards
    >>> from holdfast.vectors.feature_shards import FeatureShards
    >>> np.savez("vectors.npz", features=np.eye(4), ids=["a", "b", "c", "d"])
    >>> Encoder(build_backbone("identity", in_channels=4), preprocess=VectorInput(4)).save_pretrained("model")
    >>> _ = embed_shards("model", "vectors.npz", "shards", shard_size=3)
    >>> list(FeatureShards("shards").ids())
    ['a', 'b', 'c', 'd']
    """

    def __init__(self, folder: Location) -> None:
        self.folder, self.manifest = folder, read_manifest(folder)
        missing = missing_shards(folder, self.manifest)
        if missing:
            total = counted(self.manifest.shards, "shard")
            raise HoldfastError(
                f"{folder}: {len(missing)} of {total} missing; run the same holdfast embed command again to finish it"
            )

    def ids(self) -> Iterator[str]:
        for number in range(self.manifest.shards):
            yield from read_shard_ids(self.folder, number, self.manifest)

    def __iter__(self) -> Iterator[Shard]:
        return (read_shard(self.folder, number, self.manifest) for number in range(self.manifest.shards))

    def count(self) -> int:
        """The number of vectors; all files are looked at."""
        return sum(shard_summary(self.folder, number)[0] for number in range(self.manifest.shards))


@contextmanager
def _opened(folder: Location, number: int) -> Iterator[tuple[Any, str]]:
    """An open shard and its name; pyarrow's errors in the block become one line."""
    pyarrow, name = pyarrow_for(folder), join(folder, shard_name(number))
    with parquet_errors(name, "; delete it and embed it again"), open_input(name) as stream:
        yield pyarrow.parquet.ParquetFile(stream, page_checksum_verification=True), name


def _check_columns(file: Any, name: str, manifest: Manifest) -> None:
    import pyarrow

    schema = file.schema_arrow
    wanted = {"ids", "features", *(["labels"] if manifest.labels else [])}
    if not wanted <= set(schema.names) or len(set(schema.names)) < len(schema.names):
        raise HoldfastError(f"{name}: has the columns {', '.join(schema.names)}; wanted {', '.join(sorted(wanted))}")
    kind = schema.field("features").type
    sized = pyarrow.types.is_fixed_size_list(kind) and kind.list_size == manifest.dim
    if not sized or not pyarrow.types.is_floating(kind.value_type):
        raise HoldfastError(f"{name}: 'features' must hold {manifest.dim} numbers a row, not {kind}")
    for column in ("ids", "labels", "paths"):
        if column in schema.names and not pyarrow.types.is_string(schema.field(column).type):
            raise HoldfastError(f"{name}: '{column}' must hold text")
    model = (schema.metadata or {}).get(MODEL_NAME.encode())
    if (None if model is None else model.decode(errors="replace")) != manifest.model:
        raise HoldfastError(f"{name}: made by another model than {MANIFEST} says; embed the folder again")


def _unreadable(file: Any) -> list[Problem]:
    text = (file.schema_arrow.metadata or {}).get(_UNREADABLE, b"[]")
    found = parse_json(text, "metadata of a shard")
    return [Problem(Path(str(path)), str(reason), str(origin)) for path, reason, origin in found]

"""What is embedded: folders, image files, tables of paths or bytes, and files of vectors, with ids and labels."""

import hashlib
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.locations import (
    Location,
    file_size,
    is_address,
    join,
    list_files,
    local_path,
    open_input,
    parent,
    parquet_errors,
    pyarrow_for,
    read_bytes,
    suffix,
)
from holdfast.core.problems import Problem
from holdfast.core.wording import first_few
from holdfast.embedders.image_folder import has_image_suffix, images_with_ids
from holdfast.embedders.image_table import classes_of_paths, read_image_table
from holdfast.embedders.model_inputs import ModelInput
from holdfast.embedders.source_items import Files, Items, TableBytes, Vectors
from holdfast.vectors.feature_files import FEATURE_SUFFIXES, read_features

_MOST_CSV = 2**32
_IMAGE_COLUMNS = ("path", "bytes")


@dataclass(frozen=True)
class ItemSource:
    """Items to embed.

    name: what was given, for messages.
    ids: N different texts (or numbers, for vectors without ids).
    labels: N classes, or None.
    items: the inputs.
    noun: what an item is called in messages.
    problems: what cannot be used and has no id.
    """

    name: str
    ids: Sequence[Any]
    labels: Sequence[Any] | None
    items: Items
    noun: str = "file"
    problems: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def digest(self, *, labels: bool) -> str:
        """A hash of ids, labels and places. The content of image files is not read.

        labels: whether labels count.
        """
        found = hashlib.sha256()
        known = self.labels if labels else None
        for row, name in enumerate(self.ids):
            label = "" if known is None else known[row]
            found.update(f"{name}\0{label}\0{self.items.place(row)}\n".encode(errors="surrogatepass"))
        return found.hexdigest()


def open_source(taken: ModelInput, source: Location | Sequence[Location]) -> ItemSource:
    """The items of a source; see ``holdfast.embed``.

    taken: says whether the model takes images or vectors.
    """
    given = [source] if isinstance(source, str | Path) else list(source)
    if not given:
        raise HoldfastError("embed: no source; give a folder, files or a table")
    if taken.takes_vectors:
        return _vector_file(taken, given)
    found = _images(given)
    if found.ids and len(set(found.ids)) < len(found.ids):
        _refuse_shared_ids(found)
    return found


def _images(given: Sequence[Location]) -> ItemSource:
    tables = [one for one in given if suffix(one) == ".parquet" and not _is_local_folder(one)]
    if tables:
        if len(tables) < len(given):
            raise HoldfastError(f"{tables[0]}: tables are given alone, without other sources")
        return _parquet_tables([str(one) for one in tables])
    vectors = [one for one in given if suffix(one) in FEATURE_SUFFIXES and not _is_local_folder(one)]
    if vectors:
        raise HoldfastError(f"{vectors[0]}: a file of vectors, but the model takes images")
    lists = [one for one in given if suffix(one) == ".csv" and not _is_local_folder(one)]
    if lists and len(given) > 1:
        raise HoldfastError(f"{lists[0]}: a CSV file is given alone, without other sources")
    if lists:
        return _csv_table(lists[0])
    addresses = [str(one) for one in given if is_address(one)]
    if not addresses:
        return _files_and_folders([local_path(one) for one in given])
    if len(given) > 1:
        raise HoldfastError(f"{addresses[0]}: a folder in an object store is given alone, without other sources")
    return _remote_folder(addresses[0])


def _is_local_folder(one: Location) -> bool:
    return not is_address(one) and local_path(one).is_dir()


def _files_and_folders(paths: Sequence[Path]) -> ItemSource:
    name = first_few([str(path) for path in paths])
    listed, found = images_with_ids(paths)
    if not listed and not found.problems:
        raise HoldfastError(f"{name}: no images there")
    ids = [image_id for image_id, _ in listed]
    files = Files([str(file) for _, file in listed])
    return ItemSource(name, ids, classes_of_paths(ids), files, problems=tuple(found.problems))


def _csv_table(table: Location) -> ItemSource:
    if is_address(table):
        with tempfile.NamedTemporaryFile(suffix=".csv") as copy:
            copy.write(read_bytes(table, _MOST_CSV))
            copy.flush()
            try:
                found = read_image_table(Path(copy.name))
            except HoldfastError as error:
                raise HoldfastError(str(error).replace(copy.name, str(table))) from None
    else:
        found = read_image_table(local_path(table))
    places = [join(parent(table), path) for path in found.paths]
    return ItemSource(str(table), found.ids, found.labels, Files(places))


def _remote_folder(folder: str) -> ItemSource:
    """Images in a folder of an object store, or the parquet tables in it if it has no images."""
    names = list_files(folder, recursive=True)
    images = [name for name in names if has_image_suffix(name)]
    tables = [name for name in names if suffix(name) == ".parquet"]
    if not images and tables:
        return _parquet_tables([join(folder, name) for name in tables])
    if not images:
        raise HoldfastError(f"{folder}: no images and no parquet tables there")
    return ItemSource(folder, images, classes_of_paths(images), Files([join(folder, name) for name in images]))


def _parquet_tables(tables: Sequence[str]) -> ItemSource:
    """Tables with a column ``path`` or ``bytes`` and perhaps ``id`` and ``label``, all with the same columns."""
    pyarrow = pyarrow_for(tables[0])
    columns: tuple[str, ...] | None = None
    ids: list[str] = []
    labels: list[str] = []
    places: list[str] = []
    files: list[tuple[str, int]] = []
    for table in tables:
        if not is_address(table) and file_size(table) is None:
            raise HoldfastError(f"{table}: no such file")
        with parquet_errors(table), open_input(table) as stream:
            file = pyarrow.parquet.ParquetFile(stream, page_checksum_verification=True)
            own = _image_columns(table, list(file.schema_arrow.names))
            if columns is not None and own != columns:
                raise HoldfastError(f"{table}: has the columns {', '.join(own)}, {tables[0]} {', '.join(columns)}")
            columns, count = own, file.metadata.num_rows
            read = file.read(columns=[name for name in own if name != "bytes"])
            texts = {name: _texts(read.column(name), table, name) for name in read.column_names}
        places += [join(parent(table), path) for path in texts.get("path", [])]
        rows = [str(len(ids) + row) for row in range(count)]
        ids += texts.get("id") or texts.get("path") or rows
        labels += texts.get("label", [])
        files.append((table, count))
    if not ids:
        raise HoldfastError(f"{first_few(list(tables))}: no rows")
    items: Items = Files(places) if places else TableBytes(files, 0, len(ids), secrets.token_hex(8))
    return ItemSource(first_few(list(tables)), ids, labels or None, items, "file" if places else "row")


def _image_columns(table: str, names: list[str]) -> tuple[str, ...]:
    inputs = [name for name in _IMAGE_COLUMNS if name in names]
    if not inputs and "features" in names:
        raise HoldfastError(f"{table}: a file of vectors, but the model takes images")
    if len(inputs) != 1 or len(set(names)) < len(names):
        raise HoldfastError(
            f"{table}: a table of images has one column path or bytes, and perhaps id and label; "
            f"it has {', '.join(names) or 'none'}"
        )
    return (*inputs, *(name for name in ("id", "label") if name in names))


def _texts(column: Any, table: str, name: str) -> list[str]:
    values = column.to_pylist()
    if None in values:
        raise HoldfastError(f"{table}, row {values.index(None)}: no {name}")
    if (values and not isinstance(values[0], str | int)) or isinstance(values[0] if values else "", bool):
        raise HoldfastError(f"{table}: the column {name} must hold text or whole numbers, not {column.type}")
    return [str(value) for value in values]


def _vector_file(taken: ModelInput, given: Sequence[Location]) -> ItemSource:
    files = [one for one in given if suffix(one) in FEATURE_SUFFIXES and not _is_local_folder(one)]
    if len(given) > 1 or not files:
        raise _takes_vectors(taken)
    if is_address(files[0]):
        raise HoldfastError(f"{files[0]}: vectors are read from a local file; copy it here first")
    found = read_features(local_path(files[0]), "gallery")
    if found.dim != taken.channels:
        raise HoldfastError(f"{found.name}: vectors of {found.dim} numbers, but the model takes {taken.channels}")
    ids = found.names().tolist()
    labels = None if found.labels is None else found.labels.tolist()
    return ItemSource(found.name, ids, labels, Vectors(found.name, found.rows, ids, 0, len(ids)), "vector")


def _takes_vectors(taken: ModelInput) -> HoldfastError:
    width = taken.channels
    return HoldfastError(f"the model takes vectors of {width} numbers; give one npz, npy or parquet file of them")


def _refuse_shared_ids(found: ItemSource) -> None:
    seen: dict[str, int] = {}
    for row, name in enumerate(found.ids):
        if name in seen:
            first, second = found.items.place(seen[name]), found.items.place(row)
            raise HoldfastError(f"{first} and {second}: both have the id {name!r}; give other ids")
        seen[name] = row

"""What can be embedded: tables of paths and of bytes, local and in object stores; what is refused."""

import numpy as np
import pytest

from holdfast import HoldfastError, embed, embed_shards
from holdfast.core.locations import join, list_files, read_bytes, write_bytes
from holdfast.embedders.source_items import Files, TableBytes
from holdfast.vectors.feature_shards import FeatureShards

pyarrow = pytest.importorskip("pyarrow")
import pyarrow.parquet as parquet  # noqa: E402


@pytest.fixture(scope="module")
def whole(photos, model):
    """Ids and vectors of the folder."""
    found = embed(model, photos).features
    return found.ids.tolist(), found.rows.block(0, 11)


@pytest.fixture
def memory():
    """An empty place in fsspec's memory file system."""
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    system.makedirs("/bucket")
    yield "memory://bucket"
    system.rm("/bucket", recursive=True)


def table_of(photos, kind, prefix=""):
    files = sorted(photos.rglob("*.png"), key=lambda file: file.relative_to(photos).as_posix())
    ids = [file.relative_to(photos).as_posix() for file in files]
    inputs = [prefix + name for name in ids] if kind == "path" else [file.read_bytes() for file in files]
    return pyarrow.table({kind: inputs, "id": ids, "label": [name.split("/")[0] for name in ids]})


def test_tables_of_paths_and_bytes(photos, model, whole, tmp_path):
    ids, vectors = whole
    parquet.write_table(table_of(photos, "path", f"{photos}/"), tmp_path / "paths.parquet")
    parquet.write_table(table_of(photos, "bytes"), tmp_path / "bytes.parquet", row_group_size=3)
    for name in ("paths", "bytes"):
        found = embed(model, tmp_path / f"{name}.parquet").features
        assert found.ids.tolist() == ids
        assert found.labels.tolist() == [one.split("/")[0] for one in ids]
        assert np.array_equal(found.rows.block(0, 11), vectors)
    # The file has changed: nothing of the old one is used.
    parquet.write_table(table_of(photos, "bytes").take(list(range(10, -1, -1))), tmp_path / "bytes.parquet")
    again = embed(model, tmp_path / "bytes.parquet", batch_size=11).features
    assert again.ids.tolist() == ids[::-1]
    assert np.allclose(again.rows.block(0, 11), vectors[::-1], atol=1e-6)
    # Several tables, with shards and batches across the borders of files and row groups.
    parquet.write_table(table_of(photos, "bytes").slice(0, 4), tmp_path / "a.parquet")
    parquet.write_table(table_of(photos, "bytes").slice(4), tmp_path / "b.parquet", row_group_size=2)
    sources = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    embed_shards(model, sources, tmp_path / "out", shard_size=5, batch_size=3)
    shards = list(FeatureShards(tmp_path / "out"))
    assert [name for one in shards for name in one.ids] == ids
    assert all(one.paths is None for one in shards)
    assert np.allclose(np.concatenate([one.vectors for one in shards]), vectors, atol=1e-6)


def test_tables_without_ids(photos, model, tmp_path):
    parquet.write_table(table_of(photos, "path").select(["path"]), photos / "relative.parquet")
    try:
        assert embed(model, photos / "relative.parquet").features.ids.tolist()[:2] == ["cat/1.png", "cat/3.png"]
    finally:
        (photos / "relative.parquet").unlink()
    parquet.write_table(table_of(photos, "bytes").select(["bytes"]).slice(0, 3), tmp_path / "bytes.parquet")
    found = embed(model, tmp_path / "bytes.parquet").features
    assert (found.ids.tolist(), found.labels) == (["0", "1", "2"], None)


def test_bad_tables(photos, model, tmp_path):
    whole = table_of(photos, "bytes")
    bad = {
        "one column path or bytes": whole.select(["id", "label"]),
        "a file of vectors, but the model takes images": pyarrow.table({"features": [[1.0, 2.0]]}),
        "row 1: no id": whole.slice(0, 2).set_column(1, "id", pyarrow.array(["a", None])),
        "must hold text or whole numbers, not double": whole.slice(0, 2).set_column(1, "id", pyarrow.array([0.5, 1.0])),
        "both have the id 'a'": whole.slice(0, 2).set_column(1, "id", pyarrow.array(["a", "a"])),
        "no rows": whole.slice(0, 0),
    }
    for message, table in bad.items():
        parquet.write_table(table, tmp_path / "bad.parquet")
        with pytest.raises(HoldfastError, match=message):
            embed(model, tmp_path / "bad.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(HoldfastError, match="not readable as parquet"):
        embed(model, tmp_path / "bad.parquet")
    with pytest.raises(HoldfastError, match="no such file"):
        embed(model, tmp_path / "none.parquet")
    parquet.write_table(whole.slice(0, 2).set_column(0, "bytes", pyarrow.array([b"?", None])), tmp_path / "bad.parquet")
    with pytest.raises(HoldfastError, match=r"row 0: not readable as an image .*row 1: no bytes in this row"):
        embed(model, tmp_path / "bad.parquet")


def test_a_table_of_bytes_that_is_damaged_after_it_was_listed(photos, tmp_path):
    parquet.write_table(table_of(photos, "bytes"), tmp_path / "in.parquet")
    items = TableBytes([(str(tmp_path / "in.parquet"), 11)], 0, 11, "x")
    (tmp_path / "in.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(HoldfastError, match=r"in\.parquet: not readable as parquet"):
        items.load()


def test_everything_in_an_object_store(photos, model, whole, memory, tmp_path):
    ids, vectors = whole
    for name in ids:
        write_bytes(join(memory, f"photos/{name}"), (photos / name).read_bytes())
    assert list_files(join(memory, "photos"), recursive=True) == ids
    parquet.write_table(table_of(photos, "path", f"{memory}/photos/"), tmp_path / "table.parquet")
    parquet.write_table(table_of(photos, "path"), tmp_path / "relative.parquet")
    write_bytes(join(memory, "photos/relative.parquet"), (tmp_path / "relative.parquet").read_bytes())
    lines = ["path,id", *(f"{name},{name}" for name in ids)]
    write_bytes(join(memory, "photos/table.csv"), "\n".join(lines).encode())
    sources = ("photos", "photos/relative.parquet", "photos/table.csv")
    for source in (*(join(memory, one) for one in sources), tmp_path / "table.parquet", f"file://{photos}"):
        found = embed(model, source).features
        assert found.ids.tolist() == ids, source
        assert np.array_equal(found.rows.block(0, 11), vectors)
    out = join(memory, "out")
    done = embed_shards(model, join(memory, "photos"), out, shard_size=4)
    assert (done.written, done.vectors) == (3, 11)
    assert embed_shards(model, join(memory, "photos"), out).written == 0
    assert list_files(out) == ["manifest.json", *(f"shard-{number:06d}.parquet" for number in range(3))]
    assert np.allclose(np.concatenate([one.vectors for one in FeatureShards(out)]), vectors, atol=1e-6)
    write_bytes(join(memory, "photos/cat/1.png"), b"?")
    with pytest.raises(HoldfastError, match=r"memory://bucket/photos/cat: 1\.png: not readable as an image"):
        embed(model, join(memory, "photos"))
    write_bytes(join(memory, "photos/dog/2.png"), b"?")
    lost = rf"{memory}/photos: 2 problems among 11 files \(list: {memory}/lost/unreadable\.csv\)"
    with pytest.raises(HoldfastError, match=lost):
        embed_shards(model, join(memory, "photos"), join(memory, "lost"))


def test_addresses_that_are_refused(model, memory, tmp_path):
    with pytest.raises(HoldfastError, match=r"unknown kind of address .*'http'; known: .*s3"):
        embed(model, "http://example.org/photos.parquet")
    with pytest.raises(HoldfastError, match=r"memory://bucket/none\.parquet"):
        embed(model, join(memory, "none.parquet"))
    with pytest.raises(HoldfastError, match="no images and no parquet tables"):
        embed(model, join(memory, "nothing"))
    write_bytes(tmp_path / "x", b"four")
    with pytest.raises(HoldfastError, match="more than 3 bytes"):
        read_bytes(tmp_path / "x", 3)
    (tmp_path / "t.csv").write_text("path\nhttp://example.org/a.png\n")
    with pytest.raises(HoldfastError, match="unknown kind of address"):
        embed(model, tmp_path / "t.csv")


def test_parts_of_tables_keep_their_places():
    items = TableBytes([("a", 3), ("b", 4), ("c", 2)], 0, 9, "x")
    part = items.part(2, 8)
    assert [part.place(row) for row in range(len(part))] == ["a, row 2", *(f"b, row {n}" for n in range(4)), "c, row 0"]
    assert part.part(2, 4) == TableBytes([("b", 4)], 1, 3, "x")
    assert Files(["x", "y", "z"]).part(1, 3).part(1, 2).place(0) == "z"

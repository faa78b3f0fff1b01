"""Vectors in the files that people have: every form gives the same set, and what is wrong or hostile is named."""

import json
import sys

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.vectors.feature_files import read_features
from holdfast.vectors.vector_tables import Columns

VECTORS = np.random.default_rng(0).standard_normal((20, 5))
IDS = [f"item {i}" for i in range(20)]
LABELS = [i % 4 for i in range(20)]


def columns_of(id_: str, vector: str, label: str) -> dict[str, list]:
    return {"title": ["t"] * 20, id_: IDS, vector: VECTORS.tolist(), label: LABELS}


def write(folder, form, id_="id", vector="embedding", label="label"):
    columns = columns_of(id_, vector, label)
    if form == "npz":
        np.savez(folder / "v.npz", **{id_: IDS, vector: VECTORS, label: LABELS})
    elif form == "jsonl":
        rows = (dict(zip(columns, row)) for row in zip(*columns.values()))
        (folder / "v.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    elif form == "csv":
        lines = [",".join(columns)]
        lines += [f't,{name},"{row}",{label}' for name, row, label in zip(IDS, VECTORS.tolist(), LABELS)]
        (folder / "v.csv").write_text("\r\n".join(lines), encoding="utf-8-sig")
    else:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        table = pyarrow.table(columns)
        if form == "parquet":
            parquet.write_table(table, folder / "v.parquet")
        else:
            write_dataset(folder / "v", table)
    return folder / ("v" if form == "datasets" else f"v.{form}")


def write_dataset(folder, table, options=None):
    """As ``save_to_disk`` of Hugging Face datasets: two streams, and a record of their order."""
    import pyarrow

    folder.mkdir(exist_ok=True)
    names = ["data-00001-of-00002.arrow", "data-00000-of-00002.arrow"]  # the record's order counts
    for name, part in zip(names, (table.slice(0, 12), table.slice(12))):
        with (
            pyarrow.OSFile(str(folder / name), "wb") as file,
            pyarrow.ipc.new_stream(file, table.schema, options=options) as stream,
        ):
            stream.write_table(part, max_chunksize=5)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))


FORMS = ["npz", "jsonl", "csv", "parquet", "datasets"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same(tmp_path, form):
    found = read_features(write(tmp_path, form), "gallery")
    np.testing.assert_allclose(found.rows.block(0, 20), VECTORS)
    assert found.ids.tolist() == IDS
    assert found.labels.tolist() == LABELS
    np.testing.assert_allclose(found.rows.take(np.array([19, 3])), VECTORS[[19, 3]])


@pytest.mark.parametrize("form", FORMS)
def test_columns_may_have_any_name(tmp_path, form):
    path = write(tmp_path, form, "sku", "mpnet (768)", "kind")
    found = read_features(path, "gallery", Columns("sku", "mpnet (768)", "kind"))
    np.testing.assert_allclose(found.rows.block(0, 20), VECTORS)
    assert (found.ids.tolist(), found.labels.tolist()) == (IDS, LABELS)
    for columns, named in (
        (Columns(id="id"), r"no column id \(--id\); it has .*sku"),
        (Columns(vector="emb"), r"no column emb \(--vector\); it has .*mpnet \(768\)"),
        (Columns(label="class"), r"no column class \(--label\)"),
    ):
        with pytest.raises(HoldfastError, match=named):
            read_features(path, "gallery", columns)
    with pytest.raises(HoldfastError, match=r"'?kind'? must|must be a matrix|must hold lists"):
        read_features(path, "gallery", Columns("sku", "kind"))


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "datasets", "npz"])
def test_two_columns_of_vectors_must_be_told_apart(tmp_path, form):
    twice = {"small": VECTORS[:, :2].tolist(), "large": VECTORS.tolist()}
    if form == "npz":
        np.savez(tmp_path / "v.npz", **{name: np.array(rows) for name, rows in twice.items()})
    elif form == "jsonl":
        rows = (json.dumps(dict(zip(twice, row))) for row in zip(*twice.values()))
        (tmp_path / "v.jsonl").write_text("\n".join(rows))
    elif form == "csv":
        rows = (f'"{small}","{large}"' for small, large in zip(*twice.values()))
        (tmp_path / "v.csv").write_text("small,large\n" + "\n".join(rows))
    else:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        if form == "parquet":
            parquet.write_table(pyarrow.table(twice), tmp_path / "v.parquet")
        else:
            write_dataset(tmp_path / "v", pyarrow.table(twice))
    path = tmp_path / ("v" if form == "datasets" else f"v.{form}")
    with pytest.raises(HoldfastError, match=r"several may hold the vectors \(small, large\).*name one with --vector"):
        read_features(path, "gallery")
    assert read_features(path, "gallery", Columns(vector="large")).dim == 5


def test_forms_without_names_say_so(tmp_path):
    np.save(tmp_path / "v.npy", VECTORS)
    with pytest.raises(HoldfastError, match="has no named columns; leave out --id, --vector and --label"):
        read_features(tmp_path / "v.npy", "gallery", Columns(vector="features"))


def test_csv_of_numpy_and_numbers_as_text(tmp_path):
    """pandas writes a NumPy array without commas, over several lines; ids that are numbers equal those of an npz."""
    cells = [
        f'{i},"[{" ".join(f"{x:.17g}" for x in row[:3])}\n {row[3]:.17g}  {row[4]:.17g}]"'
        for i, row in enumerate(VECTORS)
    ]
    (tmp_path / "v.csv").write_text("id,vector\n" + "\n".join(cells))
    found = read_features(tmp_path / "v.csv", "gallery")
    np.testing.assert_allclose(found.rows.block(0, 20), VECTORS)
    assert found.ids.dtype == np.int64
    (tmp_path / "v.csv").write_text('id,vector\n007,"[1, 2]"\n8,"[3, 4]"\n')
    assert read_features(tmp_path / "v.csv", "gallery").ids.tolist() == ["007", "8"]
    (tmp_path / "v.csv").write_text('id,vector\n7,"[1 2 ... 3]"\n')
    with pytest.raises(HoldfastError, match="were shortened when they were written"):
        read_features(tmp_path / "v.csv", "gallery")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.jsonl", "", "holds no rows"),
        ("v.jsonl", "[1, 2]", r"line 1: must be an object"),
        ("v.jsonl", '{"id": "a", "v": [1, 2]}\n{"id": "b", "v"', "line 2: not JSON"),
        ("v.jsonl", "[" * 100_000, "line 1: not JSON"),
        ("v.jsonl", '{"id": "a", "v": [1, 2]}\n{"id": "b", "v": [1]}', "line 2: 1 numbers, but 2 before"),
        ("v.jsonl", '{"id": "a", "v": [1, 2]}\n{"id": "b"}', "line 2: 'v' must be a list of numbers"),
        ("v.jsonl", '{"id": "a", "v": [1, "x"]}', "line 1: 'v' must be a list of numbers"),
        ("v.jsonl", '{"id": "a", "v": [[1], [2]]}', "line 1: 'v' must be a list of numbers"),
        ("v.jsonl", '{"id": "a", "v": [1%s]}' % ("0" * 400), "line 1: 'v' must be a list of numbers"),
        ("v.jsonl", '{"id": "a", "v": [1%s]}' % ("0" * 5000), "line 1: not JSON"),
        ("v.jsonl", '{"id": null, "v": [1]}', "line 1: id must be text or a whole number, found None"),
        ("v.jsonl", '{"id": "a", "v": [1]}\n{"id": "a", "v": [2]}', "1 ids occur more than once"),
        ("v.jsonl", '{"name": "a"}', "no column holds vectors; it has name; name one with --vector"),
        ("v.jsonl", '{"id": "\\ud800", "v": [1]}', "not valid Unicode"),
        ("v.csv", "", "holds no rows"),
        ("v.csv", "id,v\n", "holds no rows"),
        ("v.csv", "id,id\n1,2\n", "line 1: a column has no name, or two have the same"),
        ("v.csv", 'id,v\n1,"[1, 2]"\n2\n', "line 3: 2 columns expected, found 1"),
        ("v.csv", 'id,v\n1,"[1, 2]"\n2,"[1, b]"\n', "line 3: 'v' must be a list of numbers"),
        ("v.csv", 'id,v\n1,"[1, 2]"\n2,"1, 2"\n', "line 3: 'v' must be a list of numbers"),
        ("v.csv", 'id,v\n1,"[1, 2]"\n,"[1, 2]"\n', "line 3: id must be text or a whole number, found ''"),
        ("v.csv", 'id,v\n1,"[1, 2]\n', "not readable as CSV"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(HoldfastError, match=message):
        read_features(tmp_path / name, "gallery")


def test_text_files_are_bounded(tmp_path, monkeypatch):
    (tmp_path / "v.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(HoldfastError, match="not readable as UTF-8"):
        read_features(tmp_path / "v.jsonl", "gallery")
    monkeypatch.setattr("holdfast.core.untrusted_files.LONGEST_LINE", 100)
    for name in ("v.jsonl", "v.csv"):
        (tmp_path / name).write_text("x" * 101)
        with pytest.raises(HoldfastError, match="a line of more than 100 characters"):
            read_features(tmp_path / name, "gallery")
    monkeypatch.setattr(sys.modules["holdfast.vectors.feature_set"], "_MOST_TEXT", 1000)
    (tmp_path / "v.jsonl").write_text(
        f'{{"id": "{"a" * 60}", "v": [1]}}\n' + "".join(f'{{"id": "{i}", "v": [1]}}\n' for i in range(9))
    )
    with pytest.raises(HoldfastError, match="ids: one has 60 characters, which is too long for 10 rows"):
        read_features(tmp_path / "v.jsonl", "gallery")


def test_datasets_folders_are_not_trusted(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    folder = write(tmp_path, "datasets")
    state = folder / "state.json"
    valid = state.read_text()
    for changed, message in (
        ({"_data_files": [{"filename": "../secret.arrow"}]}, "names '../secret.arrow', which is no file of the folder"),
        ({"_data_files": [{"filename": "none.arrow"}]}, "no such file"),
        ({"_data_files": []}, "names no data files"),
        ([], "names no data files"),
        (json.loads(valid) | {"_indices_data_files": [{"filename": "i.arrow"}]}, "or indices into them"),
    ):
        state.write_text(json.dumps(changed))
        with pytest.raises(HoldfastError, match=message):
            read_features(folder, "gallery")
    state.unlink()  # as in the cache of datasets: the files in the order of their names
    assert read_features(folder, "gallery").ids.tolist() == IDS[12:] + IDS[:12]
    (tmp_path / "both").mkdir()
    (tmp_path / "both" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(HoldfastError, match="holds the splits train, test; name the folder of one"):
        read_features(tmp_path / "both", "gallery")
    table = pyarrow.table(columns_of("id", "embedding", "label"))
    write_dataset(tmp_path / "packed", table, pyarrow.ipc.IpcWriteOptions(compression="zstd"))
    with pytest.raises(HoldfastError, match="has compressed buffers, which datasets never writes"):
        read_features(tmp_path / "packed", "gallery")
    with (
        pyarrow.OSFile(str(tmp_path / "packed" / "data-00000-of-00002.arrow"), "wb") as file,
        pyarrow.ipc.new_file(file, table.schema) as whole,
    ):
        whole.write_table(table)
    (tmp_path / "packed" / "data-00001-of-00002.arrow").unlink()
    (tmp_path / "packed" / "state.json").unlink()
    with pytest.raises(HoldfastError, match="an arrow file, and not the stream"):
        read_features(tmp_path / "packed", "gallery")


def test_changed_bytes_of_a_dataset_never_crash(tmp_path):
    """Every mutation is read or refused in one line; forged offsets are not followed."""
    pytest.importorskip("pyarrow")
    folder = write(tmp_path, "datasets")
    file = folder / "data-00000-of-00002.arrow"
    content = file.read_bytes()
    draw = np.random.default_rng(0)
    messages = []
    for _ in range(300):
        changed = bytearray(content)
        if draw.random() < 0.2:
            del changed[int(draw.integers(0, len(changed))) :]
        else:
            for place in draw.integers(0, len(changed), int(draw.integers(1, 4))):
                changed[place] = int(draw.choice([0, 1, 127, 128, 255, draw.integers(0, 256)]))
        file.write_bytes(changed)
        try:
            read_features(folder, "gallery").rows.block(0, 20)
        except HoldfastError as error:
            messages.append(str(error))
    assert len(messages) > 50
    assert not any("\n" in message for message in messages)

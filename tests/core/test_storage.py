"""Atomic writes and safe reads."""

import json
import math
import os
import pickle
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.core import storage
from holdfast.core.errors import HoldfastError
from holdfast.core.storage import (
    read_array,
    read_json,
    read_tensors,
    remove_temporaries,
    replacing,
    replacing_folder,
    without_nan,
    write_array,
    write_json,
    write_tensors,
    write_text,
)
from holdfast.train.tensor_files import read_torch, write_torch


def test_no_tensors_are_written_and_read(tmp_path):
    """The state of a method that keeps none."""
    write_tensors(tmp_path / "none.safetensors", {})
    assert read_tensors(tmp_path / "none.safetensors") == ({}, {})
    write_tensors(tmp_path / "none.safetensors", {}, {"a": "b"})
    assert read_tensors(tmp_path / "none.safetensors") == ({}, {"a": "b"})


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text("half" * (1 // 0))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_old_file_is_there_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "deep" / "a.txt"
    write_text(path, "old")
    with path.open() as reader:
        with replacing(path) as temporary:
            temporary.write_text("new")
            assert path.read_text() == "old"
            assert temporary.parent == path.parent  # a rename is atomic only within one file system
        assert reader.read() == "old"  # who has it open keeps the old file: it was replaced, not written over
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_is_replaced_whole(exchange, tmp_path, monkeypatch):
    if not exchange:
        monkeypatch.setattr(storage, "_exchanged", lambda first, second: False)
    path = tmp_path / "model"
    for content in ("old", "new"):
        with replacing_folder(path) as temporary:
            (temporary / content).write_text(content)
    assert [file.name for file in path.iterdir()] == ["new"]
    with pytest.raises(ZeroDivisionError), replacing_folder(path) as temporary:
        (temporary / "half").write_text("half" * (1 // 0))
    assert [file.name for file in path.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges two folders in one step")
def test_a_folder_is_there_all_the_time(tmp_path, monkeypatch):
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").touch()
    exchange, seen = storage._exchanged, []

    def watched(first, second):
        seen.append(os.listdir(path))
        done = exchange(first, second)
        seen.append(os.listdir(path))
        return done

    monkeypatch.setattr(storage, "_exchanged", watched)
    monkeypatch.setattr(Path, "replace", lambda self, target: pytest.fail("moved aside"))
    with replacing_folder(path) as temporary:
        (temporary / "new").touch()
    assert seen == [["old"], ["new"]]
    assert os.listdir(tmp_path) == ["model"]


def test_a_link_to_a_folder_is_replaced_by_a_folder(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").touch()
    path = tmp_path / "model"
    path.symlink_to(tmp_path / "elsewhere")
    with replacing_folder(path) as temporary:
        (temporary / "new").touch()
    assert not path.is_symlink()
    assert os.listdir(path) == ["new"]
    assert sorted(os.listdir(tmp_path)) == ["elsewhere", "model"]
    assert os.listdir(tmp_path / "elsewhere") == ["kept"]


@pytest.mark.parametrize("call", ["replacing(path)", "replacing_folder(path)"])
def test_a_kill_leaves_only_what_the_sweep_removes(call, tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from holdfast.core.storage import replacing, replacing_folder\n"
        f"path = Path(sys.argv[1])\nwith {call} as temporary: os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "target")], check=False)
    assert done.returncode == -9
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".tmp-")
    (tmp_path / "mine.txt").write_text("kept")
    remove_temporaries(tmp_path)
    assert os.listdir(tmp_path) == ["mine.txt"]


def test_a_list_of_numbers_takes_one_line(tmp_path):
    path = tmp_path / "x.json"
    value = {"matrix": [[1, 2.5], [None, True]], "names": ["a", "[\n1\n]"], "empty": [], "rows": [{"n": 1}]}
    write_json(path, value)
    assert read_json(path) == value
    lines = path.read_text().splitlines()
    assert lines[1:5] == ['  "matrix": [', "    [1, 2.5],", "    [null, true]", "  ],"]
    assert '    "a",' in lines  # texts keep a line each


def test_json_is_strict(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"nan": math.nan, "inf": [-math.inf, 1], "array": np.array([[1.0, np.nan]]), "path": path, 3: "é"})
    found = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    expected = {"nan": None, "inf": [None, 1], "array": [[1.0, None]], "path": str(path), "3": "é"}
    assert found == read_json(path) == expected


def test_without_nan_gives_plain_types():
    plain = without_nan({"a": np.float32(0.5), "b": (np.int64(1), np.float64("nan")), "c": True, "d": None})
    assert plain == {"a": 0.5, "b": [1, None], "c": True, "d": None}
    assert type(plain["a"]) is float
    assert type(plain["b"][0]) is int


def test_arrays_and_tensors_round_trip(tmp_path):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_array(tmp_path / "a.npy", array)
    np.testing.assert_array_equal(read_array(tmp_path / "a.npy"), array)
    assert isinstance(read_array(tmp_path / "a.npy", mapped=True), np.memmap)
    given = {"a": array.T, "b": np.array(3), "c": np.zeros(0)}  # a transposed one is not contiguous
    tensors = {name: torch.from_numpy(part) for name, part in given.items()} | {"d": torch.ones(2).bfloat16()}
    for file, parts, write, read in (
        (tmp_path / "a.safetensors", given, write_tensors, read_tensors),
        (tmp_path / "b.safetensors", tensors, write_torch, read_torch),
    ):
        write(file, parts, {"key": "value"})
        again, metadata = read(file)
        assert metadata == {"key": "value"}
        assert again.keys() == parts.keys()
        assert all(type(again[name]) is type(parts[name]) for name in parts)
        assert all(again[name].tolist() == parts[name].tolist() for name in parts)
        assert all(again[name].dtype == parts[name].dtype for name in parts)


@pytest.mark.parametrize("taught", [False, True])
def test_types_that_numpy_lacks_are_refused(taught, tmp_path):
    if taught:
        pytest.importorskip("ml_dtypes")  # NumPy knows the names of its types from now on
    for dtype, kind in ((torch.bfloat16, "BF16"), (torch.float8_e5m2, "F8_E5M2")):
        write_torch(tmp_path / "a.safetensors", {"plain": torch.ones(2), "short": torch.ones(2).to(dtype)})
        with pytest.raises(HoldfastError, match=rf"a\.safetensors: short holds numbers of type {kind}, .* as F32$"):
            read_tensors(tmp_path / "a.safetensors")


def test_tensors_that_share_memory_are_written_apart(tmp_path):
    x = torch.arange(4.0)
    write_torch(tmp_path / "a.safetensors", {"whole": x, "part": x[:2]})
    assert read_torch(tmp_path / "a.safetensors")[0]["part"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("reader", "suffix"),
    [(read_json, "json"), (read_array, "npy"), (read_tensors, "safetensors"), (read_torch, "safetensors")],
)
@pytest.mark.parametrize(
    "content", [None, b"", b"\x80\x00garbage", pickle.dumps({"a": 1}), b"\x93NUMPY\x01\x00v\x00{'d"]
)
def test_files_that_cannot_be_read(reader, suffix, content, tmp_path):
    path = tmp_path / f"a.{suffix}"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(HoldfastError, match=str(path)) as error:
        reader(path)
    assert "\n" not in str(error.value)


def test_pickled_objects_are_never_loaded(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(HoldfastError, match="npy"):
        read_array(tmp_path / "a.npy")


def test_tensors_that_do_not_fit_are_refused_in_one_line(tmp_path):
    path, before = tmp_path / "a.safetensors", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # to the writer the same as a full disk
    try:
        with pytest.raises(HoldfastError, match=f"{path}: cannot be written .*; free disk space"):
            write_tensors(path, {"a": np.zeros(10_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []

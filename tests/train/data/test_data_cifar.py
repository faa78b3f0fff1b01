import io
import os
import pickle
import tarfile

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.data import data_root, load_split
from holdfast.train.data.readers.plain_pickle import load_plain

FOLDER = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}
ARCHIVE = {"cifar10": "cifar-10-python.tar.gz", "cifar100": "cifar-100-python.tar.gz"}


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_archive_folder_and_pack_agree(name, split, sample, tmp_path, write_archive, pickled):
    members = pickled(sample.batches(name), FOLDER[name])
    in_archive, in_folder, in_pack = (tmp_path / form for form in ("archive", "folder", "pack"))
    in_archive.mkdir()
    write_archive(in_archive / ARCHIVE[name], members)
    (in_folder / FOLDER[name]).mkdir(parents=True)
    for member, content in members.items():
        (in_folder / member).write_bytes(content)
    in_pack.mkdir()
    count = 12 if split == "train" else 4
    arrays = {f"{split}_x": sample.images[:count], f"{split}_y": sample.labels[:count]}
    np.savez(in_pack / f"{name}.npz", class_names=np.array(sample.names), **arrays)
    sets = [load_split(name, split, root) for root in (in_archive, in_folder, in_pack)]
    assert len(sets[0]) == count
    assert len({images.fingerprint for images in sets}) == 1
    assert {images.class_names for images in sets} == {("ant", "bee", "cat")}
    np.testing.assert_array_equal(sets[0].images, sets[2].images)
    assert sorted(os.listdir(in_archive)) == [ARCHIVE[name]], "nothing is unpacked"


def test_pickles_of_python_2(tmp_path):
    """Python 2 writes both text and an array's bytes as its own strings: opcode U, a length, the bytes."""
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    body = (
        b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x02K\x03\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x06"
        + array.tobytes()
        + b"tbs."
    )
    (key, value), *_ = load_plain(io.BytesIO(body), "x").items()
    assert key == b"data"
    np.testing.assert_array_equal(value, array)


class Runs:
    """Unpickles by calling ``function(*arguments)``."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize("form", ["archive", "folder"])
def test_a_hostile_pickle_is_refused_and_nothing_runs(form, protocol, tmp_path, sample, write_archive, pickled):
    mark = tmp_path / "executed"
    members = pickled(sample.batches("cifar100"), FOLDER["cifar100"])
    hostile = {b"data": Runs(os.system, f"touch {mark}")}
    members["cifar-100-python/train"] = pickle.dumps(hostile, protocol=protocol)
    if form == "archive":
        write_archive(tmp_path / ARCHIVE["cifar100"], members)
    else:
        (tmp_path / "cifar-100-python").mkdir()
        for member, content in members.items():
            (tmp_path / member).write_bytes(content)
    with pytest.raises(HoldfastError, match=r"cifar-100-python/train: refused: the pickle contains (posix|nt)\.system"):
        load_split("cifar100", "train", tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "value",
    [
        Runs(eval, "1"),
        Runs(np.load, "x"),
        Runs(np.ndarray, (1,), "O", b"\0" * 8),  # raw bytes taken for pointers
        np.array([None], object),
        np.zeros(1, [("a", "i4")]),
        Runs(getattr, "a", "b"),
    ],
)
def test_everything_but_plain_data_is_refused(value):
    with pytest.raises(HoldfastError, match="here: "):
        load_plain(io.BytesIO(pickle.dumps(value, protocol=2)), "here")


@pytest.mark.parametrize("array", [np.arange(5, dtype=t) for t in ("u1", "<i8", ">i4", "f4")], ids=str)
def test_plain_arrays_survive(array):
    value = {"a": [1, "b", b"\xff\x00", None, (1.5, True)], "x": array}
    got = load_plain(io.BytesIO(pickle.dumps(value, protocol=2)), "here")
    np.testing.assert_array_equal(got.pop("x"), value.pop("x"))
    assert got == value


@pytest.mark.parametrize("content", [b"", b"not a pickle", pickle.dumps([1]), pickle.dumps({b"data": 3})])
def test_malformed_files_are_named(content, tmp_path, sample, write_archive, pickled):
    members = pickled(sample.batches("cifar100"), FOLDER["cifar100"])
    members["cifar-100-python/train"] = content
    write_archive(tmp_path / ARCHIVE["cifar100"], members)
    with pytest.raises(HoldfastError, match="train"):
        load_split("cifar100", "train", tmp_path)


def test_wrong_archives_are_refused(tmp_path, sample, write_archive, pickled):
    archive = tmp_path / ARCHIVE["cifar100"]
    members = pickled(sample.batches("cifar100"), FOLDER["cifar100"])
    write_archive(archive, {name: content for name, content in members.items() if not name.endswith("meta")})
    with pytest.raises(HoldfastError, match="cifar-100-python/meta is missing"):
        load_split("cifar100", "train", tmp_path)
    with pytest.raises(HoldfastError, match=r"unknown split .*'query'; known: test, train"):
        load_split("cifar100", "query", tmp_path)
    archive.write_bytes(archive.read_bytes()[:2000])
    with pytest.raises(HoldfastError, match=r"tar\.gz, perhaps truncated"):
        load_split("cifar100", "train", tmp_path)
    with tarfile.open(archive, "w:gz") as tar:
        link = tarfile.TarInfo("cifar-100-python/train")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(HoldfastError, match="not a plain file"):
        load_split("cifar100", "train", tmp_path)


def test_labels_out_of_range(tmp_path, sample, write_archive, pickled):
    sample.labels[0] = 9
    write_archive(tmp_path / ARCHIVE["cifar10"], pickled(sample.batches("cifar10"), FOLDER["cifar10"]))
    with pytest.raises(HoldfastError, match=r"0\.\.2 \(3 classes\), found 0\.\.9"):
        load_split("cifar10", "train", tmp_path)


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "classes"), [("cifar10", 10), ("cifar100", 100)])
def test_the_real_data(name, classes):
    if not any((data_root() / form).exists() for form in (f"{name}.npz", FOLDER[name], ARCHIVE[name])):
        pytest.skip(f"no {name} under {data_root()}")
    train = load_split(name, "train")
    assert train.images.shape == (50000, 32, 32, 3)
    assert np.bincount(train.labels).tolist() == [50000 // classes] * classes
    assert train.num_classes == classes

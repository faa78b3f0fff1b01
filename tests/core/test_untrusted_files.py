"""Files from strangers: whatever is in them, the answer is one clear line, within seconds and without much memory."""

import io
import json
import os
import shutil
import signal
import struct
import zipfile

import numpy as np
import pytest

from holdfast import check
from holdfast.checks.judgements import read_judgements
from holdfast.core.checksums import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.storage import read_array, read_tensors
from holdfast.core.untrusted_files import SKIP_CRC, check_depth, open_npz, read_json, read_text, read_toml, whole_number
from holdfast.gallery.item_files import read_metadata
from holdfast.metrics.matrix_file import read_matrix
from holdfast.train.data import load_split
from holdfast.train.encoders import Encoder, Preprocess, VectorInput, build_backbone
from holdfast.train.engine.build import build_method
from holdfast.train.experiments.load import read_recipe
from holdfast.train.experiments.schema import check_recipe
from holdfast.vectors.feature_files import read_features, write_features
from holdfast.vectors.feature_set import feature_set

SECONDS = 5


@pytest.fixture(autouse=True)
def in_time():
    """Ends a test that hangs."""

    def end(number, frame):
        raise TimeoutError(f"not done within {SECONDS} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS * 6)  # the machine may be busy
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def refused(call, *arguments, match="."):
    with pytest.raises(HoldfastError, match=match) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    return str(caught.value)


def pipe(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def link_to(target):
    def make(path):
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    return make


ODD_FILES = {"a pipe": pipe, "an endless device": link_to("/dev/zero"), "a folder": lambda path: path.mkdir()}
READERS = {
    "JSON": (read_json, "f.json"),
    "TOML": (read_toml, "f.toml"),
    "npy": (read_array, "f.npy"),
    "safetensors": (read_tensors, "f.safetensors"),
    "features in npy": (lambda path: read_features(path, "query"), "f.npy"),
    "features in npz": (lambda path: read_features(path, "query"), "f.npz"),
    "features in parquet": (lambda path: read_features(path, "query"), "f.parquet"),
    "metadata in CSV": (read_metadata, "f.csv"),
    "relevance in CSV": (read_judgements, "f.csv"),
    "a matrix in CSV": (read_matrix, "f.csv"),
    "vectors in npz": (lambda path: load_split("vectors", "all", path.parent, path=path.name), "f.npz"),
}


@pytest.mark.parametrize("kind", ODD_FILES)
@pytest.mark.parametrize("reader", READERS)
def test_only_regular_files_are_read(kind, reader, tmp_path):
    if reader == "features in parquet":
        pytest.importorskip("pyarrow")
    read, name = READERS[reader]
    ODD_FILES[kind](tmp_path / name)
    refused(read, tmp_path / name, match=name)


def test_links_to_regular_files_are_read(tmp_path):
    (tmp_path / "real").write_text("[1]")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert read_json(tmp_path / "link") == [1]


def test_text_has_a_largest_size_and_is_utf8(tmp_path):
    (tmp_path / "t").write_bytes(b"a" * 101)
    refused(read_text, tmp_path / "t", 100, match="larger than 100 bytes")
    assert read_text(tmp_path / "t", 101) == "a" * 101
    (tmp_path / "t").write_bytes(b"ab\xff")
    refused(read_text, tmp_path / "t", 100, match=r"not UTF-8 \(byte 2\)")


@pytest.mark.parametrize("head", [b"", b"{}", b"x" * 100_000])
def test_a_file_of_holes_is_not_read(head, tmp_path):
    path = tmp_path / "f.safetensors"
    path.write_bytes(head)
    os.truncate(path, 2**40)
    if path.stat().st_blocks * 512 > 2**30:
        pytest.skip("this file system has no holes")
    refused(sha256_of, path, match=r"f\.safetensors: has nearly no bytes")
    os.truncate(path, 2**20)
    assert len(sha256_of(path)) == 64


def test_what_an_error_quotes_is_escaped_and_shortened():
    assert str(HoldfastError("a\x1b[2Jb")) == "a\\x1b[2Jb"
    assert str(HoldfastError("first\nsecond")) == "first\nsecond"
    message = str(HoldfastError("file: " + "x" * 10**6 + "; do that"))
    assert len(message) == 2000
    assert message.startswith("file: xxx")
    assert message.endswith("xxx; do that")


@pytest.mark.parametrize("depth", [65, 900, 5000, 100_000])
def test_deep_json_and_toml(depth, tmp_path):
    (tmp_path / "f.json").write_text("[" * depth + "]" * depth)
    refused(read_json, tmp_path / "f.json", match="more than 64 levels")
    (tmp_path / "f.toml").write_text("a = " + "[" * depth + "]" * depth)
    refused(read_toml, tmp_path / "f.toml", match="more than 64 levels")
    (tmp_path / "f.toml").write_text(".".join("a" * min(depth, 3000)) + " = 1")
    refused(read_toml, tmp_path / "f.toml", match="more than 64 levels")


def test_usual_depth_and_numbers():
    value = [1]
    for _ in range(63):
        value = {"a": value}
    check_depth(value, "x")
    assert whole_number(3, "x", 1, 3) == 3
    for wrong in (True, 0, 4, 2.0, "2", None, 10**5000, [2]):
        refused(whole_number, wrong, "x", 1, 3, match=r"x must be a whole number from 1 to 3, found ")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    preprocess = Preprocess(size=16, mean=(0.2,), std=(0.3,), colour="grey")
    Encoder(build_backbone("small", width=8), 59, preprocess=preprocess).save_pretrained(root / "image")
    mlp = build_backbone("mlp", in_channels=6, hidden=8, width=4)
    Encoder(mlp, 3, preprocess=VectorInput(6)).save_pretrained(root / "vector")
    return root


CONFIGS = {
    "dim true": ("image", "dim", True),
    "dim 2^40": ("image", "dim", 2**40),
    "dim 2^22": ("image", "dim", 2**22),
    "dim 0": ("image", "dim", 0),
    "dim as text": ("image", "dim", "59"),
    "dim missing": ("image", "dim", None),
    "feature_dim true": ("image", "feature_dim", True),
    "another feature_dim": ("image", "feature_dim", 33),
    "a backbone as a list": ("image", "backbone", []),
    "options as a list": ("image", "backbone", {"name": "small", "options": [1]}),
    "width 10^9": ("image", "backbone", {"name": "small", "options": {"width": 10**9}}),
    "width 50,000": ("image", "backbone", {"name": "small", "options": {"width": 50_000}}),
    "width as text": ("image", "backbone", {"name": "small", "options": {"width": "8"}}),
    "width true": ("image", "backbone", {"name": "small", "options": {"width": True}}),
    "width a list": ("image", "backbone", {"name": "small", "options": {"width": [8]}}),
    "hidden 10^6": ("vector", "backbone", {"name": "mlp", "options": {"in_channels": 6, "hidden": 10**6, "layers": 9}}),
    "layers 10^6": ("vector", "backbone", {"name": "mlp", "options": {"in_channels": 6, "layers": 10**6}}),
    "dropout as text": ("vector", "backbone", {"name": "mlp", "options": {"in_channels": 6, "dropout": "a"}}),
    "size 10^9": ("image", "preprocess.size", 10**9),
    "sizes 10^9": ("image", "preprocess.size", [10**9, 1]),
    "size true": ("image", "preprocess.size", True),
    "size of 8192 x 8192": ("image", "preprocess.size", [8192, 8192]),
    "size as text": ("image", "preprocess.size", "16"),
    "resize 10^30": ("image", "preprocess.resize", 10**30),
    "max_pixels 10^15": ("image", "preprocess.max_pixels", 10**15),
    "mean as lists": ("image", "preprocess.mean", [[1, 2], [3]]),
    "mean as a list in a list": ("image", "preprocess.mean", [[0.5]]),
    "mean as text": ("image", "preprocess.mean", ["a"]),
    "colour a list": ("image", "preprocess.colour", ["grey"]),
    "preprocess a number": ("image", "preprocess", 3),
    "width of vectors 2^40": ("vector", "preprocess.width", 2**40),
    "info a list": ("image", "info", [1]),
    "frozen a number": ("image", "frozen", 3),
    "frozen unknown": ("image", "frozen", ["x"]),
    "weights_sha256 a list": ("image", "weights_sha256", []),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_configs_of_models(case, models, tmp_path):
    name, key, value = CONFIGS[case]
    folder = shutil.copytree(models / name, tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    *above, last = key.split(".")
    table = config[above[0]] if above else config
    table[last] = value
    (folder / "config.json").write_text(json.dumps(config))
    refused(Encoder.from_pretrained, folder)


@pytest.mark.parametrize("kind", [*ODD_FILES, "deep", "many digits", "not UTF-8", "empty", "huge"])
@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_files_of_models(kind, file, models, tmp_path):
    folder = shutil.copytree(models / "image", tmp_path / "m")
    path = folder / file
    path.unlink()
    if kind in ODD_FILES:
        ODD_FILES[kind](path)
    else:
        contents = {
            "deep": b'{"info": ' + b"[" * 10**5 + b"]" * 10**5 + b"}",
            "many digits": b'{"dim": ' + b"9" * 10**6 + b"}",
            "not UTF-8": b'{"dim": "\xff"}',
            "empty": b"",
            "huge": struct.pack("<Q", 2**62) + b"{}",
        }
        path.write_bytes(contents[kind])
    refused(Encoder.from_pretrained, folder, match=file.replace(".", r"\."))


RECIPES = {
    "slots 10^10": "[method]\nname = 'simplex_hoc'\nslots = 10000000000\n",
    "slots 10^30": f"[method]\nname = 'simplex_hoc'\nslots = {10**30}\n",
    "slots true": "[method]\nname = 'simplex_hoc'\nslots = true\n",
    "a width of 10^12": f"[backbone]\nname = 'small'\nwidth = {10**12}\n",
    "deep": "[train]\nx = " + "[" * 10**5 + "]" * 10**5,
    "deep names": "[train]\n" + ".".join("a" * 3000) + " = 1",
    "very deep names": ".".join("a" * 130_000) + " = 1",
    "very deep tables": "[" + " . ".join("a" * 60_000) + "]",
    "many digits": "seed = " + "9" * 5000,
    "a date": "seed = 1979-05-27",
    "not UTF-8": b"title = '\xff'",
    "huge": b"# " + b"a" * 10**6,
}


@pytest.mark.parametrize("text", RECIPES.values(), ids=RECIPES)
def test_recipes(text, tmp_path):
    changes = text if isinstance(text, bytes) else text.encode()
    base = read_recipe("demo")
    (tmp_path / "r.toml").write_bytes(changes)

    def read():
        given = read_recipe(str(tmp_path / "r.toml"))
        merged = {**base, **{key: value for key, value in given.items() if not isinstance(value, dict)}}
        for section in ("method", "backbone", "train"):
            merged[section] = given.get(section, base[section])
        recipe = check_recipe(merged)
        options = {key: value for key, value in recipe["method"].items() if key != "name"}
        build_method(recipe.method, {**options, "slots": options["slots"] or 60})
        build_backbone(recipe["backbone"]["name"], **options_of(recipe))

    refused(read)


def options_of(recipe):
    return {key: value for key, value in recipe["backbone"].items() if key != "name" and value is not None}


def npy(shape, dtype="<f4", data=b"", fortran=False):
    header = f"{{'descr': {dtype!r}, 'fortran_order': {fortran}, 'shape': {shape!r}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header + b"\n" + data


def npz(path, compression=zipfile.ZIP_STORED, **members):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            if isinstance(content, np.ndarray):
                file = io.BytesIO()
                np.save(file, content)
                content = file.getvalue()
            archive.writestr(f"{name}.npy", content)
    return path


GOOD = np.ones((4, 3), np.float32)
ARRAYS = {
    "10^12 rows": {"features": npy((10**12, 3))},
    "10^30 rows": {"features": npy((10**30, 3))},
    "no rows": {"features": npy((0, 3))},
    "negative": {"features": npy((-4, 3), data=bytes(48))},
    "a shape of text": {"features": npy(("a", 3))},
    "a shape of floats": {"features": npy((4.0, 3))},
    "one column": {"features": np.ones(4)},
    "objects": {"features": npy((4, 3), "|O", b"x" * 96)},
    "unknown type": {"features": npy((4, 3), "<q7", b"x" * 96)},
    "fields": {"features": npy((4,), [("a", "<f4")], bytes(16))},
    "empty": {"features": b""},
    "no npy": {"features": b"hello"},
    "a deep header": {"features": b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"(" * 9000},
    "a huge header": {"features": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b"{}"},
    "version 9": {"features": b"\x93NUMPY\x09\x00" + bytes(100)},
    "10^12 ids": {"features": GOOD, "ids": npy((10**12,), "<i8")},
    "10^12 empty ids": {"features": GOOD, "ids": npy((10**12,), "<U0")},
    "ids that are not UTF-8": {"features": GOOD, "ids": np.array([b"a\xff", b"b", b"c", b"d"])},
    "ids beyond Unicode": {"features": GOOD, "ids": npy((4,), "<U1", struct.pack("<4I", 1, 2, 3, 0x110000))},
    "ids of surrogates": {"features": GOOD, "ids": npy((4,), "<U1", struct.pack("<4I", 1, 2, 3, 0xD800))},
    "ids of dates": {"features": GOOD, "ids": np.zeros(4, "datetime64[s]")},
    "labels of complex numbers": {"features": GOOD, "labels": np.ones(4, complex)},
    "labels of NaN": {"features": GOOD, "labels": np.full(4, np.nan)},
    "more bytes than the array": {"features": GOOD, "labels": npy((4,), "<i8", bytes(48))},
}


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("members", ARRAYS.values(), ids=ARRAYS)
def test_arrays(members, compression, tmp_path):
    refused(read_features, npz(tmp_path / "f.npz", compression, **members), "query", match=r"f\.npz")


def test_a_bomb_of_zeros_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "f.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("features.npy", "w") as member:
        member.write(npy((100_000, 1000)))
        for _ in range(100):
            member.write(bytes(4_000_000))
    assert path.stat().st_size < 10**6
    refused(read_features, path, "query", match="times its compressed size; save it uncompressed")


@pytest.mark.parametrize("array", ["features", "labels", "ids"])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_changed_byte_in_any_array_is_found(array, compression, tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    arrays = {
        "features": draw.random((40, 8), np.float32),
        "labels": draw.integers(0, 99, 40),
        "ids": draw.permutation(40),
    }
    path = npz(tmp_path / "f.npz", compression, **arrays)
    assert len(read_features(path, "query")) == 40
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(f"{array}.npy")
    content = bytearray(path.read_bytes())
    content[info.header_offset + 30 + len(info.filename) + info.compress_size - 9] ^= 4
    path.write_bytes(content)
    refused(read_features, path, "query", match=r"f\.npz: not readable as npz")
    refused(check, path, path, path, match=r"f\.npz: not readable as npz")
    if (array, compression) == ("features", zipfile.ZIP_STORED):
        monkeypatch.setenv(SKIP_CRC, "1")
        assert len(read_features(path, "query")) == 40  # mapped, not read


def test_a_changed_byte_in_parquet_is_found(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "f.parquet"
    write_features(path, feature_set("x", np.random.default_rng(0).random((400, 8))))
    assert len(read_features(path, "query")) == 400
    content = bytearray(path.read_bytes())
    content[2000] ^= 4
    path.write_bytes(content)
    refused(read_features, path, "query", match=r"f\.parquet: not readable as parquet")


@pytest.mark.parametrize("seed", range(4))
def test_mutated_feature_files(seed, tmp_path):
    """300 mutations of an npz each: refused in one line, or read."""
    draw = np.random.default_rng(seed)
    path = npz(
        tmp_path / "f.npz", (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)[seed % 2], features=GOOD, ids=np.arange(4)
    )
    original, found = path.read_bytes(), 0
    for _ in range(300):
        content = bytearray(original)
        for place in draw.integers(0, len(content), draw.integers(1, 6)):
            content[place] = draw.integers(0, 256)
        path.write_bytes(content[: draw.integers(1, len(content))] if draw.random() < 0.1 else content)
        try:
            read_features(path, "query")
        except HoldfastError as error:
            found += "\n" not in str(error)
    assert found > 200


def test_names_in_an_npz(tmp_path):
    path = npz(tmp_path / "f.npz", **{"a\nb": GOOD, "features": GOOD})
    with open_npz(path) as pack:
        assert pack.names == ["a\nb", "features"]
    assert read_features(npz(path, **{"a\nb": GOOD}), "query").rows.shape == GOOD.shape  # the only one
    refused(read_features, npz(path, **{"a\nb": GOOD, "c": GOOD}), "query", match=r"it has a\\nb, c; name one")
    path.write_bytes(npy((4, 3), data=bytes(48)))
    refused(read_features, path, "query", match="holds a single array")

"""``embed``: the vectors are those of ``Encoder.encode``, with ids, labels and the model's hash; what is refused."""

import json

import numpy as np
import pytest
import torch

from holdfast import Encoder, HoldfastError, VectorInput, build_backbone, embed
from holdfast.vectors import write_features
from holdfast.vectors.feature_files import read_features


@pytest.fixture(scope="module")
def vector_model(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models") / "vectors"
    Encoder(build_backbone("mlp", in_channels=6, hidden=8, width=7), 5, preprocess=VectorInput(6)).save_pretrained(
        folder
    )
    return folder


def test_the_vectors_are_those_of_the_encoder(photos, model):
    seen = []
    found = embed(model, photos, batch_size=4, progress=lambda done, total: seen.append((done, total)))
    ids = found.features.ids.tolist()
    assert ids == sorted(file.relative_to(photos).as_posix() for file in photos.rglob("*.png"))
    assert found.features.labels.tolist() == [name.split("/")[0] for name in ids]
    encoder = Encoder.from_pretrained(model)
    expected = encoder.encode([photos / name for name in ids], batch_size=4).numpy()
    vectors = found.features.rows.block(0, 11)
    assert vectors.dtype == np.float32
    assert np.array_equal(vectors, expected)
    assert seen == [(4, 11), (8, 11), (11, 11)]
    assert found.features.model == json.loads((model / "config.json").read_text())["weights_sha256"]
    own = embed(encoder, [photos / "cat", photos / "dog"], labels=False)
    assert own.features.model is None
    assert own.features.labels is None
    assert np.allclose(own.features.rows.block(0, 11), expected, atol=1e-6)


def test_all_unreadable_images_are_named_at_once_or_skipped(photos, model, tmp_path):
    for file in photos.rglob("*.png"):
        copy = tmp_path / file.relative_to(photos)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(file.read_bytes())
    for name in ("cat/1.png", "dog/8.png"):
        (tmp_path / name).write_bytes(b"not an image")
    with pytest.raises(HoldfastError, match=r"2 problems among 11 files: cat/1\.png: .*; dog/8\.png: "):
        embed(model, tmp_path, batch_size=2)
    found = embed(model, tmp_path, batch_size=2, skip_unreadable=True)
    assert [one.path for one in found.skipped] == [tmp_path / "cat/1.png", tmp_path / "dog/8.png"]
    assert all(one.reason.startswith("not readable as an image") for one in found.skipped)
    whole = embed(model, photos, batch_size=2).features
    kept = [row for row, name in enumerate(whole.ids) if name not in ("cat/1.png", "dog/8.png")]
    assert found.features.ids.tolist() == whole.ids[kept].tolist()
    assert np.array_equal(found.features.rows.block(0, 9), whole.rows.block(0, 11)[kept])
    with pytest.raises(HoldfastError, match=r"cat/1\.png"):
        embed(model, tmp_path / "cat" / "1.png", skip_unreadable=True)


def test_nothing_is_embedded_where_a_file_is_known_to_be_unusable(photos, model, tmp_path):
    """An error that is certain at the start comes before the network runs, and names what cannot be decoded too."""
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "cat" / "bad.png").write_bytes(b"not an image")
    (tmp_path / "cat" / "1.png").write_bytes((photos / "cat" / "1.png").read_bytes())
    seen = []
    with pytest.raises(HoldfastError, match=r"2 problems among 3 files: cat/gone\.png: .*; cat/bad\.png: not readable"):
        embed(model, tmp_path, batch_size=1, progress=lambda done, total: seen.append(done))
    assert not seen
    assert len(embed(model, tmp_path, skip_unreadable=True).skipped) == 2


def test_vectors(vector_model, tmp_path):
    rows = np.random.default_rng(1).standard_normal((9, 6)).astype(np.float32)
    np.savez(tmp_path / "in.npz", features=rows, labels=np.arange(9) % 3)
    found = embed(vector_model, tmp_path / "in.npz", batch_size=4)
    expected = Encoder.from_pretrained(vector_model).encode(rows).numpy()
    assert np.allclose(found.features.rows.block(0, 9), expected, atol=1e-6)
    assert found.features.ids.tolist() == list(range(9))
    assert found.features.labels.tolist() == (np.arange(9) % 3).tolist()
    rows[3], rows[7, 2] = 0, np.nan
    np.savez(tmp_path / "bad.npz", features=rows, ids=[f"item {row}" for row in range(9)])
    with pytest.raises(HoldfastError, match=r"2 problems among 9 vectors: .*row 3, id item 3: .*row 7, id item 7: "):
        embed(vector_model, tmp_path / "bad.npz", batch_size=2)
    skipped = embed(vector_model, tmp_path / "bad.npz", skip_unreadable=True)
    assert [one.reason.split(":")[0] for one in skipped.skipped] == ["row 3, id item 3", "row 7, id item 7"]
    assert np.allclose(skipped.features.rows.block(0, 7), np.delete(expected, [3, 7], axis=0), atol=1e-6)


def test_source_and_model_must_fit(photos, model, vector_model, tmp_path):
    np.savez(tmp_path / "wide.npz", features=np.ones((3, 7)))
    with pytest.raises(HoldfastError, match="vectors of 7 numbers, but the model takes 6"):
        embed(vector_model, tmp_path / "wide.npz")
    with pytest.raises(HoldfastError, match="takes vectors of 6 numbers; give one npz"):
        embed(vector_model, photos)
    with pytest.raises(HoldfastError, match="a file of vectors, but the model takes images"):
        embed(model, tmp_path / "wide.npz")
    with pytest.raises(HoldfastError, match="has no preprocess"):
        embed(Encoder(build_backbone("small", width=4)), photos)
    with pytest.raises(HoldfastError, match="batch_size must be at least 1"):
        embed(model, photos, batch_size=0)


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_written_features_are_read_again(photos, model, tmp_path, suffix, dtype):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    features = embed(model, photos).features
    file = tmp_path / f"out.{suffix}"
    write_features(file, features, dtype=dtype)
    again = read_features(file, "gallery")
    assert again.ids.tolist() == features.ids.tolist()
    assert again.labels.tolist() == features.labels.tolist()
    assert again.model == features.model
    wanted = features.rows.block(0, 11).astype(dtype)
    assert np.array_equal(again.rows.block(0, 11).astype(dtype), wanted)
    assert [one.name for one in tmp_path.iterdir()] == [file.name]


def test_a_file_that_cannot_be_written_is_refused(photos, model, tmp_path):
    features = embed(model, photos).features
    with pytest.raises(HoldfastError, match=r"unknown kind of feature file to write .*known: \.npz, \.parquet"):
        write_features(tmp_path / "out.csv", features)
    with pytest.raises(HoldfastError, match="unknown type of features 'int8'; known: float16, float32"):
        write_features(tmp_path / "out.npz", features, dtype="int8")

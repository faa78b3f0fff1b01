"""``embed_shards``: the vectors of ``embed`` in shards, resumed by shard, refused for another model or source."""

import json
import os
import signal

import numpy as np
import pytest
import torch

from holdfast import Encoder, HoldfastError, VectorInput, build_backbone, embed, embed_shards
from holdfast.embedders import embed_shards as shards
from holdfast.embedders import processes
from holdfast.embedders.embed_shards import expand_devices
from holdfast.vectors.feature_files import read_features
from holdfast.vectors.feature_shards import FeatureShards, read_manifest, shard_name

pytest.importorskip("pyarrow")


def all_shards(folder):
    """Ids, vectors and labels of all shards together."""
    found = list(FeatureShards(folder))
    labels = [label for one in found for label in one.labels or ()]
    return [name for one in found for name in one.ids], np.concatenate([one.vectors for one in found]), labels


@pytest.fixture(scope="module")
def written(photos, model, tmp_path_factory):
    """Shards of four items each."""
    folder = tmp_path_factory.mktemp("shards") / "out"
    return embed_shards(model, photos, folder, shard_size=4, batch_size=3), folder


def test_shards_hold_what_embed_returns(written, photos, model):
    done, folder = written
    assert (done.vectors, done.written, done.skipped) == (11, 3, [])
    ids, vectors, labels = all_shards(folder)
    whole = embed(model, photos).features
    assert ids == whole.ids.tolist()
    assert labels == whole.labels.tolist()
    assert np.allclose(vectors, whole.rows.block(0, 11), atol=1e-6)
    assert np.array_equal(vectors[:3], embed(model, photos, batch_size=3).features.rows.block(0, 3))
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["model"], manifest["dim"], manifest["shards"]) == (whole.model, whole.dim, 3)
    assert sorted(file.name for file in folder.glob("[!.]*")) == ["manifest.json", *map(shard_name, range(3))]
    one = read_features(folder / shard_name(1), "gallery")  # a shard is a feature file by itself
    assert (one.ids.tolist(), one.model) == (ids[4:8], whole.model)
    together = read_features(folder, "gallery")  # and all of them can be checked, bridged and registered
    assert (together.ids.tolist(), together.labels.tolist(), together.model) == (ids, labels, whole.model)
    assert np.array_equal(together.rows.block(0, 11), vectors)
    (first, *_) = FeatureShards(folder)
    assert first.paths == [str(photos / name) for name in ids[:4]]


def test_a_killed_call_continues_with_the_missing_shards(written, photos, model, tmp_path, monkeypatch):
    def fail_at_second(folder, number, *rest):
        if number == 1:
            (tmp_path / "out" / ".tmp-left").touch()
            raise KeyboardInterrupt
        return write(folder, number, *rest)

    write = shards.write_shard
    monkeypatch.setattr(shards, "write_shard", fail_at_second)
    with pytest.raises(KeyboardInterrupt):
        embed_shards(model, photos, tmp_path / "out", shard_size=4, batch_size=3)
    with pytest.raises(HoldfastError, match="2 of 3 shards missing; run the same holdfast embed command again"):
        FeatureShards(tmp_path / "out")
    monkeypatch.undo()
    first = (tmp_path / "out" / shard_name(0)).stat().st_mtime_ns
    seen = []
    done = embed_shards(model, photos, tmp_path / "out", batch_size=3, progress=lambda *now: seen.append(now))
    assert (done.written, done.manifest.shard_size) == (2, 4)
    assert seen[0] == (7, 11)
    assert seen[-1] == (11, 11)
    assert (tmp_path / "out" / shard_name(0)).stat().st_mtime_ns == first
    assert not (tmp_path / "out" / ".tmp-left").exists()
    for mine, uninterrupted in zip(all_shards(tmp_path / "out"), all_shards(written[1]), strict=True):
        assert np.array_equal(mine, uninterrupted)


def test_another_model_source_or_option_is_refused(written, photos, model, other_model, tmp_path):
    _, folder = written
    for change, message in (
        ({"model": other_model}, r"holds shards of another model \(\w{12}, now \w{12}\); choose another folder"),
        ({"source": photos / "cat"}, "of another source or with other labels"),
        ({"labels": False}, "of another source or with other labels"),
        ({"dtype": "float16"}, r"of another type \(float32, now float16\)"),
        ({"shard_size": 5}, r"of another size \(4, now 5\)"),
    ):
        with pytest.raises(HoldfastError, match=message):
            embed_shards(**{"model": model, "source": photos, "out": folder, **change})
    (tmp_path / "notes.txt").touch()
    with pytest.raises(HoldfastError, match="already there, and not a folder of shards"):
        embed_shards(model, photos, tmp_path)
    with pytest.raises(HoldfastError, match="a file; shards are written to a folder"):
        embed_shards(model, photos, tmp_path / "notes.txt")
    with pytest.raises(HoldfastError, match="batch_size must be at least 1"):
        embed_shards(model, photos, folder, batch_size=0)


def test_unreadable_items_hold_back_their_shard_only(photos, model, tmp_path):
    source, out = tmp_path / "photos", tmp_path / "out"
    for file in photos.rglob("*.png"):
        copy = source / file.relative_to(photos)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes() if file.name != "1.png" else b"not an image")
    with pytest.raises(HoldfastError, match=r"cat/1\.png: not readable .*--skip-unreadable.*; 1 of 3 shards are not"):
        embed_shards(model, source, out, shard_size=4, batch_size=3)
    assert "cat/1.png" in (out / "unreadable.csv").read_text()
    done = embed_shards(model, source, out, skip_unreadable=True, batch_size=3)
    assert (done.written, done.vectors) == (1, 10)
    assert [one.path for one in done.skipped] == [source / "cat/1.png"]
    assert "cat/1.png" not in all_shards(out)[0]
    again = embed_shards(model, source, out, skip_unreadable=True)
    assert (again.written, again.skipped) == (0, done.skipped)


def test_float16_without_labels_and_vectors_as_input(tmp_path):
    torch.manual_seed(0)
    network = build_backbone("mlp", in_channels=6, hidden=8, width=7)
    Encoder(network, 5, preprocess=VectorInput(6)).save_pretrained(tmp_path / "model")
    rows = np.random.default_rng(1).standard_normal((9, 6)).astype(np.float32)
    rows[3] = 0
    np.savez(tmp_path / "in.npz", features=rows, labels=np.arange(9) % 3)
    options = {"shard_size": 4, "dtype": "float16", "labels": False, "skip_unreadable": True}
    done = embed_shards(tmp_path / "model", tmp_path / "in.npz", tmp_path / "out", **options)
    assert (done.vectors, done.manifest.dtype, done.manifest.labels) == (8, "float16", False)
    ids, vectors, labels = all_shards(tmp_path / "out")
    assert (ids, labels) == ([str(row) for row in range(9) if row != 3], [])
    expected = Encoder.from_pretrained(tmp_path / "model").encode(np.delete(rows, 3, axis=0)).numpy()
    assert np.allclose(vectors, expected, atol=1e-3)


@pytest.mark.slow
def test_several_processes_write_the_same(written, photos, model, tmp_path):
    done = embed_shards(model, photos, tmp_path / "out", shard_size=4, batch_size=3, processes=2)
    assert done.written == 3
    for mine, alone in zip(all_shards(tmp_path / "out"), all_shards(written[1]), strict=True):
        assert np.array_equal(mine, alone)


@pytest.mark.slow
def test_a_process_that_is_killed_is_reported_and_its_shards_are_made_next_time(photos, model, tmp_path, monkeypatch):
    real = processes._received

    def kill_once(end, process):
        os.kill(process.pid, signal.SIGKILL)
        return real(end, process)

    monkeypatch.setattr(processes, "_received", kill_once)
    with pytest.raises(HoldfastError, match="ended with status -9; finished shards are kept"):
        embed_shards(model, photos, tmp_path / "out", shard_size=4, processes=2)
    monkeypatch.undo()
    assert embed_shards(model, photos, tmp_path / "out").vectors == 11


def test_devices_of_the_processes(monkeypatch):
    assert expand_devices("cpu", 3) == ["cpu"] * 3
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    both = ["cuda:0", "cuda:1"]
    assert expand_devices("auto") == expand_devices("cuda") == expand_devices("cuda:0,cuda:1") == both
    assert expand_devices("cuda:1") == both[1:]
    with pytest.raises(HoldfastError, match="the same device twice"):
        expand_devices("cuda:0,cuda:0")
    with pytest.raises(HoldfastError, match="on GPUs there is one process for each"):
        expand_devices("cuda", 2)


def test_damaged_folders_are_refused_in_one_line(written, tmp_path):
    _, folder = written
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / shard_name(1)).write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(HoldfastError, match=r"shard-000001\.parquet: not readable as parquet"):
        list(FeatureShards(tmp_path))
    (tmp_path / shard_name(1)).write_bytes((folder / shard_name(1)).read_bytes())
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    for change, message in (({"dim": 7}, "must hold 7 numbers a row"), ({"model": "x"}, "made by another model")):
        (tmp_path / "manifest.json").write_text(json.dumps({**manifest, **change}))
        with pytest.raises(HoldfastError, match=message):
            list(FeatureShards(tmp_path))
    for text in ("[]", "{}", json.dumps({**manifest, "shard_size": 0}), json.dumps({**manifest, "items": "many"})):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(HoldfastError, match=r"not a manifest of shards|damaged"):
            read_manifest(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(HoldfastError, match="not a folder of shards"):
        read_manifest(tmp_path)

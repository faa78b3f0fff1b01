"""The same on Ray: the vectors of one process, and errors in one line."""

import numpy as np
import pytest

from holdfast import HoldfastError, embed_shards
from holdfast.embedders.on_ray import _Collected, ray_cluster
from holdfast.vectors.feature_shards import FeatureShards

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster():
    """A Ray of this process's own, with two CPUs."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.mark.slow
def test_shards_made_on_ray_are_those_made_here(cluster, photos, model, tmp_path):
    options = {"shard_size": 4, "batch_size": 3}
    embed_shards(model, photos, tmp_path / "here", **options)
    seen = []
    done = embed_shards(model, photos, tmp_path / "ray", **options, ray="auto", progress=lambda *now: seen.append(now))
    assert (done.written, done.vectors, seen[-1]) == (3, 11, (11, 11))
    for mine, other in zip(FeatureShards(tmp_path / "ray"), FeatureShards(tmp_path / "here"), strict=True):
        assert (mine.ids, mine.labels, mine.paths) == (other.ids, other.labels, other.paths)
        assert np.array_equal(mine.vectors, other.vectors)  # one thread here and there, and the same batches
    assert embed_shards(model, photos, tmp_path / "ray", ray="auto").written == 0
    assert ray.is_initialized()  # a connection that was there stays


@pytest.mark.slow
def test_unreadable_items_and_damaged_tables_on_ray(cluster, photos, model, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    images = [file.read_bytes() for file in sorted(photos.rglob("*.png"))]
    images[5] = b"?"
    parquet.write_table(pyarrow.table({"bytes": images}), tmp_path / "in.parquet", write_page_checksum=True)
    out = tmp_path / "out"
    done = embed_shards(model, tmp_path / "in.parquet", out, shard_size=4, skip_unreadable=True, ray="auto")
    assert (done.vectors, [one.reason for one in done.skipped]) == (
        10,
        ["row 5: not readable as an image (unknown format, or damaged)"],
    )
    (out / "shard-000002.parquet").unlink()
    data = bytearray((tmp_path / "in.parquet").read_bytes())
    data[len(data) // 3] ^= 1
    (tmp_path / "in.parquet").write_bytes(data)
    with pytest.raises(HoldfastError, match=r"in\.parquet: not readable as parquet"):
        embed_shards(model, tmp_path / "in.parquet", out, skip_unreadable=True, ray="auto")


def test_an_address_without_a_cluster_is_refused_in_one_line(monkeypatch):
    def refuse(**options):
        raise ConnectionError("nobody there\nsecond line")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    message = r"--ray 10\.0\.0\.5:6379: no connection .*\(nobody there\)"
    with pytest.raises(HoldfastError, match=message), ray_cluster("10.0.0.5:6379"):
        pass


def test_batches_are_put_together_once_in_any_order():
    def row(start, count, reasons="{}"):
        vectors = np.arange(start, start + count, dtype=np.float32).repeat(2).tobytes()
        return {"start": start, "count": count, "vectors": vectors, "reasons": reasons}

    found = _Collected(5)
    assert found.add(row(3, 2, '{"1": "damaged"}')) == 2
    assert found.add(row(3, 2, '{"1": "damaged"}')) == 0  # a batch that arrives twice counts once
    assert not found.complete
    assert found.add(row(0, 3)) == 3
    assert found.complete
    assert found.embedded().vectors[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert found.embedded().reasons == {4: "damaged"}

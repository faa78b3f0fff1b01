"""S3 against a server that stands in for it: HOLDFAST_TEST_S3 is its address, such as moto_server's.

moto_server -p 5000 &
HOLDFAST_TEST_S3=http://127.0.0.1:5000 pytest tests/embedders/test_embedders_s3.py
"""

import os
import secrets

import numpy as np
import pytest

from holdfast import HoldfastError, embed, embed_shards
from holdfast.core.locations import join, list_files, read_bytes, write_bytes
from holdfast.vectors.feature_shards import FeatureShards

ENDPOINT = os.environ.get("HOLDFAST_TEST_S3")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not ENDPOINT, reason="HOLDFAST_TEST_S3 names no server")]


@pytest.fixture
def bucket(monkeypatch):
    """An empty bucket."""
    fs = pytest.importorskip("pyarrow.fs")
    settings = {"AWS_ENDPOINT_URL": ENDPOINT, "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in {**settings, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}.items():
        monkeypatch.setenv(name, value)
    name = f"holdfast-{secrets.token_hex(6)}"
    system, _ = fs.FileSystem.from_uri(f"s3://{name}/?allow_bucket_creation=true&allow_bucket_deletion=true")
    system.create_dir(name)
    yield f"s3://{name}"
    system.delete_dir(name)


def test_sources_and_shards_in_a_bucket(bucket, photos, model, tmp_path):
    import pyarrow
    import pyarrow.parquet as parquet

    whole = embed(model, photos).features
    ids, vectors = whole.ids.tolist(), whole.rows.block(0, 11)
    for name in ids:
        write_bytes(join(bucket, f"photos/{name}"), (photos / name).read_bytes())
    assert list_files(join(bucket, "photos"), recursive=True) == ids
    images = [(photos / name).read_bytes() for name in ids]
    parquet.write_table(pyarrow.table({"path": ids, "id": ids}), tmp_path / "paths.parquet")
    parquet.write_table(pyarrow.table({"bytes": images, "id": ids}), tmp_path / "bytes.parquet", row_group_size=4)
    for name in ("paths", "bytes"):
        write_bytes(join(bucket, f"photos/{name}.parquet"), (tmp_path / f"{name}.parquet").read_bytes())
    for number, source in enumerate(("photos", "photos/paths.parquet", "photos/bytes.parquet")):
        out = join(bucket, f"out{number}")
        done = embed_shards(model, join(bucket, source), out, shard_size=4, batch_size=11)
        assert (done.written, done.vectors) == (3, 11)
        assert embed_shards(model, join(bucket, source), out).written == 0
        shards = list(FeatureShards(out))
        assert [name for one in shards for name in one.ids] == ids
        assert np.allclose(np.concatenate([one.vectors for one in shards]), vectors, atol=1e-6)
    with pytest.raises(HoldfastError, match=r"s3://.*/none\.parquet: "):
        read_bytes(join(bucket, "none.parquet"), 10)

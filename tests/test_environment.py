"""What a result says about where it came from."""

import json

from holdfast.environment import commit, describe, processor, version


def test_description_is_plain_json():
    found = describe("cpu")
    assert json.loads(json.dumps(found)) == found
    assert found["device"] == "cpu"
    assert found["gpu"] is None
    assert {"torch", "numpy", "pillow", "safetensors"} <= found["packages"].keys()
    assert found["holdfast"] == version("holdfast-index")


def test_versions_and_names():
    assert version("no-such-package-at-all") is None
    assert processor()


def test_commit_is_short_or_absent():
    found = commit()
    assert found is None or len(found.removesuffix("+")) == 12

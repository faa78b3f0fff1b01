"""What a result says about where it came from."""

import json
import os
import subprocess
from pathlib import Path

from holdfast.core import environment
from holdfast.core.environment import commit, describe, processor, version


def test_description_is_plain_json():
    found = describe("cpu")
    assert json.loads(json.dumps(found)) == found
    assert found["device"] == "cpu"
    assert found["gpu"] is None
    assert {"torch", "numpy", "pillow", "safetensors"} <= found["packages"].keys()
    assert found["holdfast"] == version("holdfast-index")


def test_the_name_of_a_processor_that_the_kernel_gives_as_numbers(monkeypatch):
    monkeypatch.setattr(environment, "Path", lambda _: Path(os.devnull))
    said = "Architecture: aarch64\nVendor ID:   ARM\n  Model name:  Neoverse-N1\n"
    monkeypatch.setattr(subprocess, "run", lambda words, **_: subprocess.CompletedProcess(words, 0, said))
    assert processor() == "ARM Neoverse-N1"
    monkeypatch.setattr(subprocess, "run", lambda words, **_: subprocess.CompletedProcess(words, 1, ""))
    assert processor()


def test_commit_is_short_or_absent():
    found = commit()
    assert found is None or len(found.removesuffix("+")) == 12

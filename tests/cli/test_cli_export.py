"""``holdfast export`` as a user calls it."""

import json
import shutil

import numpy as np
import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder


def test_a_model_of_a_run_as_a_torch_program(holdfast, tiny_run, tmp_path):
    target = tmp_path / "model.pt2"
    assert "features of size" in holdfast("export", tiny_run / "models" / "03", target)
    said = {"holdfast.json": ""}
    program = torch.export.load(target, extra_files=said).module()
    pixels = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 1), dtype=np.uint8)
    expected = Encoder.from_pretrained(tiny_run / "models" / "03").encode(pixels)
    torch.testing.assert_close(program(torch.from_numpy(pixels.transpose(0, 3, 1, 2))), expected, atol=1e-4, rtol=0)
    about = json.loads(said["holdfast.json"])
    assert about["model"] == "03"
    assert about["info"]["task"] == 3
    assert about["info"]["slots"]
    assert len(about["weights_sha256"]) == 64


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("x.txt",), "ends in .onnx, or in .pt2"),
    ],
)
def test_refusals(words, reason, holdfast, tiny_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HoldfastError, match=reason):
        holdfast("export", tiny_run / "models" / "03", *words)
    assert not list(tmp_path.iterdir())


def test_a_model_edited_by_hand_is_refused(holdfast, tiny_run, tmp_path):
    model = tmp_path / "03"
    shutil.copytree(tiny_run / "models" / "03", model)
    weights = model / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(HoldfastError, match="sha256 differs"):
        holdfast("export", model, tmp_path / "m.pt2")
    assert not (tmp_path / "m.pt2").exists()

"""Exported files give what ``encode`` gives, in onnxruntime and as torch.export programs, for any batch size."""

import json
import logging

import numpy as np
import pytest
import torch
from torch import nn

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder, Preprocess, VectorInput, build_backbone, onnx_file
from holdfast.train.encoders.encoder_export import METADATA, export_onnx, export_torch

VIT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 16,
       "patch_size": 8}  # fmt: skip


def encoder_for(kind):
    torch.manual_seed(0)
    rgb = Preprocess(size=16, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))
    if kind == "small":
        grey = Preprocess(size=28, mean=(0.2,), std=(0.3,), colour="grey")
        encoder = Encoder(build_backbone("small", width=8), preprocess=grey, info={"task": 3})
    elif kind == "resnet18":
        encoder = Encoder(build_backbone("resnet18", stem="small"), 9, preprocess=rgb)
    elif kind == "vit":
        pytest.importorskip("transformers")
        encoder = Encoder(build_backbone("hf:vit", config=VIT), 9, preprocess=rgb)
    else:
        encoder = Encoder(build_backbone("mlp", in_channels=6, width=4), 3, preprocess=VectorInput(6, unit=True))
    encoder.train()(torch.randn(8, *encoder.preprocess.input_shape))  # so that batch norms have something to say
    return encoder.eval()


def some(encoder, count):
    """What ``encode`` takes and what the file takes for the same images."""
    rng = np.random.default_rng(count)
    if isinstance(encoder.preprocess, VectorInput):
        rows = rng.normal(size=(count, encoder.preprocess.width)).astype(np.float32)
        return rows, rows
    channels, height, width = encoder.preprocess.input_shape
    pixels = rng.integers(0, 256, (count, height, width, channels), dtype=np.uint8)
    return pixels, np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["small", "resnet18", "vit", "vectors"])
def test_onnx_gives_what_encode_gives(kind, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    encoder = encoder_for(kind)
    export_onnx(encoder, tmp_path / "model.onnx", about={"model": "03"})
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (taken,) = session.get_inputs()
    assert taken.name == ("vectors" if kind == "vectors" else "images")
    for count in (1, 2, 5):
        given, taken_by_file = some(encoder, count)
        (found,) = session.run(["features"], {taken.name: taken_by_file})
        np.testing.assert_allclose(found, encoder.encode(given).numpy(), atol=1e-4)
    said = session.get_modelmeta().custom_metadata_map
    assert json.loads(said["holdfast.preprocess"]) == encoder.preprocess.to_json()
    assert json.loads(said["holdfast.dim"]) == encoder.dim
    assert json.loads(said["holdfast.info"]) == encoder.info
    assert said["holdfast.model"] == "03"
    assert said["holdfast.version"]
    projection = None if encoder.projection is None else list(encoder.projection.weight.shape)
    assert json.loads(said["holdfast.projection"]) == projection


SLOWLY = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("resnet18", "vit")]


@pytest.mark.parametrize("kind", ["small", *SLOWLY, "vectors"])
def test_torch_export_gives_what_encode_gives(kind, tmp_path):
    encoder = encoder_for(kind)
    encoder.train()
    export_torch(encoder, tmp_path / "model.pt2")
    assert encoder.training, "the encoder itself is left as it was"
    said = {METADATA: ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=said).module()
    for count in (1, 2, 5):
        given, taken_by_file = some(encoder, count)
        found = program(torch.from_numpy(taken_by_file))
        np.testing.assert_allclose(found.numpy(), encoder.encode(given).numpy(), atol=1e-4)
    assert json.loads(said[METADATA])["preprocess"] == encoder.preprocess.to_json()


class Branching(nn.Module):
    """What happens depends on what is seen: no graph can say that."""

    feature_dim = 3

    def forward(self, x):
        return x.mean(dim=(2, 3)) if x.sum() > 0 else -x.mean(dim=(2, 3))


def test_what_cannot_be_exported_is_one_line_and_no_file(tmp_path):
    with pytest.raises(HoldfastError, match="has no preprocess"):
        export_torch(Encoder(Branching()), tmp_path / "m.pt2")
    encoder = Encoder(Branching(), preprocess=Preprocess(size=4, mean=(0, 0, 0), std=(1, 1, 1)))
    with pytest.raises(HoldfastError, match="cannot be exported by torch") as error:
        export_torch(encoder, tmp_path / "m.pt2")
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_what_onnx_cannot_say_is_one_line_and_no_file(tmp_path):
    pytest.importorskip("onnxscript")
    encoder = Encoder(Branching(), preprocess=Preprocess(size=4, mean=(0, 0, 0), std=(1, 1, 1)))
    with pytest.raises(HoldfastError, match="cannot be written as ONNX") as error:
        export_onnx(encoder, tmp_path / "m.onnx")
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_weights_beyond_one_onnx_file_are_refused_before_tracing(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_file, "MAX_BYTES", 1000)
    with pytest.raises(HoldfastError, match="one ONNX file holds 2; export it for torch"):
        export_onnx(encoder_for("small"), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_logging_is_left_as_it_was(tmp_path):
    logging.disable(logging.ERROR)
    try:
        export_torch(encoder_for("vectors"), tmp_path / "model.pt2")
        assert logging.root.manager.disable == logging.ERROR
    finally:
        logging.disable(logging.NOTSET)

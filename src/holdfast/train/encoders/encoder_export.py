"""Export an encoder to one file for other runtimes: ONNX, or torch.export.

The exported graph takes resized pixels (0 to 255) or vectors and returns the unit features of ``encode``. Scaling,
projection and normalisation are part of the graph and are described in the file's metadata.
"""

import copy
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.core.environment import DISTRIBUTION, version
from holdfast.core.errors import HoldfastError, first_line
from holdfast.core.storage import replacing
from holdfast.train.encoders.encoder import Encoder
from holdfast.train.encoders.onnx_file import quiet_exporters, write_onnx
from holdfast.train.encoders.preprocess import Preprocess, VectorInput
from holdfast.train.geometry import unit_of_any_length

METADATA = "holdfast.json"
"""Name of the metadata inside a torch.export file; in ONNX each entry is a property."""


class _Exported(nn.Module):
    """uint8 N x C x H x W (or float32 N x D) -> unit float32 N x dim."""

    mean: Tensor
    std: Tensor

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        assert encoder.preprocess is not None
        self.encoder = encoder
        self.vectors = encoder.preprocess.takes_vectors
        self.unit = isinstance(encoder.preprocess, VectorInput) and encoder.preprocess.unit
        if isinstance(encoder.preprocess, Preprocess):
            self.register_buffer("mean", torch.tensor(encoder.preprocess.mean).view(1, -1, 1, 1))
            self.register_buffer("std", torch.tensor(encoder.preprocess.std).view(1, -1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        if not self.vectors:
            x = (x.float() / 255 - self.mean) / self.std
        elif self.unit:
            x = unit_of_any_length(x)
        return F.normalize(self.encoder.embedding_network(x), dim=1)


def export_onnx(encoder: Encoder, path: str | Path, *, about: Mapping[str, Any] | None = None) -> None:
    """Write ``encoder`` to an ONNX file with input ``images`` or ``vectors`` and output ``features``; any batch size.

    about: additional metadata, such as the name of the model.
    Needs onnx and onnxscript.
    """
    network, example = _prepared(encoder)
    names = ("vectors" if network.vectors else "images", "features")
    write_onnx(network, example, path, names=names, metadata=_metadata(encoder, about))


def export_torch(encoder: Encoder, path: str | Path, *, about: Mapping[str, Any] | None = None) -> None:
    """Write ``encoder`` as a ``torch.export`` program; load it by ``torch.export.load(path).module()``. Any batch size.

    about: additional metadata, such as the name of the model.
    """
    network, example = _prepared(encoder)
    try:
        with quiet_exporters():
            program = torch.export.export(network, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    except Exception as error:  # tracing raises any exception
        raise HoldfastError(f"this network cannot be exported by torch: {first_line(error)}") from error
    buffer = io.BytesIO()  # given a path, torch.export requires its own suffix
    with quiet_exporters():
        torch.export.save(program, buffer, extra_files={METADATA: json.dumps(_metadata(encoder, about))})
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(buffer.getvalue())


def _prepared(encoder: Encoder) -> tuple[_Exported, Tensor]:
    """The network in eval mode on the CPU, and a batch of two to trace it (a batch of one would become a constant)."""
    preprocess = encoder.preprocess
    if preprocess is None:
        raise HoldfastError("the encoder has no preprocess, so its input is not known; pass Encoder(..., preprocess=)")
    dtype = torch.float32 if preprocess.takes_vectors else torch.uint8
    network = _Exported(copy.deepcopy(encoder)).cpu().float().eval().requires_grad_(False)
    return network, torch.ones((2, *preprocess.input_shape), dtype=dtype)


def _metadata(encoder: Encoder, about: Mapping[str, Any] | None) -> dict[str, Any]:
    """The metadata of the file."""
    assert encoder.preprocess is not None
    spec = getattr(encoder.backbone, "backbone_spec", None)
    return {
        "version": version(DISTRIBUTION) or "unknown",
        "preprocess": encoder.preprocess.to_json(),
        "backbone": type(encoder.backbone).__name__ if spec is None else spec["name"],
        "dim": encoder.embedding_dim,
        "projection": None if encoder.embedding_dim == encoder.feature_dim else [encoder.dim, encoder.feature_dim],
        "readout": encoder.readout,
        "output": "unit float32 features; compare them by their dot product",
        "info": encoder.info,
        **(about or {}),
    }

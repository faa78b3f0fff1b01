"""An encoder as one file for other runtimes: ONNX, or torch.export.

The file takes what ``encode`` takes behind its resizing (pixels 0 to 255, or vectors) and gives what it gives: unit
features. Scaling, projection and normalisation are part of the graph; the file's metadata says what they are.
"""

import contextlib
import copy
import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.encoders.encoder import Encoder
from holdfast.encoders.preprocess import VectorInput
from holdfast.environment import version
from holdfast.errors import HoldfastError, how_to_install
from holdfast.storage import replacing

METADATA = "holdfast.json"
"""The name of the metadata inside a torch.export file; in ONNX each entry is a property of its own."""

OPSET = 18

MOST_BYTES = 2**31 - 2**20
"""An ONNX file is one protobuf message, which holds 2 GiB; the graph beside the weights takes little of it."""


class _Exported(nn.Module):
    """uint8 N x C x H x W (or float32 N x D) -> unit float32 N x dim."""

    mean: Tensor
    std: Tensor

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        assert encoder.preprocess is not None
        self.encoder = encoder
        self.vectors = isinstance(encoder.preprocess, VectorInput)
        self.unit = isinstance(encoder.preprocess, VectorInput) and encoder.preprocess.unit
        if not isinstance(encoder.preprocess, VectorInput):
            self.register_buffer("mean", torch.tensor(encoder.preprocess.mean).view(1, -1, 1, 1))
            self.register_buffer("std", torch.tensor(encoder.preprocess.std).view(1, -1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        if not self.vectors:
            x = (x.float() / 255 - self.mean) / self.std
        elif self.unit:
            x = F.normalize(x, dim=1)
        return F.normalize(self.encoder(x), dim=1)


def export_onnx(encoder: Encoder, path: str | Path, *, about: Mapping[str, Any] | None = None) -> None:
    """Write ``encoder`` to an ONNX file: input ``images`` or ``vectors``, output ``features``, any batch size.

    about: more for the metadata, such as the name of the model. Needs onnx and onnxscript.
    """
    network, example = _prepared(encoder)
    size = sum(tensor.nbytes for tensor in network.state_dict().values())
    if size > MOST_BYTES:
        raise HoldfastError(f"the weights take {size / 2**30:.1f} GiB and one ONNX file holds 2; export it for torch")
    name = "vectors" if network.vectors else "images"
    try:
        with _quiet():
            program = torch.onnx.export(
                network,
                (example,),
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=[name],
                output_names=["features"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
            )
        assert program is not None
        model = program.model_proto
    except ImportError as error:
        raise HoldfastError(f"ONNX needs onnx and onnxscript ({error}); {how_to_install('onnx')}") from error
    except HoldfastError:
        raise
    except Exception as error:  # the exporter's errors have no common type
        raise HoldfastError(f"this network cannot be written as ONNX: {_first_line(error)}") from error
    for key, value in _metadata(encoder, about).items():
        entry = model.metadata_props.add()
        entry.key, entry.value = f"holdfast.{key}", value if isinstance(value, str) else json.dumps(value)
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(model.SerializeToString())


def export_torch(encoder: Encoder, path: str | Path, *, about: Mapping[str, Any] | None = None) -> None:
    """Write ``encoder`` as a ``torch.export`` program; ``torch.export.load(path).module()`` runs it, any batch size."""
    network, example = _prepared(encoder)
    try:
        with _quiet():
            program = torch.export.export(network, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    except Exception as error:  # whatever in the network cannot be traced
        raise HoldfastError(f"this network cannot be exported by torch: {_first_line(error)}") from error
    buffer = io.BytesIO()  # torch.export insists on its own suffix where it is given a path
    with _quiet():
        torch.export.save(program, buffer, extra_files={METADATA: json.dumps(_metadata(encoder, about))})
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(buffer.getvalue())


def _prepared(encoder: Encoder) -> tuple[_Exported, Tensor]:
    """The network in eval mode on the CPU, and a batch of two to trace it with: one would be taken for a constant."""
    preprocess = encoder.preprocess
    if preprocess is None:
        raise HoldfastError("the encoder has no preprocess, so the file could not say what its input is; give it one")
    dtype = torch.float32 if isinstance(preprocess, VectorInput) else torch.uint8
    network = _Exported(copy.deepcopy(encoder)).cpu().float().eval().requires_grad_(False)
    return network, torch.ones((2, *preprocess.input_shape), dtype=dtype)


def _metadata(encoder: Encoder, about: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the file says of itself."""
    assert encoder.preprocess is not None
    spec = getattr(encoder.backbone, "backbone_spec", None)
    return {
        "version": version("holdfast") or "unknown",
        "preprocess": encoder.preprocess.to_json(),
        "backbone": type(encoder.backbone).__name__ if spec is None else spec["name"],
        "dim": encoder.dim,
        "projection": None if encoder.projection is None else [encoder.dim, encoder.feature_dim],
        "output": "unit float32 features; compare them by their dot product",
        "info": encoder.info,
        **(about or {}),
    }


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Exporters log and warn about their own ways; what matters here is whether the result agrees, which is tested."""
    before = logging.root.manager.disable  # the program around us may have silenced more
    logging.disable(max(before, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__

"""A bridge as one file for somebody's own query path: NumPy arrays, or ONNX."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.bridges.bridge import Bridge
from holdfast.bridges.choice import NONE
from holdfast.bridges.maps import LinearMap
from holdfast.core.environment import DISTRIBUTION, version
from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.core.storage import replacing
from holdfast.train.encoders.onnx_file import write_onnx
from holdfast.train.geometry import unit_of_any_length


def export_bridge(bridge: Bridge, path: str | Path) -> None:
    """Write the bridge as npz or ONNX; the suffix of ``path`` decides. An existing file is replaced in one step."""
    path = Path(path)
    if path.suffix.lower() not in EXPORTS:
        raise unknown_name(f"kind of export ({path})", path.suffix, EXPORTS)
    EXPORTS[path.suffix.lower()](bridge, path)


def export_npz(bridge: Bridge, path: str | Path) -> None:
    """Write the arrays ``weight`` (d_new x d_old), ``bias`` (d_old), ``slope`` and ``offset``.

    For unit queries Q x d_new, ``queries @ weight + bias``, scaled to unit rows, are the bridged queries, and
    ``offset + slope * cosine`` is the score that can be merged with the scores of the newest version. Kind "none" has
    the identity as its weight. Refused: kinds that are not linear.
    """
    if bridge.map is not None and not isinstance(bridge.map, LinearMap):
        raise HoldfastError(
            f"{path}: a bridge of kind {bridge.kind} is more than one matrix; export it as .onnx, or fit another kind"
        )
    if bridge.kind == NONE and bridge.dims[0] != bridge.dims[1]:
        raise HoldfastError(f"{path}: this bridge maps nothing, but the two spaces are stored in different sizes")
    size, _ = bridge.dims
    weight, bias = (bridge.map.weight, bridge.map.bias) if bridge.map else (torch.eye(size), torch.zeros(size))
    with replacing(Path(path)) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            weight=weight.numpy(),
            bias=bias.numpy(),
            slope=np.float64(bridge.scale.slope),
            offset=np.float64(bridge.scale.offset),
        )


def export_onnx(bridge: Bridge, path: str | Path) -> None:
    """Write an ONNX file with input ``vectors`` (Q x d_new) and output ``queries`` (Q x d_old, unit rows), all kinds.

    Its metadata has the kind, the sizes, ``slope`` and ``offset`` of the score. Needs onnx and onnxscript.
    """
    metadata = {
        "version": version(DISTRIBUTION) or "unknown",
        "kind": bridge.kind,
        "dims": list(bridge.dims),
        "models": bridge.models,
        "slope": bridge.scale.slope,
        "offset": bridge.scale.offset,
        "output": "unit float32 queries in the old model's space; merged score = offset + slope * cosine",
    }
    example = torch.ones(2, bridge.dims[0])
    write_onnx(_Exported(bridge).eval(), example, path, names=("vectors", "queries"), metadata=metadata)


EXPORTS: dict[str, Callable[[Bridge, Path], None]] = {".npz": export_npz, ".onnx": export_onnx}
"""Functions that write a bridge, by the suffix of the file."""


class _Exported(nn.Module):
    """float32 Q x d_new of any length -> unit float32 Q x d_old, as ``Bridge.__call__``."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__()
        self._map = bridge.map

    def forward(self, vectors: Tensor) -> Tensor:
        queries = unit_of_any_length(vectors)
        if self._map is None:
            return queries
        return F.normalize(self._map(queries), dim=1) * (queries.norm(dim=1, keepdim=True) > 0)

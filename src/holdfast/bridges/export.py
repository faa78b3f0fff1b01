"""A bridge as one file for somebody's own query path: NumPy arrays, or ONNX."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.bridges.bridge import Bridge
from holdfast.bridges.choice import NONE
from holdfast.bridges.maps import LinearMap, Local
from holdfast.core.environment import DISTRIBUTION, version
from holdfast.core.errors import HoldfastError, how_to_install, unknown_name
from holdfast.core.storage import replacing
from holdfast.vectors.lengths import LONGEST, NEARLY_ZERO, SHORTEST

_OPSET, _IR = 18, 10
"""Versions of ONNX's operators and of its files that runtimes of 2024 read."""


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
    identity = np.eye(size, dtype=np.float32), np.zeros(size, dtype=np.float32)
    weight, bias = (bridge.map.weight, bridge.map.bias) if bridge.map else identity
    with replacing(Path(path)) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            weight=weight,
            bias=bias,
            slope=np.float64(bridge.scale.slope),
            offset=np.float64(bridge.scale.offset),
        )


def export_onnx(bridge: Bridge, path: str | Path) -> None:
    """Write an ONNX file with input ``vectors`` (Q x d_new) and output ``queries`` (Q x d_old, unit rows), all kinds.

    Its metadata has the kind, the sizes, ``slope`` and ``offset`` of the score. Needs onnx.
    """
    try:
        import onnx
    except ImportError as error:
        raise HoldfastError(f"ONNX needs onnx ({error}); {how_to_install('onnx')}") from error
    graph = _Graph()
    size = graph.apply("ReduceMax", graph.apply("Abs", "vectors"), graph.constant([-1], np.int64))
    too_short = graph.apply(
        "And", graph.apply("Less", size, graph.constant(SHORTEST)), graph.apply("Greater", size, graph.constant(0))
    )
    unusual = graph.apply("Or", graph.apply("Greater", size, graph.constant(LONGEST)), too_short)
    usual = graph.apply("Div", "vectors", graph.apply("Where", unusual, size, graph.constant(1)))
    mapped = queries = graph.unit(usual)
    if isinstance(bridge.map, LinearMap):
        mapped = graph.unit(graph.linear(queries, bridge.map))
    elif isinstance(bridge.map, Local):
        mapped = graph.unit(graph.local(queries, bridge.map))
    is_not_zero = graph.apply("Cast", graph.apply("Greater", size, graph.constant(0)), to=onnx.TensorProto.FLOAT)
    graph.apply("Mul", mapped, is_not_zero, name="queries")
    shapes = zip(("vectors", "queries"), bridge.dims, strict=True)
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", dim]) for name, dim in shapes]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "bridge", ends[:1], ends[1:], graph.constants),
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
        producer_name="holdfast",
    )
    metadata = {
        "version": version(DISTRIBUTION) or "unknown",
        "kind": bridge.kind,
        "dims": list(bridge.dims),
        "models": bridge.models,
        "slope": bridge.scale.slope,
        "offset": bridge.scale.offset,
        "output": "unit float32 queries in the old model's space; merged score = offset + slope * cosine",
    }
    onnx.helper.set_model_props(
        model,
        {f"holdfast.{key}": text if isinstance(text, str) else json.dumps(text) for key, text in metadata.items()},
    )
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(model.SerializeToString())


EXPORTS: dict[str, Callable[[Bridge, Path], None]] = {".npz": export_npz, ".onnx": export_onnx}
"""Functions that write a bridge, by the suffix of the file."""


class _Graph:
    """The nodes and constants of an ONNX graph. Results are known by their names."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        import onnx

        name = f"constant_{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(value, dtype=dtype, order="C"), name))
        return name

    def apply(self, operator: str, *inputs: str, name: str | None = None, outputs: int = 1, **attributes: Any) -> str:
        """The name of an operator's result; its other results have the same name and a number."""
        import onnx

        name = name or f"value_{len(self.nodes)}"
        names = [name, *(f"{name}_{place}" for place in range(1, outputs))]
        self.nodes.append(onnx.helper.make_node(operator, list(inputs), names, **attributes))
        return name

    def unit(self, rows: str) -> str:
        length = self.apply("ReduceL2", rows, self.constant([-1], np.int64))
        return self.apply("Div", rows, self.apply("Max", length, self.constant(NEARLY_ZERO)))

    def linear(self, queries: str, fitted: LinearMap) -> str:
        for factor in fitted.factors:
            queries = self.apply("MatMul", queries, self.constant(factor))
        return self.apply("Add", queries, self.constant(fitted.bias))

    def local(self, queries: str, fitted: Local) -> str:
        cosines = self.apply("MatMul", queries, self.constant(fitted.anchors.T))
        best = self.apply("TopK", cosines, self.constant([fitted.neighbours], np.int64), outputs=2, axis=-1)
        shares = self.apply("Softmax", self.apply("Div", best, self.constant(fitted.temperature)), axis=-1)
        residuals = self.apply("Gather", self.constant(fitted.residuals), f"{best}_1", axis=0)
        weighted = self.apply("Mul", residuals, self.apply("Unsqueeze", shares, self.constant([-1], np.int64)))
        correction = self.apply("ReduceSum", weighted, self.constant([1], np.int64), keepdims=0)
        scaled = self.apply("Mul", correction, self.constant(fitted.weight))
        return self.apply("Add", self.unit(self.linear(queries, fitted.rotation)), scaled)

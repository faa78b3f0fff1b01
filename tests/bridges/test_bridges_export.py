"""An exported bridge gives what the bridge gives, in NumPy and in onnxruntime."""

import json

import numpy as np
import pytest

from holdfast.bridges import BRIDGES, Bridge, export_bridge
from holdfast.core.errors import HoldfastError

LINEAR = ("rotation", "affine")


def pairs(new_dim: int, old_dim: int, count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    items = rng.standard_normal((count, 12))
    return tuple(
        items @ rng.standard_normal((12, dim)) + 0.1 * rng.standard_normal((count, dim)) for dim in (new_dim, old_dim)
    )


def fitted(kind: str, new_dim: int = 24, old_dim: int = 40) -> tuple[Bridge, np.ndarray]:
    new, old = pairs(new_dim, old_dim)
    queries = np.random.default_rng(1).standard_normal((7, new_dim)).astype(np.float32)
    return Bridge.fit(new=new, old=old, kind=kind), queries


@pytest.mark.parametrize("kind", LINEAR)
def test_the_arrays_are_one_line_of_numpy(kind, tmp_path):
    bridge, queries = fitted(kind)
    export_bridge(bridge, tmp_path / "bridge.npz")
    b = np.load(tmp_path / "bridge.npz")
    q = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    q = q @ b["weight"] + b["bias"]
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    np.testing.assert_allclose(q, bridge(queries), atol=1e-5)
    cosine = np.linspace(-1, 1, 5)
    np.testing.assert_allclose(b["offset"] + b["slope"] * cosine, bridge.scale(cosine), atol=1e-6)


def test_queries_as_they_are_have_the_identity(tmp_path):
    bridge, queries = fitted("none", 24, 24)
    export_bridge(bridge, tmp_path / "bridge.npz")
    b = np.load(tmp_path / "bridge.npz")
    assert np.array_equal(queries @ b["weight"] + b["bias"], queries)


@pytest.mark.parametrize("kind", [kind for kind in BRIDGES if kind not in LINEAR])
def test_what_is_more_than_a_matrix_is_refused_as_arrays(kind, tmp_path):
    bridge, _ = fitted(kind)
    with pytest.raises(HoldfastError, match=f"kind {kind} is more than one matrix; export it as .onnx"):
        export_bridge(bridge, tmp_path / "bridge.npz")
    with pytest.raises(HoldfastError, match=r"unknown kind of export .* known: .npz, .onnx"):
        export_bridge(bridge, tmp_path / "bridge.txt")
    assert not list(tmp_path.iterdir())


def test_every_kind_can_be_exported():
    assert {*LINEAR, "local"} == set(BRIDGES)


@pytest.mark.parametrize("kind", ["rotation", "affine", "local", "none"])
def test_onnx_gives_what_the_bridge_gives(kind, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    bridge, queries = fitted(kind, 24, 24 if kind == "none" else 40)
    export_bridge(bridge, tmp_path / "bridge.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "bridge.onnx", providers=["CPUExecutionProvider"])
    queries[2], queries[3], queries[4] = 0, 1e30 * queries[3], 1e-30 * queries[4]
    for count in (1, 3, 7):
        (found,) = session.run(["queries"], {"vectors": queries[:count]})
        np.testing.assert_allclose(found, bridge(queries[:count]), atol=1e-5)
    told = session.get_modelmeta().custom_metadata_map
    assert told["holdfast.kind"] == kind
    assert json.loads(told["holdfast.slope"]) == bridge.scale.slope
    assert json.loads(told["holdfast.offset"]) == bridge.scale.offset

"""The search in blocks against sorting everything."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError
from holdfast.vectors import merge_neighbours, nearest, neighbours
from holdfast.vectors.neighbours import Neighbours


def by_sorting(queries: np.ndarray, gallery: np.ndarray, k: int) -> list[list[int]]:
    """Plain loops: best score first, equal scores by index."""
    hits = []
    for query in queries.tolist():
        scores = [sum(a * b for a, b in zip(query, row)) for row in gallery.tolist()]
        hits.append(sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k])
    return hits


def whole_numbers(rows: int, seed: int) -> np.ndarray:
    """Coordinates of -1, 0, 1 give exact arithmetic and ties everywhere, also of 0.0 and -0.0."""
    return np.random.default_rng(seed).integers(-1, 2, (rows, 3)).astype(np.float32) * np.float32(-1)


@settings(deadline=None, max_examples=80)
@given(
    st.integers(1, 6), st.integers(1, 40), st.integers(1, 12), st.integers(1, 7), st.integers(1, 9), st.integers(0, 999)
)
def test_equals_sorting_with_many_ties(num_queries, num_gallery, k, rows_at_once, queries_at_once, seed):
    queries, gallery = whole_numbers(num_queries, seed), whole_numbers(num_gallery, seed + 1000)
    expected = by_sorting(queries, gallery, k)
    hits = nearest(queries, gallery, k)
    assert hits.indices.tolist() == expected
    assert np.array_equal(hits.scores, np.take_along_axis(queries @ gallery.T, hits.indices, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "_ROWS", rows_at_once)
        patch.setattr(neighbours, "_QUERIES", queries_at_once)
        assert nearest(queries, gallery, k).indices.tolist() == expected
    half = num_gallery // 2
    if half:
        earlier, later = nearest(queries, gallery[:half], k), nearest(queries, gallery[half:], k)
        later = Neighbours(later.scores, later.indices + half)
        assert merge_neighbours(earlier, later, k).indices.tolist() == expected


def test_duplicates_go_to_the_lower_index():
    gallery = [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    assert nearest([[1.0, 0.0]], gallery, 2).indices.tolist() == [[1, 2]]
    assert nearest([[1.0, 0.0]], gallery).indices.tolist() == [[1]]


def test_a_gallery_that_gets_better_row_by_row():
    """Every row is a candidate when it comes, so that nothing is ruled out by the hits so far."""
    gallery = np.linspace(0, 1, 20_000, dtype=np.float32)[:, None]
    hits = nearest(np.ones((3, 1)), gallery, 5)
    assert hits.indices.tolist() == [[19_999, 19_998, 19_997, 19_996, 19_995]] * 3


@pytest.mark.parametrize("kind", [np.float64, np.float16, "torch", "bfloat16"])
def test_real_features_of_any_type_over_several_blocks(kind):
    rng = np.random.default_rng(0)
    queries = rng.standard_normal((50, 16)).astype(np.float32)
    gallery = rng.standard_normal((20_000, 16)).astype(np.float32)  # more than one block
    given = [torch.from_numpy(rows) if isinstance(kind, str) else rows.astype(kind) for rows in (queries, gallery)]
    if kind == "bfloat16":
        given = [rows.bfloat16() for rows in given]
        queries, gallery = (rows.float().numpy() for rows in given)
    elif kind == np.float16:
        queries, gallery = (rows.astype(np.float32) for rows in given)
    hits = nearest(*given, 10)
    exact = (torch.from_numpy(queries).double() @ torch.from_numpy(gallery).double().T).topk(10)
    assert hits.indices.dtype == np.int64
    assert hits.scores.dtype == np.float32
    assert hits.indices.tolist() == exact.indices.tolist()
    assert np.allclose(hits.scores, exact.values.numpy(), atol=1e-5)


def test_a_tensor_that_gradients_go_through_is_read():
    rows = torch.eye(3, requires_grad=True)
    assert nearest(rows * 2, rows).indices.tolist() == [[0], [1], [2]]


def test_memory_stays_bounded(monkeypatch):
    sizes = []
    real = neighbours._Best.add

    def watching(self, gallery, start, space):
        sizes.append(len(self._queries) * len(gallery))
        return real(self, gallery, start, space)

    monkeypatch.setattr(neighbours._Best, "add", watching)
    queries, gallery = np.ones((3000, 1)), np.ones((30_000, 1))
    nearest(queries, gallery, 3)
    nearest(queries[:7], gallery, 30_000)
    assert max(sizes) <= neighbours._QUERIES * neighbours._ROWS


def test_k_is_cut_to_the_gallery_and_no_queries_are_fine():
    assert nearest(np.ones((2, 3)), np.ones((4, 3)), 9).indices.shape == (2, 4)
    assert nearest(np.ones((0, 3)), np.ones((4, 3)), 2).indices.shape == (0, 2)


def test_nan_comes_last():
    gallery = np.array([[np.nan, 0], [1, 0], [2, 0]])
    hits = nearest([[1.0, 0.0], [np.nan, 1.0]], gallery, 3)
    assert hits.indices.tolist() == [[2, 1, 0], [0, 1, 2]]
    assert np.isnan(hits.scores).tolist() == [[False, False, True], [True, True, True]]


def test_the_search_by_torch_gives_the_same(monkeypatch):
    """The path for GPUs, on the CPU."""
    monkeypatch.setattr(neighbours, "_ON_GPU", 40)
    for seed in range(20):
        queries, gallery = whole_numbers(6, seed), whole_numbers(33, seed + 1000)
        hits = neighbours._nearest_on_gpu(torch.from_numpy(queries), gallery, 5, "cpu")
        assert hits.indices.tolist() == by_sorting(queries, gallery, 5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_gives_the_same():
    for seed in range(5):
        queries, gallery = whole_numbers(600, seed), whole_numbers(70_000, seed + 1000)
        hits = nearest(torch.from_numpy(queries).cuda(), gallery, 50, device="cuda")
        assert hits.indices.tolist() == nearest(queries, gallery, 50).indices.tolist()


def test_torch_is_not_imported_for_a_search_on_the_cpu():
    import subprocess

    code = "import sys, holdfast; holdfast.nearest([[1.0]], [[1.0]]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("queries", "gallery", "k", "reason"),
    [
        (np.zeros((1, 2)), np.zeros((1, 3)), 1, "equal width"),
        (np.zeros((1, 2)), np.zeros((0, 2)), 1, "empty"),
        (np.zeros((1, 2)), np.zeros((1, 2)), 0, "at least 1"),
    ],
)
def test_bad_input(queries, gallery, k, reason):
    with pytest.raises(HoldfastError, match=reason):
        nearest(queries, gallery, k)

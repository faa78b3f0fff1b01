"""The chunked search against sorting everything."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError
from holdfast.vectors import nearest, neighbours


def by_sorting(queries: torch.Tensor, gallery: torch.Tensor, k: int) -> list[list[int]]:
    """Plain loops: best score first, equal scores by index."""
    found = []
    for query in queries.tolist():
        scores = [sum(a * b for a, b in zip(query, row)) for row in gallery.tolist()]
        found.append(sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k])
    return found


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 6),
    st.integers(1, 40),
    st.integers(1, 12),
    st.integers(1, 7),
    st.integers(1, 64),
    st.integers(0, 999),
)
def test_equals_sorting_with_many_ties(num_queries, num_gallery, k, gallery_chunk, chunk_elements, seed):
    # Coordinates of -1, 0, 1 give exact arithmetic and ties everywhere.
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randint(-1, 2, (num_queries, 3), generator=generator).float()
    gallery = torch.randint(-1, 2, (num_gallery, 3), generator=generator).float()
    whole = nearest(queries, gallery, k, chunk_elements=chunk_elements)
    chunked = neighbours._search_block(queries, gallery, min(k, num_gallery), max(gallery_chunk, min(k, num_gallery)))
    expected = by_sorting(queries, gallery, k)
    assert whole.indices.tolist() == expected
    assert chunked.indices.tolist() == expected
    assert torch.equal(whole.scores, (queries @ gallery.T).gather(1, whole.indices))


def test_duplicates_go_to_the_lower_index():
    gallery = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    assert nearest(torch.tensor([[1.0, 0.0]]), gallery, 2).indices.tolist() == [[1, 2]]
    assert nearest(torch.tensor([[1.0, 0.0]]), gallery).indices.tolist() == [[1]]


def test_real_features_over_several_chunks():
    rng = np.random.default_rng(0)
    queries = torch.from_numpy(rng.standard_normal((50, 16)).astype(np.float32))
    gallery = torch.from_numpy(rng.standard_normal((20_000, 16)).astype(np.float32))  # more than one gallery chunk
    found = nearest(queries, gallery, 10, chunk_elements=1 << 16)
    exact = (queries.double() @ gallery.double().T).topk(10)
    assert torch.equal(found.indices, exact.indices)


def test_memory_stays_bounded(monkeypatch):
    largest = 0
    real = neighbours._top

    def watching(scores, k):
        nonlocal largest
        largest = max(largest, scores.numel())
        return real(scores, k)

    monkeypatch.setattr(neighbours, "_top", watching)
    nearest(torch.randn(500, 4), torch.randn(3000, 4), 3, chunk_elements=10_000)
    assert largest <= 10_000


def test_k_is_cut_to_the_gallery_and_no_queries_are_fine():
    assert nearest(torch.randn(2, 3), torch.randn(4, 3), 9).indices.shape == (2, 4)
    assert nearest(torch.empty(0, 3), torch.randn(4, 3), 2).indices.shape == (0, 2)


@pytest.mark.parametrize(
    ("queries", "gallery", "k", "reason"),
    [
        (torch.zeros(1, 2), torch.zeros(1, 3), 1, "equal width"),
        (torch.zeros(1, 2), torch.zeros(0, 2), 1, "empty"),
        (torch.zeros(1, 2), torch.zeros(1, 2), 0, "at least 1"),
    ],
)
def test_bad_input(queries, gallery, k, reason):
    with pytest.raises(HoldfastError, match=reason):
        nearest(queries, gallery, k)

"""Growing the simplex: against the two matrices written out, and against what it promises."""

import math

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.geometry import DSimplex, cosine_matrix, embed_in_larger_simplex


@pytest.mark.parametrize(("k", "k2"), [(2, 3), (5, 6), (7, 40), (100, 150)])
def test_against_the_matrices(k, k2):
    z = torch.randn(9, k - 1, dtype=torch.float64, generator=torch.Generator().manual_seed(k))
    matrix = (k - 1) / k * DSimplex(k2).dense()[:k].T @ DSimplex(k).dense()
    torch.testing.assert_close(embed_in_larger_simplex(z, k, k2), z @ matrix.T)
    larger = embed_in_larger_simplex(z, k, k2)
    torch.testing.assert_close(cosine_matrix(larger, larger), cosine_matrix(z, z))


def test_old_classes_lie_on_their_new_vertices():
    moved = embed_in_larger_simplex(DSimplex(1000).dense(), 1000, 2000)
    cosines = torch.nn.functional.cosine_similarity(moved, DSimplex(2000).dense()[:1000])
    expected = math.sqrt(999 * 2000 / (1000 * 1999))
    assert expected == pytest.approx(0.9997, abs=6e-5)
    torch.testing.assert_close(cosines, torch.full_like(cosines, expected))


def test_combine_is_the_transpose():
    y = torch.randn(4, 3, 12, dtype=torch.float64)
    torch.testing.assert_close(DSimplex(12).combine(y), y @ DSimplex(12).dense())
    with pytest.raises(HoldfastError, match="11 weights for 12 prototypes"):
        DSimplex(12).combine(y[..., 1:])


def test_a_simplex_does_not_shrink():
    with pytest.raises(HoldfastError, match="must grow to more than 5, got 5"):
        embed_in_larger_simplex(torch.randn(2, 4), 5, 5)

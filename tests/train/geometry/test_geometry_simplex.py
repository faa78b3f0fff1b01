"""The implicit simplex against the matrix of the paper's listing."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError
from holdfast.train.geometry import DSimplex


def listing(num_classes: int, scale: str) -> torch.Tensor:
    """The paper's Appendix D in float64: identity, one constant row, column mean subtracted, then normalised."""
    K = num_classes
    W = torch.zeros(K, K - 1, dtype=torch.float64)
    W[:-1] = torch.eye(K - 1, dtype=torch.float64)
    W[-1] = (1 - K**0.5) / (K - 1)
    W -= W.mean(0)
    return W / (W.norm(dim=1, keepdim=True) if scale == "unit" else W.norm())


@pytest.mark.parametrize("scale", ["unit", "frobenius"])
@pytest.mark.parametrize("K", [2, 3, 100, 1024])
def test_implicit_equals_dense_in_logits_and_gradients(K, scale):
    torch.manual_seed(K)
    z = torch.randn(7, K - 1, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(7, K, dtype=torch.float64)
    W = listing(K, scale)

    implicit = DSimplex(K, scale=scale).logits(z)
    (gradient,) = torch.autograd.grad(implicit, z, upstream)

    assert (implicit - z @ W.T).abs().max() < 1e-12
    assert (gradient - upstream @ W).abs().max() < 1e-12


@pytest.mark.parametrize("scale", ["unit", "frobenius"])
@pytest.mark.parametrize("K", [2, 3, 17, 100])
def test_dense_is_the_listing(K, scale):
    assert (DSimplex(K, scale=scale).dense() - listing(K, scale)).abs().max() < 1e-12


@given(st.integers(2, 60))
def test_rows_are_unit_equiangular_and_sum_to_zero(K):
    W = DSimplex(K).dense()
    gram = W @ W.T
    expected = torch.full((K, K), -1 / (K - 1), dtype=torch.float64).fill_diagonal_(1)
    assert torch.allclose(gram, expected, atol=1e-12)
    assert W.sum(0).abs().max() < 1e-12


def test_two_classes_by_hand():
    # K = 2 lives on a line: the two prototypes are +1 and -1, whatever the formula does on its way there.
    assert DSimplex(2).dense().flatten().tolist() == pytest.approx([1, -1])


def test_three_classes_by_hand():
    # v = (1 - sqrt 3)/2 = -0.36603, m = (1 + v)/3 = 0.21132, r = sqrt(2/3); first row ((1 - m)/r, -m/r).
    W = DSimplex(3).dense()
    assert W[0].tolist() == pytest.approx([0.9659258, -0.2588190])
    assert W[2].tolist() == pytest.approx([-0.7071068, -0.7071068])


def test_frobenius_rows_have_length_one_over_root_k():
    assert DSimplex(100, scale="frobenius").dense().norm(dim=1).tolist() == pytest.approx([0.1] * 100)


def test_prototypes_are_rows_of_dense():
    simplex = DSimplex(9)
    indices = torch.tensor([[0, 8], [3, 3]])
    assert torch.equal(simplex.prototypes(indices), simplex.dense(dtype=torch.float32)[indices])


def test_logits_keep_leading_dimensions_and_dtype():
    z = torch.randn(2, 3, 4, dtype=torch.bfloat16)
    assert DSimplex(5).logits(z).shape == (2, 3, 5)
    assert DSimplex(5).logits(z).dtype == torch.bfloat16


def test_gradcheck():
    z = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(DSimplex(6).logits, (z,))


@pytest.mark.parametrize("K", [-1, 0, 1])
def test_too_few_classes_are_refused(K):
    with pytest.raises(HoldfastError, match="at least 2"):
        DSimplex(K)


def test_unknown_scale_and_wrong_width_are_refused():
    with pytest.raises(HoldfastError, match="unit, frobenius"):
        DSimplex(3, scale="rows")  # type: ignore[arg-type]
    with pytest.raises(HoldfastError, match=r"5 dimensions.*needs 2"):
        DSimplex(3).logits(torch.zeros(1, 5))


LARGE = """
import sys, torch
from holdfast.train.geometry import DSimplex
def peak():  # ru_maxrss would be inherited from the parent process; the high-water mark of /proc is our own
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
z = torch.randn(320, 21999, requires_grad=True)
torch.randn(320, 22000).logsumexp(1).sum()  # warm up what the first call of anything allocates
before = peak()
W = DSimplex(22000)
(W.logits(z) if sys.argv[1] == "implicit" else z @ W.dense(dtype=torch.float32).T).logsumexp(1).sum().backward()
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_k_by_k_tensor_exists_at_22000():
    """K x (K-1) float32 is 1.9 GB; a batch of 320 logits is 28 MB, and some copies of it are fine."""
    command = [sys.executable, "-c", LARGE, "implicit"]
    assert int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) < 200e6


def test_logits_can_be_differentiated_functionally_and_compiled_whole():
    simplex = DSimplex(6)
    z = torch.randn(3, 5)
    gradient = torch.func.grad(lambda z: simplex.logits(z).logsumexp(1).sum())(z)
    leaf = z.clone().requires_grad_()
    simplex.logits(leaf).logsumexp(1).sum().backward()
    assert torch.allclose(gradient, leaf.grad)
    whole = torch.compile(lambda z: simplex.logits(z), fullgraph=True, backend="eager")
    assert torch.allclose(whole(leaf), simplex.logits(leaf))

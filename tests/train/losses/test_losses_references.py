"""Every loss against plain loops in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.train.geometry import DSimplex
from holdfast.train.losses import (
    cross_entropy,
    feature_distillation,
    hoc_loss,
    hoc_terms,
    info_nce,
    simplex_cross_entropy,
)


def loop_cross_entropy(logits, labels):
    total = 0.0
    for row, label in zip(logits, labels):
        total += -row[label] + math.log(sum(math.exp(value) for value in row))
    return total / len(labels)


def loop_cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b))
    return dot / (math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b)))


def loop_info_nce(z, z_old, labels, rho, negatives):
    total = 0.0
    for i in range(len(z)):
        denominator = 0.0
        for j in range(len(z)):
            delta = math.exp(rho * loop_cosine(z_old[i], z[j]))
            if negatives == "paper":
                denominator += delta if j != i else 0.0
            elif labels[i] != labels[j]:
                denominator += delta
            elif negatives == "authors":
                denominator += math.exp(0.0)
        if denominator > 0:
            total += math.log(denominator) - rho * loop_cosine(z_old[i], z[i])
    return total / len(z)


@st.composite
def batches(draw):
    size, dim, classes = draw(st.integers(2, 9)), draw(st.integers(2, 6)), draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    z = torch.randn(size, dim, generator=generator, dtype=torch.float64)
    z_old = torch.randn(size, dim, generator=generator, dtype=torch.float64)
    return z, z_old, torch.randint(0, min(classes, dim), (size,), generator=generator)


@settings(deadline=None)
@given(batches())
def test_cross_entropy(batch):
    z, _, labels = batch
    assert cross_entropy(z, labels).item() == pytest.approx(loop_cross_entropy(z.tolist(), labels.tolist()))


@settings(deadline=None)
@given(batches())
def test_simplex_cross_entropy_counts_every_vertex(batch):
    z, _, labels = batch
    simplex = DSimplex(z.shape[1] + 1)
    logits = (z @ simplex.dense().T).tolist()
    expected = loop_cross_entropy(logits, labels.tolist())
    assert simplex_cross_entropy(z, labels, simplex).item() == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(batches(), st.sampled_from(["authors", "paper", "masked"]), st.sampled_from([0.5, 5.0, 10.0]))
def test_info_nce(batch, negatives, rho):
    z, z_old, labels = batch
    expected = loop_info_nce(z.tolist(), z_old.tolist(), labels.tolist(), rho, negatives)
    found = info_nce(z, z_old, labels, rho=rho, negatives=negatives)
    assert found.item() == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(batches())
def test_feature_distillation(batch):
    z, z_old, _ = batch
    expected = sum(1 - loop_cosine(a, b) for a, b in zip(z.tolist(), z_old.tolist())) / len(z)
    assert feature_distillation(z, z_old).item() == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(batches(), st.floats(0, 1))
def test_hoc_is_the_convex_combination(batch, lambda_):
    z, z_old, labels = batch
    simplex = DSimplex(z.shape[1] + 1)
    ce = loop_cross_entropy((z @ simplex.dense().T).tolist(), labels.tolist())
    nce = loop_info_nce(z.tolist(), z_old.tolist(), labels.tolist(), 5.0, "authors")
    found = hoc_loss(z, z_old, labels, simplex, lambda_=lambda_, rho=5.0)
    assert found.item() == pytest.approx(lambda_ * ce + (1 - lambda_) * nce, abs=1e-12)
    assert sum(t.item() for t in hoc_terms(z, z_old, labels, simplex, lambda_=lambda_).values()) == pytest.approx(
        found.item()
    )


@settings(deadline=None)
@given(batches(), st.floats(0.5, 30), st.floats(0.01, 100))
def test_cross_entropy_at_a_given_length(batch, length, shrunk):
    """Against loops; and however long the features are."""
    z, z_old, labels = batch
    simplex = DSimplex(z.shape[1] + 1)
    seen = [[value * length / math.hypot(*row) for value in row] for row in z.tolist()]
    logits = (torch.tensor(seen, dtype=torch.float64) @ simplex.dense().T).tolist()
    free = hoc_terms(z, z_old, labels, simplex, lambda_=0.3)
    for by in (1.0, shrunk):
        found = hoc_terms(by * z, z_old, labels, simplex, lambda_=0.3, length=length)
        assert found["ce"].item() == pytest.approx(0.3 * loop_cross_entropy(logits, labels.tolist()), abs=1e-9)
        assert found["nce"].item() == pytest.approx(free["nce"].item(), abs=1e-9)

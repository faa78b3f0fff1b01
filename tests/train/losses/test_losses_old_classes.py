"""Terms of old classes: loops in float64, points by hand, properties."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_losses_references import batches, loop_cosine, loop_cross_entropy

from holdfast.train.geometry import unit
from holdfast.train.losses import (
    align_both_ways,
    align_rows,
    boundary_hinge,
    centre_pull,
    elastic_limit,
    old_class_cross_entropy,
)


def loop_unit(row):
    length = math.sqrt(sum(x * x for x in row))
    return [x / length for x in row]


def mean(values):
    return sum(values) / len(values) if values else 0.0


@st.composite
def known_batches(draw):
    """A batch, unit centres of the classes known (perhaps none of the batch's), and a number for each."""
    z, _, labels = draw(batches())
    known = draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    centres = unit(torch.randn(known, z.shape[1], generator=generator, dtype=torch.float64))
    labels = labels + draw(st.integers(0, 2))
    return z, labels, centres, torch.rand(known, generator=generator, dtype=torch.float64)


def pairs(z, labels, centres):
    return [(row, y) for row, y in zip(z.tolist(), labels.tolist()) if y < len(centres)]


@settings(deadline=None, max_examples=50)
@given(known_batches())
def test_old_class_cross_entropy(drawn):
    z, labels, rows, _ = drawn
    old = pairs(z @ rows.T, labels, rows)
    expected = loop_cross_entropy([row for row, _ in old], [y for _, y in old]) if old else 0.0
    assert old_class_cross_entropy(z @ rows.T, labels).item() == pytest.approx(expected)


@settings(deadline=None, max_examples=50)
@given(known_batches())
def test_boundary_hinge(drawn):
    z, labels, centres, bounds = drawn
    c, b = centres.tolist(), bounds.tolist()
    expected = mean([max(0.0, b[y] - loop_cosine(row, c[y])) for row, y in pairs(z, labels, centres)])
    assert boundary_hinge(z, labels, centres, bounds).item() == pytest.approx(expected)


@settings(deadline=None, max_examples=50)
@given(known_batches())
def test_elastic_limit(drawn):
    z, labels, centres, radii = drawn
    c, r = 0.7 * centres, 2 * radii
    excess = [math.dist(loop_unit(row), c[y].tolist()) - r[y].item() for row, y in pairs(z, labels, centres)]
    expected = mean([e for e in excess if e > 0])
    assert elastic_limit(z, labels, c, r).item() == pytest.approx(expected)


@settings(deadline=None, max_examples=50)
@given(known_batches())
def test_centre_pull(drawn):
    z, labels, centres, _ = drawn
    c = (0.7 * centres).tolist()
    expected = mean([math.dist(loop_unit(row), c[y]) ** 2 for row, y in pairs(z, labels, centres)])
    assert centre_pull(z, labels, 0.7 * centres).item() == pytest.approx(expected)


@settings(deadline=None, max_examples=50)
@given(batches())
def test_align_rows(batch):
    rows, other, _ = batch
    centres = unit(other)
    entries = [(a - b) ** 2 for row, c in zip(rows.tolist(), centres.tolist()) for a, b in zip(loop_unit(row), c)]
    by_cosine = 2 / rows.shape[1] * mean([1 - loop_cosine(a, b) for a, b in zip(rows.tolist(), centres.tolist())])
    assert align_rows(rows, centres).item() == pytest.approx(mean(entries))
    assert align_rows(rows, centres).item() == pytest.approx(by_cosine)


# Images along (1, 0), (0, 1) and (0, 1) of classes 0, 1 and 7; centres (1, 0) and (3/5, 4/5); class 7 is new.
Z = torch.tensor([[2.0, 0.0], [0.0, 3.0], [0.0, 1.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 1, 7])
CENTRES = torch.tensor([[1.0, 0.0], [0.6, 0.8]], dtype=torch.float64)


def test_old_class_cross_entropy_by_hand():
    # softmax (3/4, 1/4) for class 0 and (1/2, 1/2) for class 1: (log(4/3) + log 2) / 2; the third does not count.
    logits = torch.tensor([[math.log(3.0), 0.0], [5.0, 5.0], [9.0, -9.0]])
    expected = (math.log(4 / 3) + math.log(2)) / 2
    assert old_class_cross_entropy(logits, LABELS).item() == pytest.approx(expected)


def test_boundary_hinge_by_hand():
    # Cosines 1 and 0.8 against bounds 0.5 and 0.9: (0 + 0.1) / 2.
    bounds = torch.tensor([0.5, 0.9], dtype=torch.float64)
    assert boundary_hinge(Z, LABELS, CENTRES, bounds).item() == pytest.approx(0.05)


def test_elastic_limit_by_hand():
    # Distances 0 and |(-0.6, 0.2)| = sqrt(0.4); only the second is outside its radius, so it is not halved.
    radii = torch.tensor([0.1, 0.4], dtype=torch.float64)
    assert elastic_limit(Z, LABELS, CENTRES, radii).item() == pytest.approx(math.sqrt(0.4) - 0.4)


def test_centre_pull_by_hand():
    # Squared distances 0 and 0.36 + 0.04: (0 + 0.4) / 2.
    assert centre_pull(Z, LABELS, CENTRES).item() == pytest.approx(0.2)


def test_align_rows_by_hand():
    # Unit rows (1, 0) and (0, 1): squared differences 0, 0 and 0.36, 0.04, over four entries.
    assert align_rows(Z[:2], CENTRES).item() == pytest.approx(0.1)


def test_align_both_ways_by_hand():
    # Unit rows (1, 0) and (0, 1) against (1, 1) and (0, 3): 0, 1 and 0, 4 over four entries, 5/4. Centres (1, 0) and
    # (0.6, 0.8) against (1, 2) and (0.6, 0.8): 0, 4 and 0, 0, 4/4. Their mean is 9/8.
    mapped_centres = torch.tensor([[1.0, 1.0], [0.0, 3.0]], dtype=torch.float64)
    mapped_rows = torch.tensor([[1.0, 2.0], [0.6, 0.8]], dtype=torch.float64)
    assert align_both_ways(Z[:2], CENTRES, mapped_rows, mapped_centres).item() == pytest.approx(9 / 8)
    unmapped = align_both_ways(Z[:2], CENTRES, unit(Z[:2]), CENTRES)
    assert unmapped.item() == pytest.approx(align_rows(Z[:2], CENTRES).item())


TERMS = {
    "old cross-entropy": lambda z, y: old_class_cross_entropy(z @ CENTRES.T, y),
    "hinge": lambda z, y: boundary_hinge(z, y, CENTRES, torch.ones(2, dtype=torch.float64)),
    "limit": lambda z, y: elastic_limit(z, y, CENTRES, torch.zeros(2, dtype=torch.float64)),
    "pull": lambda z, y: centre_pull(z, y, CENTRES),
}


@pytest.mark.parametrize("term", TERMS.values(), ids=TERMS)
def test_images_of_new_classes_do_not_count(term):
    z = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 5, 1, 2, 1, 9])
    old = labels < 2
    value = term(z, labels)
    value.backward()
    assert value.item() == pytest.approx(term(z[old], labels[old]).item())
    assert torch.equal(z.grad[~old], torch.zeros(3, 2, dtype=torch.float64))
    assert (z.grad[old].norm(dim=1) > 0).all()


@pytest.mark.parametrize("term", TERMS.values(), ids=TERMS)
def test_a_batch_of_new_classes_gives_zero_and_no_gradient(term):
    z = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    value = term(z, torch.tensor([2, 3, 2, 5]))
    value.backward()
    assert value.item() == 0
    assert torch.equal(z.grad, torch.zeros_like(z))


def test_nothing_happens_inside_the_boundary():
    z = torch.tensor([[3.0, 0.3], [5.0, -0.4]], requires_grad=True)
    centres, labels = torch.tensor([[1.0, 0.0]]), torch.tensor([0, 0])
    for term in (
        boundary_hinge(z, labels, centres, torch.tensor([0.9])),
        elastic_limit(z, labels, centres, torch.tensor([0.2])),
    ):
        (gradient,) = torch.autograd.grad(term, z)
        assert term.item() == 0
        assert torch.equal(gradient, torch.zeros_like(z))


def test_images_inside_do_not_dilute_the_limit():
    z, labels = torch.tensor([[0.0, 1.0]] + [[1.0, 0.0]] * 9), torch.zeros(10, dtype=torch.long)
    alone = elastic_limit(z[:1], labels[:1], torch.tensor([[1.0, 0.0]]), torch.tensor([0.5]))
    assert elastic_limit(z, labels, torch.tensor([[1.0, 0.0]]), torch.tensor([0.5])).item() == alone.item()


def test_a_feature_on_its_centre_has_a_finite_gradient():
    z = CENTRES.clone().requires_grad_()
    (elastic_limit(z, torch.tensor([0, 1]), CENTRES, torch.zeros(2)) + centre_pull(z, LABELS[:2], CENTRES)).backward()
    assert z.grad.isfinite().all()


def test_alignment_trains_the_rows():
    rows = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    align_rows(rows, CENTRES).backward()
    assert align_rows(rows - 0.1 * rows.grad, CENTRES) < align_rows(rows, CENTRES)
    assert align_rows(7 * CENTRES, CENTRES).item() == pytest.approx(0, abs=1e-15)

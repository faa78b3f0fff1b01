"""Centres, boundaries and radii of classes: loops in float64, points by hand, properties."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_losses_references import batches, loop_cosine

from holdfast.train.geometry import unit
from holdfast.train.losses import class_counts, class_means, largest_radii, least_cosines


def loop_unit(row):
    length = math.sqrt(sum(x * x for x in row))
    return [x / length for x in row]


def loop_means(z, labels, classes):
    means = []
    for wanted in range(classes):
        own = [loop_unit(row) for row, label in zip(z, labels) if label == wanted]
        means.append([sum(column) / len(own) for column in zip(*own)] if own else [0.0] * len(z[0]))
    return means


def loop_quantile(values, q):
    """Linear between the two nearest of the sorted values."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def loop_radii(z, labels, centres):
    radii = []
    for wanted, centre in enumerate(centres):
        own = [math.dist(loop_unit(row), centre) for row, label in zip(z, labels) if label == wanted]
        if len(own) < 2:
            radii.append(math.nan)
            continue
        low, high = loop_quantile(own, 0.25), loop_quantile(own, 0.75)
        reach = 1.5 * (high - low)
        radii.append(max(d for d in own if low - reach - 1e-12 <= d <= high + reach + 1e-12))
    return radii


@settings(deadline=None, max_examples=50)
@given(batches(), st.integers(0, 2))
def test_means_and_counts(batch, absent):
    z, _, labels = batch
    classes = int(labels.max()) + 1 + absent
    expected = torch.tensor(loop_means(z.tolist(), labels.tolist(), classes), dtype=torch.float64)
    torch.testing.assert_close(class_means(z, labels, classes), expected)
    assert class_counts(labels, classes).tolist() == [labels.tolist().count(k) for k in range(classes)]


@settings(deadline=None, max_examples=50)
@given(batches(), st.integers(0, 2))
def test_least_cosines(batch, absent):
    z, _, labels = batch
    classes = int(labels.max()) + 1 + absent
    centres = unit(torch.randn(classes, z.shape[1], dtype=torch.float64))
    expected = [
        min([loop_cosine(row, centres[k].tolist()) for row, label in zip(z.tolist(), labels) if label == k] + [1.0])
        for k in range(classes)
    ]
    assert least_cosines(z, labels, centres).tolist() == pytest.approx(expected)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 25), st.integers(1, 3))
def test_largest_radii(seed, size, classes):
    generator = torch.Generator().manual_seed(seed)
    # Fourth powers: many near directions and a few far ones, so that there are outliers to drop.
    z = 1 + torch.randn(size, 4, generator=generator, dtype=torch.float64) ** 4
    labels = torch.randint(0, classes, (size,), generator=generator)
    centres = class_means(z, labels, classes)
    expected = loop_radii(z.tolist(), labels.tolist(), centres.tolist())
    assert largest_radii(z, labels, centres).tolist() == pytest.approx(expected, nan_ok=True)


def test_means_by_hand():
    # Directions (1, 0) and (0, 1), whatever their lengths: the mean is (1/2, 1/2), of length 0.71, and stays so.
    z = torch.tensor([[3.0, 0.0], [0.0, 0.5], [0.0, -4.0]])
    assert class_means(z, torch.tensor([0, 0, 2]), 4).tolist() == [[0.5, 0.5], [0, 0], [0, -1], [0, 0]]
    assert class_counts(torch.tensor([0, 0, 2]), 4).tolist() == [2, 0, 1, 0]


def test_least_cosines_by_hand():
    # Class 0 against (1, 0): cosines 1 and 3/5. Class 2 against (0, 1): 4/5. Class 1 is absent.
    z = torch.tensor([[2.0, 0.0], [3.0, 4.0], [3.0, 4.0]])
    centres = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert least_cosines(z, torch.tensor([0, 0, 2]), centres).tolist() == pytest.approx([0.6, 1, 0.8])


def test_radius_by_hand_leaves_out_the_far_one():
    # Distances from (1, 0): four zeros, and sqrt(2) for (0, 1). Both quartiles are 0, so sqrt(2) is an outlier.
    z = torch.tensor([[1.0, 0.0]] * 4 + [[0.0, 1.0]])
    assert largest_radii(z, torch.zeros(5, dtype=torch.long), torch.tensor([[1.0, 0.0]])).tolist() == [0]
    # With two of each the quartiles are 0 and sqrt(2), 1.5 of their difference reaches beyond both: all are kept.
    two = torch.tensor([[1.0, 0.0]] * 2 + [[0.0, 1.0]] * 2)
    radius = largest_radii(two, torch.zeros(4, dtype=torch.long), torch.tensor([[1.0, 0.0]]))
    assert radius.item() == pytest.approx(math.sqrt(2))


def test_a_class_of_fewer_than_two_features_has_no_radius():
    z, labels = torch.randn(3, 4), torch.tensor([0, 0, 1])
    radii = largest_radii(z, labels, class_means(z, labels, 3))
    assert radii.isnan().tolist() == [False, True, True]


def test_lengths_and_order_do_not_matter():
    z, labels = torch.randn(12, 4, dtype=torch.float64), torch.arange(12) % 3
    order = torch.randperm(12)
    longer = (z * torch.rand(12, 1, dtype=torch.float64).add(0.1))[order]
    centres = class_means(z, labels, 3)
    torch.testing.assert_close(class_means(longer, labels[order], 3), centres)
    for of_class in (least_cosines, largest_radii):
        torch.testing.assert_close(of_class(longer, labels[order], centres), of_class(z, labels, centres))


def test_every_feature_lies_inside_the_boundary_of_its_class():
    z, labels = torch.randn(20, 4), torch.arange(20) % 3
    centres = unit(class_means(z, labels, 3))
    assert ((unit(z) * centres[labels]).sum(1) >= least_cosines(z, labels, centres)[labels] - 1e-6).all()


def test_the_fence_stands_at_one_and_a_half_ranges():
    # Distances 0, 0.1, 0.2, 0.3 and a last one: quartiles 0.1 and 0.3, so the fence is at 0.3 + 1.5 * 0.2 = 0.6.
    centre, labels = torch.tensor([[1.0, 0.0]]), torch.zeros(5, dtype=torch.long)
    for last, radius in ((0.65, 0.3), (0.55, 0.55)):
        angles = 2 * (torch.tensor([0.0, 0.1, 0.2, 0.3, last]) / 2).asin()  # the chord of an angle is 2 sin(angle / 2)
        z = torch.stack([angles.cos(), angles.sin()], dim=1)
        assert largest_radii(z, labels, centre).item() == pytest.approx(radius, abs=1e-6)


def test_two_features_have_a_radius_though_quartiles_round():
    """Their distances from their mean are equal but for rounding, and a quartile may round to less than both."""
    z = torch.randn(4000, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(4000) // 2
    centres = class_means(z, labels, 2000)
    expected = (unit(z) - centres[labels]).norm(dim=1).reshape(2000, 2).amax(1)
    torch.testing.assert_close(largest_radii(z, labels, centres), expected)

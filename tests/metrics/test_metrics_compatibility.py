"""AC, AA and ACA against plain loops, published matrices and their edge cases."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError
from holdfast.metrics import (
    average_accuracy,
    average_accuracy_up_to,
    average_compatibility,
    average_compatibility_up_to,
    average_compatible_accuracy,
    compatibility_summary,
    compatible_pairs,
)

# Published seven-task results, per cent, lower triangle by rows.
HOC_7 = """58.89 | 59.70 61.56 | 63.05 65.28 69.31 | 63.34 65.30 70.63 72.37 | 65.01 67.87 70.75 72.11 73.83
| 64.08 67.19 71.17 72.71 74.70 76.19 | 63.14 66.35 72.10 73.50 75.23 76.65 77.16"""
ER_7 = """63.42 | 61.56 63.09 | 11.71 11.23 72.73 | 11.43 10.53 69.23 70.30 | 9.08 7.76 9.30 8.55 74.46
| 8.51 7.36 10.34 9.52 72.26 72.31 | 9.72 8.58 9.75 9.75 70.35 70.63 71.54"""


def published(text):
    rows = [[float(cell) / 100 for cell in row.split()] for row in text.split("|")]
    C = np.zeros((len(rows), len(rows)))
    for t, row in enumerate(rows):
        C[t, : t + 1] = row
    return C


def loop_metrics(C):
    """The definitions, cell by cell, for a matrix without NaN."""
    T = len(C)
    ac = aa = aca = 0.0
    for t in range(T):
        for k in range(t + 1):
            aa += C[t][k]
            if k < t and C[t][k] > C[k][k]:
                ac += 1
                aca += C[t][k]
    pairs = T * (T - 1) / 2
    return (ac / pairs if pairs else math.nan, aa / (T * (T + 1) / 2), aca / pairs if pairs else math.nan)


def test_published_hoc_matrix():
    C = published(HOC_7)
    assert round(average_compatibility(C), 3) == 0.952
    assert round(100 * average_accuracy(C), 2) == 68.90
    assert round(100 * average_compatible_accuracy(C), 2) == 65.13


def test_published_er_matrix():
    C = published(ER_7)
    assert average_compatibility(C) == 0
    assert round(100 * average_accuracy(C), 2) == 35.18
    assert average_compatible_accuracy(C) == 0


# Multiples of 1/8 so that ties are frequent.
matrices = st.integers(1, 6).flatmap(
    lambda T: st.lists(st.lists(st.integers(0, 8).map(lambda n: n / 8), min_size=T, max_size=T), min_size=T, max_size=T)
)


@settings(max_examples=100, deadline=None)
@given(matrices)
def test_against_loops(C):
    expected = loop_metrics(C)
    found = (average_compatibility(C), average_accuracy(C), average_compatible_accuracy(C))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    for tau in range(1, len(C) + 1):
        ac, aa, _ = loop_metrics([row[:tau] for row in C[:tau]])
        np.testing.assert_allclose(average_compatibility_up_to(C)[tau - 1], ac, rtol=0, atol=1e-12)
        np.testing.assert_allclose(average_accuracy_up_to(C)[tau - 1], aa, rtol=0, atol=1e-12)


def test_a_tie_is_not_compatible():
    assert average_compatibility([[0.5, 0], [0.5, 0.9]]) == 0
    assert average_compatibility([[0.5, 0], [np.nextafter(0.5, 1), 0.9]]) == 1


@pytest.mark.parametrize("above", [0.0, np.nan, 7.0, -1.0])
def test_cells_above_the_diagonal_are_ignored(above):
    C = np.where(np.tri(7, dtype=bool), published(HOC_7), above)
    assert compatibility_summary(C)["AA"] == average_accuracy(published(HOC_7))
    assert average_compatibility(C) == average_compatibility(published(HOC_7))


def test_one_model():
    summary = compatibility_summary([[0.4]])
    assert summary["T"] == 1
    assert summary["AA"] == 0.4
    assert math.isnan(summary["AC"])
    assert math.isnan(summary["ACA"])
    assert len(summary["AC_tau"]) == 1
    assert "AA_computable" not in summary


def test_not_comparable_cells():
    C = [[0.5, 0, 0], [0.6, 0.7, 0], [np.nan, 0.8, 0.9]]
    summary = compatibility_summary(C)
    assert summary["AC"] == 2 / 3
    assert math.isnan(summary["AA"])
    assert math.isnan(summary["ACA"])
    np.testing.assert_allclose(summary["AA_tau"], [0.5, 0.6, np.nan])
    np.testing.assert_allclose(summary["AC_tau"], [np.nan, 1, 2 / 3])
    assert summary["AA_computable"] == pytest.approx(0.7)


def test_nan_on_the_diagonal_is_beaten_by_nobody():
    C = [[np.nan, 0], [0.6, 0.7]]
    assert not compatible_pairs(C).any()
    assert average_compatibility(C) == 0
    assert np.isnan(average_accuracy_up_to(C)).all()


def test_nothing_computable():
    assert math.isnan(compatibility_summary([[np.nan]])["AA_computable"])


def test_the_input_is_left_alone():
    C = published(HOC_7)
    before = C.copy()
    compatibility_summary(C)
    np.testing.assert_array_equal(C, before)


@pytest.mark.parametrize(
    ("C", "says"),
    [
        ([[0.5, 0.5]], "square"),
        ([0.5], "square"),
        ([], "empty"),
        ([[0.5], [0.5, 0.6]], "square"),
        ([["a"]], "numbers"),
        ([[0.5, 0], [63.2, 0.7]], "row 2, column 1.*divide by 100 if"),
        ([[-0.1]], "outside"),
    ],
)
def test_refusals(C, says):
    with pytest.raises(HoldfastError, match=says) as caught:
        average_accuracy(C)
    assert "\n" not in str(caught.value)

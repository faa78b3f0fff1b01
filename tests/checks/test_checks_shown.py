"""What a notebook shows of a compatibility matrix: every number of it, red where the new model loses."""

import re

import numpy as np

from holdfast import compatibility_matrix
from holdfast.train.evaluation.matrix import FAILS, NotebookMatrix, matrix_html

C = [[0.5, np.nan, np.nan], [0.6, 0.7, np.nan], [0.5, np.nan, 0.9]]


def shown(text):
    """Rows of (text, failed) of the table's cells."""
    rows = re.findall(r"<tr>(.*?)</tr>", text)[1:]
    return [[(cell, FAILS in style) for style, cell in re.findall(r"<td([^>]*)>([^<]*)</td>", row)] for row in rows]


def test_a_matrix_by_hand():
    text = matrix_html(C)
    assert shown(text) == [
        [("50.00", False), ("", False), ("", False)],
        [("60.00", False), ("70.00", False), ("", False)],
        [("50.00", True), ("–", True), ("90.00", False)],  # a tie is not compatible, nor is what cannot be compared
    ]
    assert "<p>AC 0.33, AA – %, ACA – %</p>" in text
    assert matrix_html([[0.5, None], [0.6, 0.7]]).endswith("<p>AC 1.00, AA 60.00 %, ACA 60.00 %</p>")


def test_the_matrix_is_an_ordinary_array_that_shows_itself():
    rng = np.random.default_rng(0)
    labels = np.arange(6) % 3
    models = [(rng.normal(size=(6, 4)), rng.normal(size=(6, 4))) for _ in range(2)]
    matrix = compatibility_matrix(models, labels, labels)
    assert isinstance(matrix, np.ndarray)
    assert matrix._repr_html_() == matrix_html(np.asarray(matrix))
    for computed in (matrix[0], 100 * matrix, matrix - matrix.max(), matrix.T, matrix > 0.5):
        assert computed._repr_html_().startswith("<pre>")
    assert np.asarray(matrix).view(NotebookMatrix)[0, 0] == matrix[0, 0]
    assert isinstance(matrix.tolist()[0][0], float)

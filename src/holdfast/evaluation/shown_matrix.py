"""A compatibility matrix as an array that shows itself in a notebook."""

import html
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from holdfast.metrics import compatibility_summary, compatible_pairs

FAILS = "background:#f3b4a6;color:#000"


class ShownMatrix(np.ndarray):
    """An ordinary array; square ones are shown as a table with AC, AA and ACA, anything cut out of one as text."""

    def _repr_html_(self) -> str:
        square = self.ndim == 2 and self.shape[0] == self.shape[1] > 0
        return matrix_html(self) if square else f"<pre>{html.escape(repr(self))}</pre>"


def matrix_html(matrix: ArrayLike) -> str:
    """C[t, k] in per cent, queries of model t in rows, galleries of model k in columns; red where t does not beat k.

    Below it AC, AA % and ACA %. NaN (or None, as in JSON) is a dash below the diagonal, and nothing above it.
    """
    C = np.asarray(matrix, dtype=float)
    kept = compatible_pairs(C)
    heads = "".join(f"<th>gallery {k}</th>" for k in range(1, len(C) + 1))
    rows = "".join(f"<tr><th>queries {t + 1}</th>{''.join(_cells(C, kept, t))}</tr>" for t in range(len(C)))
    found = compatibility_summary(C)
    scores = f"AC {_number(found['AC'], 1)}, AA {_number(found['AA'], 100)} %, ACA {_number(found['ACA'], 100)} %"
    return f"<table><tr><th>%</th>{heads}</tr>{rows}</table><p>{scores}</p>"


def _cells(C: np.ndarray, kept: np.ndarray, t: int) -> Sequence[str]:
    def cell(k: int) -> str:
        if k > t:
            return "<td></td>"
        style = f' style="{FAILS}"' if k < t and not kept[t, k] else ""
        return f"<td{style}>{_number(C[t, k], 100)}</td>"

    return [cell(k) for k in range(len(C))]


def _number(value: Any, factor: int) -> str:
    return "–" if math.isnan(value) else f"{factor * value:.2f}"

"""Compatibility matrices of runs as tables with colours."""

import math

import numpy as np
from numpy.typing import NDArray

from holdfast.core.wording import per_cent
from papers.run_pages.figures import heat_table
from papers.run_pages.html import DASH, text

LARGEST_WITH_NUMBERS = 16
"""With more models the numbers do not fit into their cells; they are then shown as tooltips."""


def heatmap(matrix: NDArray[np.float64], label: str, note: str, low: float, high: float) -> str:
    """A compatibility matrix as an HTML table.

    matrix: T x T scores in [0, 1]; row t is the query model, column k the gallery's model.
    low, high: the scores of the lightest and darkest colour; the same for all matrices of a page.
    """
    size = len(matrix)
    crowd = "sparse" if size <= 8 else "dense" if size <= LARGEST_WITH_NUMBERS else "tiny"
    heads = "".join(f'<th scope="col" aria-label="Gallery of model {k}">{k}</th>' for k in range(1, size + 1))
    rows = "".join(_matrix_row(matrix, t, low, high) for t in range(size))
    return (
        f'<figure class="matrix {crowd}"><figcaption><b>{text(label)}</b> <span>{text(note)}</span></figcaption>'
        f"{heat_table(f'{label}: compatibility matrix', size, heads, rows)}</figure>"
    )


def legend(low: float, high: float) -> str:
    """The key to the colours of ``heatmap``."""
    return (
        f'<p class="legend"><span>{per_cent(low, 0)} %</span><span class="ramp" aria-hidden="true"></span>'
        f"<span>{per_cent(high, 0)} %</span>"
        '<span class="key"><i class="cell fails"></i>no better than the old model on its own gallery</span>'
        '<span class="key"><i class="cell self"></i>a model on its own gallery</span>'
        f'<span class="key"><i class="cell unknown">{DASH}</i>cannot be compared</span></p>'
    )


def _matrix_row(matrix: NDArray[np.float64], t: int, low: float, high: float) -> str:
    cells = "".join(_matrix_cell(matrix, t, k, low, high) for k in range(t + 1))
    above = '<td class="above"></td>' * (len(matrix) - t - 1)
    return f'<tr><th scope="row" aria-label="Query model {t + 1}">{t + 1}</th>{cells}{above}</tr>'


def _matrix_cell(matrix: NDArray[np.float64], t: int, k: int, low: float, high: float) -> str:
    value, own = float(matrix[t, k]), float(matrix[k, k])
    classes = ["self"] if t == k else []
    if math.isnan(value):
        classes.append("unknown")
    elif t > k and not value > own:
        classes.append("fails")
    heat = "" if math.isnan(value) else f' style="--v:{_colour_share(value, low, high):.3f}"'
    shown = f"<span>{per_cent(value, 1)}</span>"
    marked = f' class="{" ".join(classes)}"' if classes else ""
    return f'<td{marked}{heat} title="{text(_comparison(value, own, t, k))}">{shown}</td>'


def _comparison(value: float, own: float, t: int, k: int) -> str:
    if t == k:
        score = "not measured" if math.isnan(value) else f"{per_cent(value, 1)} %"
        return f"Model {k + 1} on its own gallery: {score}"
    lead = f"Model {t + 1} searching the gallery of model {k + 1}: "
    if math.isnan(value):
        return f"{lead}cannot be compared"
    if math.isnan(own):
        return f"{lead}{per_cent(value, 1)} %, but model {k + 1} itself was not measured: not compatible"
    verdict = "compatible" if value > own else "not compatible"
    gap = 100 * (value - own)
    # A gap too small for one decimal still decides, so it is shown with more digits.
    points = f"{gap:+.1f}" if abs(gap) >= 0.05 or gap == 0 else f"{gap:+.2g}"
    return f"{lead}{per_cent(value, 1)} %, model {k + 1} itself {per_cent(own, 1)} % ({points} points): {verdict}"


def _colour_share(value: float, low: float, high: float) -> float:
    return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5

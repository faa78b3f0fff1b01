"""How results show themselves in a notebook: a few lines of HTML, no scripts, no style sheets."""

import html
import math
from collections.abc import Sequence

from holdfast.checking.estimates import Estimate


def pair_html(verdict: str, reason: str, rows: Sequence[tuple[str, Estimate | None]], notes: Sequence[str]) -> str:
    """The verdict, its reason, each test in per cent with its interval, and the notes."""
    body = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{_per_cent(found.value)}</td>"
        f"<td>{_per_cent(found.low)} to {_per_cent(found.high)}</td></tr>"
        for name, found in rows
        if found is not None
    )
    table = f"<table><tr><th></th><th>%</th><th>interval</th></tr>{body}</table>" if body else ""
    return f"{_head(verdict, reason)}{table}{_list(notes)}"


def matrix_html(
    verdict: str,
    reason: str,
    models: Sequence[str],
    matrix: Sequence[Sequence[Estimate | None]],
    gains: Sequence[Sequence[Estimate | None]],
    notes: Sequence[str],
) -> str:
    """The verdict, its reason, and the score of each query model (rows) on each gallery (columns), in per cent.

    Below the diagonal also the interval of what is gained over the old model's own score, in points.
    """
    head = "".join(f"<th>{html.escape(name)}</th>" for name in models)
    body = "".join(
        f"<tr><th>{html.escape(name)}</th>{''.join(_cell(*both) for both in zip(row, gained))}</tr>"
        for name, row, gained in zip(models, matrix, gains)
    )
    return f"{_head(verdict, reason)}<table><tr><th>query model</th>{head}</tr>{body}</table>{_list(notes)}"


def _head(verdict: str, reason: str) -> str:
    return f"<p><b>{html.escape(verdict)}</b>: {html.escape(reason)}</p>"


def _cell(found: Estimate | None, gain: Estimate | None) -> str:
    if found is None:
        return "<td></td>"
    over = "" if gain is None else f"<br><small>gain {100 * gain.low:+.2f} to {100 * gain.high:+.2f}</small>"
    return f"<td>{_per_cent(found.value)}{over}</td>"


def _list(notes: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{html.escape(note)}</li>' for note in notes)}</ul>" if notes else ""


def _per_cent(score: float) -> str:
    return "–" if math.isnan(score) else f"{100 * score:.2f}"

"""A history of checks as a table of cells with their verdicts, and what it sums up to."""

from typing import Any

from holdfast.reports.check_words import level, per_cent, span
from holdfast.reports.tables import DASH, text

_CLASSES = {"compatible": "", "incompatible": "fails", "not shown": "unsure"}


def history_body(record: dict[str, Any]) -> str:
    """The matrix, AC, AA and ACA with intervals, and the cells that are not decided."""
    return f"<h2>Model by model</h2>{_legend()}{_matrix(record)}{_summary(record)}{_uncertain(record)}"


def _legend() -> str:
    return (
        '<p class="legend"><span class="key"><i class="cell self"></i>a model on its own gallery</span>'
        '<span class="key"><i class="cell better"></i>compatible</span>'
        '<span class="key"><i class="cell unsure"></i>not shown</span>'
        '<span class="key"><i class="cell fails"></i>incompatible</span>'
        f'<span class="key"><i class="cell unknown">{DASH}</i>cannot be compared</span></p>'
    )


def _matrix(record: dict[str, Any]) -> str:
    models = record["models"]
    heads = "".join(f'<th scope="col">{text(name)}</th>' for name in models)
    rows = []
    for t, name in enumerate(models):
        cells = "".join(_cell(record, t, k) if k <= t else '<td class="above"></td>' for k in range(len(models)))
        rows.append(f'<tr><th scope="row">{text(name)}</th>{cells}</tr>')
    return (
        f'<figure class="matrix verdicts"><figcaption>{text(record["score"])}, %, and half the width of its '
        f'{level(record)} interval</figcaption><div class="scroll" tabindex="0" role="region" aria-label="Matrix">'
        f'<table class="heat"><thead><tr><td></td><th class="axis" colspan="{len(models)}">gallery of model</th></tr>'
        f'<tr><th class="axis corner">query<br>model</th>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
        "</div></figure>"
    )


def _cell(record: dict[str, Any], t: int, k: int) -> str:
    found, gain, verdict = record["matrix"][t][k], record["gains"][t][k], record["verdicts"][t][k]
    if found is None:
        return f'<td class="unknown" title="cannot be compared">{DASH}</td>'
    told = f"{per_cent(found['low'], 1)} to {per_cent(found['high'], 1)} %"
    mark = "self"
    if t > k:
        mark = _CLASSES[verdict] or "better"
        told += f"; gain {span(gain)} points: {verdict}"
    half = 50 * (found["high"] - found["low"])
    return f'<td class="{mark}" title="{text(told)}">{per_cent(found["value"], 1)}<small>±{half:.1f}</small></td>'


def _summary(record: dict[str, Any]) -> str:
    meaning = {
        "AC": "share of (new model, old gallery) pairs that beat the old model itself",
        "AA": "mean over all cells",
        "ACA": "mean over those pairs, 0 where not compatible",
    }
    rows = "".join(
        f'<tr><th scope="row">{name}</th><td>{_number(record[name]["value"])}</td>'
        f"<td>{_number(record[name]['low'])} to {_number(record[name]['high'])}</td><td>{meaning[name]}</td></tr>"
        for name in meaning
    )
    cells = [verdict for row in record["verdicts"] for verdict in row if verdict]
    counts = ", ".join(f"{cells.count(verdict)} {verdict}" for verdict in _CLASSES)
    return (
        '<h2>Over all pairs</h2><div class="scroll" tabindex="0" role="region" aria-label="Summary">'
        '<table class="settings">'
        f'<thead><tr><th scope="col"></th><th scope="col">Value</th><th scope="col">{level(record)} interval</th>'
        f'<th scope="col">Meaning</th></tr></thead><tbody>{rows}</tbody></table></div>'
        f"<p>Pair by pair, each with its own interval: {counts}.</p>"
        '<p class="note">AC counts every pair that is ahead by however little; its interval is what resampled queries'
        " give. With many pairs some will be called wrongly by chance.</p>"
    )


def _uncertain(record: dict[str, Any]) -> str:
    if not record["uncertain"]:
        return ""
    rows = "".join(
        f"<tr><td>{text(cell['query_model'])}</td><td>{text(cell['gallery_model'])}</td><td>{span(cell['gain'])}</td></tr>"
        for cell in record["uncertain"]
    )
    return (
        '<h2>Not decided</h2><div class="scroll" tabindex="0" role="region" aria-label="Not decided">'
        '<table class="settings"><thead><tr><th scope="col">Query model</th><th scope="col">Gallery of model</th>'
        f'<th scope="col">Gain, points</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _number(value: float | None) -> str:
    return DASH if value is None else f"{value:.3f}"

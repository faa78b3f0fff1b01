"""A check as one self-contained page: the verdict first, then the evidence.

A history of checks as a table of cells with their verdicts, and what it sums up to.

Pictures of a check: intervals on one axis, classes that change, and where the scores of pairs lie.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.reports.check_words import (
    NOT_COVERED,
    basis,
    evidence,
    gain_sentence,
    headline,
    level,
    losing_classes,
    per_cent,
    span,
    test_rows,
)
from holdfast.reports.curves import Line, chart
from holdfast.reports.html import DASH, document, text
from holdfast.reports.style import check_style
from holdfast.storage import write_text
from holdfast.wording import counted

_CLASSES, _QUERIES = 12, 200
_TITLE = {"check": "May the new model use the old gallery?", "history": "May the newest model use the old galleries?"}


def write_check(record: dict[str, Any], out: Path) -> None:
    """Write the page about a check's record (``as_json``) to ``out`` in one step."""
    write_text(Path(out), render_check(record))


def render_check(record: dict[str, Any]) -> str:
    """The whole page as HTML."""
    mood = record["verdict"].replace(" ", "-")
    body = [
        f"<h1>{_TITLE[record['kind']]}</h1>",
        f'<div class="headline {mood}"><p>{text(headline(record))}</p>'
        f'<p class="note">{text(gain_sentence(record))}</p></div>',
        "".join(f'<p class="warning">{text(note)}.</p>' for note in record["notes"]),
        history_body(record) if record["kind"] == "history" else _check_body(record),
        "<h2>What this does and does not say</h2>",
        f"<p>{text(_rule(record))}</p><p>{text(NOT_COVERED)}</p>",
        f'<p class="note">{text(basis(record))}</p>',
        _sources(record),
    ]
    return document(_TITLE[record["kind"]], check_style(), body, "Made with Holdfast: holdfast check.")


def _check_body(record: dict[str, Any]) -> str:
    parts = ["<h2>Evidence</h2>"] if evidence(record) or test_rows(record) else []
    rows = test_rows(record)
    if rows:
        parts.append(interval_plot(rows, f"{record['score']}, % ({level(record)} intervals)"))
    if record.get("gain"):
        goal = f"Gain of the cross-test over the self-test, points; it must lie right of {100 * record['min_gain']:g}"
        parts.append(interval_plot([("gain", record["gain"])], goal, record["min_gain"]))
    if record.get("chance") is not None:
        parts.append(f'<p class="note">Blind search would get {per_cent(record["chance"])} %.</p>')
    parts += [f"<p>{text(sentence)}</p>" for sentence in evidence(record)]
    losing = losing_classes(record, _CLASSES)
    if losing:
        parts.append(f"<h2>Classes that lose most</h2>{class_bars(losing, 'Classes that lose most')}")
        every = counted(record["classes"], "class")
        parts.append(f'<p class="note">{len(losing)} of {every}, ordered by the queries they lose.</p>')
    if record.get("thresholds"):
        parts.append(_thresholds(record["thresholds"]))
    parts.append(_lost(record))
    return "".join(parts)


def _thresholds(found: dict[str, Any]) -> str:
    rows = (
        ("old queries, threshold as it is", found["threshold"], found["old_far"], found["old_tar"]),
        ("new queries, threshold as it is", found["threshold"], found["new_far"], found["new_tar"]),
        (
            "new queries, threshold moved",
            found["new_threshold"],
            found["new_threshold_far"],
            found["new_threshold_tar"],
        ),
    )
    lines = "".join(
        f'<tr><th scope="row">{name}</th><td>{at:.4f}</td><td>{per_cent(far, 3)}</td><td>{per_cent(tar)}</td></tr>'
        for name, at, far, tar in rows
    )
    origin = "given" if found["given"] else "chosen so that the old queries have this false-accept rate"
    return (
        '<h2>The score threshold</h2><div class="scroll" tabindex="0" role="region" aria-label="Thresholds">'
        '<table class="scores"><thead><tr><th scope="col" rowspan="1">On the old gallery</th>'
        '<th scope="col">Threshold</th><th scope="col">Wrong pairs accepted&nbsp;%</th>'
        f'<th scope="col">Right pairs accepted&nbsp;%</th></tr></thead><tbody>{lines}</tbody></table></div>'
        f'<p class="note">The threshold was {origin}; {found["impostor_pairs"]:,} wrong pairs were drawn.</p>'
        f'<div class="charts">{score_histogram(found["histogram"])}</div>'
    )


def _lost(record: dict[str, Any]) -> str:
    changes = record.get("changes")
    if not changes or not changes["lost_queries"]:
        return ""
    entries = changes["lost_queries"]
    classed = "class" in entries[0]
    heads = ["Query", *(["Class"] if classed else []), "Old hit", "New hit", *(["Taken for"] if classed else [])]
    keys = ["query", *(["class"] if classed else []), "old_hit", "new_hit", *(["taken_for"] if classed else [])]
    rows = "".join(
        "<tr>" + "".join(f"<td>{text('nothing' if e[key] is None else e[key])}</td>" for key in keys) + "</tr>"
        for e in entries[:_QUERIES]
    )
    shown = f"{min(len(entries), _QUERIES):,} of {len(entries):,} shown"
    return (
        f"<h2>Right before, wrong now</h2><details><summary>Queries whose first hit becomes wrong ({shown})"
        '</summary><div class="scroll" tabindex="0" role="region" aria-label="Lost queries"><table class="settings">'
        f"<thead><tr>{''.join(f'<th scope=col>{head}</th>' for head in heads)}</tr></thead><tbody>{rows}</tbody>"
        "</table></div></details>"
    )


def _rule(record: dict[str, Any]) -> str:
    goal = f"{100 * record['min_gain']:g} points"
    return (
        f"Compatible is said if the whole {level(record)} interval of the gain lies above {goal}, incompatible if it "
        "lies below; otherwise it is not shown. The gain compares the same queries on the same gallery; only the model "
        "that embeds the query differs."
    )


def _sources(record: dict[str, Any]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{text(name.replace("_", " "))}</th><td>{text(file)}</td></tr>'
        for name, file in (record.get("sources") or {}).items()
    )
    return f'<table class="settings"><tbody>{rows}</tbody></table>' if rows else ""


_VERDICT_CLASSES = {"compatible": "", "incompatible": "fails", "not shown": "unsure"}


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
        mark = _VERDICT_CLASSES[verdict] or "better"
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
    counts = ", ".join(f"{cells.count(verdict)} {verdict}" for verdict in _VERDICT_CLASSES)
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


_WIDTH, _LEFT, _RIGHT, _ROW = 640, 236, 24, 34


def interval_plot(rows: Sequence[tuple[str, dict[str, float]]], label: str, mark: float | None = None) -> str:
    """A dot with its interval per row, in per cent on a common axis; ``mark`` draws a line across at that value."""
    ends = [100 * found[key] for _, found in rows for key in ("low", "high", "value")]
    ends += [100 * mark] if mark is not None else []
    low, high, step = _axis(min(ends), max(ends))
    height = _ROW * len(rows) + 34

    def px(value: float) -> float:
        return _LEFT + (100 * value - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    parts = []
    for i in range(round((high - low) / step) + 1):
        at = px((low + i * step) / 100)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="4" y2="{height - 28}"/>')
        parts.append(f'<text class="x" x="{at:.1f}" y="{height - 10}">{low + i * step:g}</text>')
    if mark is not None:
        parts.append(f'<line class="goal" x1="{px(mark):.1f}" x2="{px(mark):.1f}" y1="0" y2="{height - 28}"/>')
    for i, (name, found) in enumerate(rows):
        y = _ROW * i + _ROW / 2 + 2
        told = f"{name}: {100 * found['value']:.2f} ({100 * found['low']:.2f} to {100 * found['high']:.2f})"
        parts.append(
            f'<g class="span c{i}"><title>{text(told)}</title>'
            f'<text class="row" x="0" y="{y + 4:.1f}">{text(name)}</text>'
            f'<line x1="{px(found["low"]):.1f}" x2="{px(found["high"]):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<circle cx="{px(found["value"]):.1f}" cy="{y:.1f}" r="5"/></g>'
        )
    return (
        f'<figure class="spans"><figcaption>{text(label)}</figcaption><div class="scroll" tabindex="0" role="region" '
        f'aria-label="{text(label)}"><svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(parts)}</svg>'
        "</div></figure>"
    )


def class_bars(entries: Sequence[dict[str, Any]], label: str) -> str:
    """Old and new score of each class as two bars, one under the other."""
    rows = "".join(
        f'<tr><th scope="row">{text(entry["class"])}</th><td>{_bar(entry["old"], "c0")}{_bar(entry["new"], "c1")}</td>'
        f"<td>{100 * entry['old']:.1f}<br>{100 * entry['new']:.1f}</td><td>{entry['queries']}</td>"
        f"<td>{entry['change_in_queries']:+.4g}</td></tr>"
        for entry in entries
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(label)}"><table class="classes"><thead><tr>'
        '<th scope="col">Class</th>'
        '<th scope="col"><span class="c0">old</span> and <span class="c1">new</span> queries</th>'
        '<th scope="col">%</th><th scope="col">Queries</th><th scope="col">Change, queries</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def score_histogram(histogram: dict[str, list[float]]) -> str:
    """Where right and wrong pairs lie under old and new queries."""
    x = [100 * value for value in histogram["cosine"]]
    kinds = ("old wrong", "new wrong", "old right", "new right")
    slots = {"old wrong": 0, "new wrong": 1, "old right": 5, "new right": 4}
    lines = [Line(kind, slots[kind], x, [100 * share for share in histogram[kind]]) for kind in kinds]
    return chart(lines, "Share of pairs at each cosine, %", "cosine x 100", markers=False)


def _bar(value: float, colour: str) -> str:
    return f'<i class="bar {colour}" style="width:{100 * value:.1f}%"></i>'


def _axis(low: float, high: float) -> tuple[float, float, float]:
    """Round ends around the values, and the step between ticks."""
    rough = max(high - low, 0.05) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * lead for lead in (1, 2, 5, 10) if power * lead >= rough * (1 - 1e-9))
    bottom, top = step * math.floor(low / step), step * math.ceil(high / step)
    return bottom, max(top, bottom + step), step

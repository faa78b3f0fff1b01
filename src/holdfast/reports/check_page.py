"""The self-contained HTML page about a check of two models, or about a history of checks."""

from pathlib import Path
from typing import Any

from holdfast.core.storage import write_text
from holdfast.core.wording import counted, decimal, per_cent
from holdfast.reports.check_text import (
    EXPOSURE_MEANING,
    VERSION_COLUMNS,
    basis_sentence,
    confidence_level,
    evidence_sentences,
    gain_sentence,
    gain_with_interval,
    headline,
    lead_sentences,
    losing_classes,
    mixed_rule,
    not_covered,
    score_name,
    score_rows,
    test_rows,
    version_rows,
    version_sentences,
)
from holdfast.reports.figures import class_bars, heat_table, interval_plot
from holdfast.reports.html import DASH, document, in_columns, plain_table, text
from holdfast.reports.style import check_style

_CLASSES, _QUERIES = 12, 200
_TITLE = {
    "check": "Do people find more with the new model on the old gallery?",
    "history": "Do people find more with the newest model on the old galleries?",
    "mixed": "Do people find more in the mixed gallery?",
}


def write_check(record: dict[str, Any], out: Path) -> None:
    """Write the page about a check's record (``as_json``) to ``out`` in one step."""
    write_text(Path(out), render_check(record))


def render_check(record: dict[str, Any]) -> str:
    """The whole page as HTML."""
    mood = headline_style(record)
    body = [
        f"<h1>{_TITLE[record['kind']]}</h1>",
        f'<div class="headline {mood}"><p>{text(headline(record))}</p>'
        + "".join(
            f'<p class="note">{text(sentence)}</p>'
            for sentence in (*lead_sentences(record), gain_sentence(record))
            if sentence
        )
        + "</div>",
        "".join(f'<p class="warning">{text(note)}.</p>' for note in record["notes"]),
        in_columns(
            f"{_BODY[record['kind']](record)}<h2>What this does and does not say</h2>"
            f"<p>{text(_rule(record))}</p>{_limits(record)}"
            f'<p class="note">{text(basis_sentence(record))}</p>{_sources(record)}'
        ),
    ]
    return document(_TITLE[record["kind"]], check_style(), body, "Made with Holdfast: holdfast check.")


def headline_style(record: dict[str, Any]) -> str:
    """The style class of the headline, by the answer that decides the exit status."""
    answer = (record.get("loss") or {}).get("answer")
    return {"yes": "compatible", "no": "incompatible"}.get(str(answer), "not-shown")


def _check_body(record: dict[str, Any]) -> str:
    parts = ["<h2>Evidence</h2>"] if evidence_sentences(record) or test_rows(record) else []
    rows = test_rows(record)
    if rows:
        parts.append(interval_plot(rows, f"{score_name(record)}, % ({confidence_level(record)} intervals)"))
    if record.get("gain"):
        bound = _bound(record)
        goal = f"Gain over keeping the old model, points; right of {100 * bound:g}: no more than accepted is lost"
        parts.append(interval_plot([("gain", record["gain"])], goal, bound))
    if record.get("chance") is not None:
        parts.append(f'<p class="note">Random search would get {per_cent(record["chance"])} %.</p>')
    parts += [f"<p>{text(sentence)}</p>" for sentence in evidence_sentences(record)]
    losing = losing_classes(record, _CLASSES)
    if losing:
        parts.append(f"<h2>Classes that lose most</h2>{class_bars(losing, 'Classes that lose most')}")
        every = counted(record["classes"], "class")
        parts.append(f'<p class="note">{len(losing)} of {every}, ordered by the queries they lose.</p>')
    parts.append(_lost(record))
    return "".join(parts)


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
        f"<h2>Lower score now</h2><details><summary>Queries that score lower ({shown})"
        f"</summary>{plain_table('Lost queries', heads, rows)}</details>"
    )


def _bound(record: dict[str, Any]) -> float:
    """The gain that a release needs."""
    return float(0.0 - record["loss"]["max_loss"])


def _limits(record: dict[str, Any]) -> str:
    caveat = not_covered(record)
    return f"<p>{text(caveat)}</p>" if caveat else ""


def _rule(record: dict[str, Any]) -> str:
    gates = f" {mixed_rule(record)}" if record["kind"] == "mixed" else ""
    if not record.get("loss"):
        return f"Nothing was judged: {record['reason']}.{gates}"
    level, question = confidence_level(record), record["loss"]["question"].lower()
    return (
        f"{record['better']['question']} is answered yes if the whole {level} interval of the gain is above 0, no if "
        f"it is below, otherwise not shown; {question} likewise at {100 * _bound(record):g} points. More queries "
        f"narrow the interval. The gain compares the same queries; keeping the old model is the old model's queries on "
        f"the old model's vectors.{gates}"
    )


def _sources(record: dict[str, Any]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{text(name.replace("_", " "))}</th><td>{text(file)}</td></tr>'
        for name, file in (record.get("sources") or {}).items()
    )
    return f'<table class="settings"><tbody>{rows}</tbody></table>' if rows else ""


_VERDICT_CLASSES = {"better": "", "worse": "fails", "not shown": "unsure"}


def history_body(record: dict[str, Any]) -> str:
    """The matrix, AC, AA and ACA with intervals, and the cells that are not decided."""
    return f"<h2>Model by model</h2>{_legend()}{_matrix(record)}{_summary(record)}{_uncertain(record)}"


def _legend() -> str:
    return (
        '<p class="legend"><span class="key"><i class="cell self"></i>a model on its own gallery</span>'
        '<span class="key"><i class="cell better"></i>better than keeping the old model</span>'
        '<span class="key"><i class="cell unsure"></i>not shown</span>'
        '<span class="key"><i class="cell fails"></i>worse</span>'
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
        f"{confidence_level(record)} interval</figcaption>"
        f"{heat_table('Matrix', len(models), heads, ''.join(rows))}</figure>"
    )


def _cell(record: dict[str, Any], t: int, k: int) -> str:
    found, gain, verdict = record["matrix"][t][k], record["gains"][t][k], record["verdicts"][t][k]
    if found is None:
        return f'<td class="unknown" title="cannot be compared">{DASH}</td>'
    tooltip = f"{per_cent(found['low'], 1)} to {per_cent(found['high'], 1)} %"
    mark = "self"
    if t > k:
        mark = _VERDICT_CLASSES[verdict] or "better"
        tooltip += f"; gain {gain_with_interval(gain)} points: {verdict}"
    half = 50 * (found["high"] - found["low"])
    return f'<td class="{mark}" title="{text(tooltip)}">{per_cent(found["value"], 1)}<small>±{half:.1f}</small></td>'


def _summary(record: dict[str, Any]) -> str:
    meaning = {
        "AC": "share of (new model, old gallery) pairs that beat the old model itself",
        "AA": "mean over all cells",
        "ACA": "mean over those pairs, 0 for the others",
    }
    rows = "".join(
        f'<tr><th scope="row">{name}</th><td>{decimal(record[name], 3)}</td><td>{meaning[name]}</td></tr>'
        for name in meaning
    )
    cells = [verdict for row in record["verdicts"] for verdict in row if verdict]
    counts = ", ".join(f"{cells.count(verdict)} {verdict}" for verdict in _VERDICT_CLASSES)
    heads = ("", "Value", "Meaning")
    return (
        f"<h2>Over all pairs</h2>{plain_table('Summary', heads, rows)}"
        f"<p>Pair by pair, each with its own interval: {counts}.</p>"
        '<p class="note">AC counts every pair with a higher score, however small the difference.'
        " With many pairs some verdicts will be wrong by chance.</p>"
    )


def _uncertain(record: dict[str, Any]) -> str:
    if not record["uncertain"]:
        return ""
    rows = "".join(
        f"<tr><td>{text(cell['query_model'])}</td><td>{text(cell['gallery_model'])}</td><td>{gain_with_interval(cell['gain'])}</td></tr>"
        for cell in record["uncertain"]
    )
    heads = ("Query model", "Gallery of model", "Gain, points")
    return f"<h2>Not decided</h2>{plain_table('Not decided', heads, rows)}"


def mixed_body(record: dict[str, Any]) -> str:
    """Scores with intervals, the exposure of each version, and where the versions come from."""
    rows = "".join(
        f'<tr><th scope="row">{text(row[0])}</th>{"".join(f"<td>{text(cell)}</td>" for cell in row[1:])}</tr>'
        for row in version_rows(record)
    )
    return (
        f"<h2>Scores</h2>{interval_plot(score_rows(record), f'% ({confidence_level(record)} intervals)')}"
        f"<h2>How often each version is shown</h2>{plain_table('Versions', VERSION_COLUMNS, rows)}"
        f'<p class="note">{text(EXPOSURE_MEANING)}</p>'
        + "".join(f"<p>{text(sentence)}</p>" for sentence in version_sentences(record))
    )


_BODY = {"check": _check_body, "history": history_body, "mixed": mixed_body}

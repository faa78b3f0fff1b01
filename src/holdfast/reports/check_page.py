"""A check as one self-contained page: the verdict first, then the evidence."""

from pathlib import Path
from typing import Any

from holdfast.reports.check_matrix import history_body
from holdfast.reports.check_plots import class_bars, interval_plot, score_histogram
from holdfast.reports.check_words import (
    NOT_COVERED,
    basis,
    evidence,
    gain_sentence,
    headline,
    level,
    losing_classes,
    per_cent,
    test_rows,
)
from holdfast.reports.document import document
from holdfast.reports.style import check_style
from holdfast.reports.tables import text
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

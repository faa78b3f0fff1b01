"""A check as Markdown, for a comment on a pull request."""

import re
from typing import Any

from holdfast.reports.check_words import (
    NOT_COVERED,
    basis,
    evidence,
    gain_sentence,
    headline,
    level,
    losing_classes,
    lost_query,
    per_cent,
    points,
    test_rows,
)

_LISTED = 20


def check_markdown(record: dict[str, Any]) -> str:
    """The verdict, a table of the tests, the evidence, and what is long folded away."""
    parts = [f"### {_plain(headline(record))}"]
    if record["kind"] == "history":
        parts += _history(record)
    else:
        parts += [_plain(gain_sentence(record)), _tests(record)]
        parts += ["\n".join(f"- {_plain(sentence)}" for sentence in evidence(record))]
        parts += _folded(record)
    parts += [
        "\n".join(f"- {_plain(note)}" for note in record["notes"]),
        f"<sub>{_plain(basis(record))} {NOT_COVERED}</sub>",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def refusal_markdown(reason: str) -> str:
    """What to say where nothing could be judged."""
    return f"### Could not be judged: {_plain(reason)}\n"


def _tests(record: dict[str, Any]) -> str:
    rows = test_rows(record)
    if not rows:
        return ""
    lines = [f"| {record['score']} | % | {level(record)} interval |", "|---|--:|--:|"]
    for name, found in rows:
        lines.append(f"| {name} | {per_cent(found['value'])} | {per_cent(found['low'])} to {per_cent(found['high'])} |")
    if gain := record.get("gain"):
        lines.append(
            f"| **gain, points** | **{points(gain['value'])}** | **{points(gain['low'])} to {points(gain['high'])}** |"
        )
    return "\n".join(lines)


def _folded(record: dict[str, Any]) -> list[str]:
    parts = []
    losing = losing_classes(record, _LISTED)
    if losing:
        lines = ["| class | queries | old % | new % |", "|---|--:|--:|--:|"]
        lines += [
            f"| {_plain(entry['class'])} | {entry['queries']} | {per_cent(entry['old'])} | {per_cent(entry['new'])} |"
            for entry in losing
        ]
        parts.append(_details(f"Classes that lose most ({len(losing)} shown)", "\n".join(lines)))
    lost = (record.get("changes") or {}).get("lost_queries", [])
    if lost:
        lines = [f"- {_plain(lost_query(entry))}" for entry in lost[:_LISTED]]
        parts.append(_details(f"Right before, wrong now ({len(lines)} of {len(lost):,} shown)", "\n".join(lines)))
    return parts


def _history(record: dict[str, Any]) -> list[str]:
    marks = {"compatible": "✔", "incompatible": "✘", "not shown": "?", None: ""}
    heads = " | ".join(record["models"])
    lines = [f"| query model \\ gallery of | {heads} |", "|---|" + "--:|" * len(record["models"])]
    for t, name in enumerate(record["models"]):
        cells = [
            f"{per_cent(found['value'], 1)} {marks[record['verdicts'][t][k]]}".strip()
            if found
            else ("–" if k < t else "")
            for k, found in enumerate(record["matrix"][t])
        ]
        lines.append(f"| {_plain(name)} | {' | '.join(cells)} |")
    summary = ", ".join(
        f"{name} {record[name]['value']:.3f} ({record[name]['low']:.3f} to {record[name]['high']:.3f})"
        for name in ("AC", "AA", "ACA")
        if record[name]["value"] is not None
    )
    key = f"{record['score']} in per cent; ✔ compatible, ✘ incompatible, ? not shown."
    return ["\n".join(lines), key, f"{summary}, {level(record)} intervals." if summary else ""]


def _details(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def _plain(value: object) -> str:
    """Text that cannot break a table, start HTML or Markdown, show a picture or mention anybody."""
    safe = re.sub(r"([\\`*\[\]|])", r"\\\1", " ".join(str(value).split()))
    safe = safe.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"(?<!\w)@", "@\u200b", safe)

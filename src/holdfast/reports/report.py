"""A neutral report of facts, which text, Markdown and HTML render: headline, sentences, tables, notes.

``check_report`` and ``compare_report`` make one from a record. The command line prints it (``cli/show.py``).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.storage import write_text

SUFFIXES = (".html", ".md")
_SHOWN = 20
"""Lines of a folded part in Markdown."""


@dataclass(frozen=True)
class Bar:
    """Where an interval and its value lie on an axis from 0 to 100, and a bound to compare it with."""

    low: float
    value: float
    high: float
    bound: float | None = None

    @classmethod
    def of(cls, low: float, value: float, high: float, ends: tuple[float, float], bound: float | None = None) -> "Bar":
        """ends: of the axis, in the unit of the numbers; what lies beyond is cut off."""

        def place(number: float) -> float:
            return round(100 * min(1.0, max(0.0, (number - ends[0]) / (ends[1] - ends[0]))), 1)

        return cls(place(low), place(value), place(high), None if bound is None else place(bound))


@dataclass(frozen=True)
class Table:
    """A table of text, with numbers from the second column on.

    strong: the rows in bold. bars: what a page draws beside each row; empty: nothing.
    kinds: of each cell, for its colour on a page: "better", "worse", "unsure", "self" or "".
    folded: what a page or a comment calls the table while it is folded; "" if it never is.
    narrow: the sentence that stands for the table where it is wider than the screen.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    strong: Sequence[int] = ()
    bars: Sequence[Bar | None] = ()
    kinds: Sequence[Sequence[str]] = ()
    folded: str = ""
    narrow: str = ""


@dataclass(frozen=True)
class Listing:
    """Sentences of which the terminal shows the first few, and which pages and comments fold under a title."""

    title: str
    lines: Sequence[str]


Part = str | Table | Listing


@dataclass(frozen=True)
class Report:
    """What is known, in the order in which people decide.

    headline: the answer. mood: "yes", "no" or "open", for its colour. lead: sentences that belong to it.
    parts: evidence. notes: warnings. basis: what the numbers rest on and do not cover. made_by: the command.
    details: what only a page has room for.
    """

    title: str
    headline: str
    mood: str
    made_by: str
    lead: Sequence[str] = ()
    parts: Sequence[Part] = ()
    notes: Sequence[str] = ()
    basis: Sequence[str] = ()
    details: Sequence[str] = ()


def refusal_report(reason: str, made_by: str) -> Report:
    """The report of a check that could not be made."""
    return Report("Not judged", f"Not judged: {reason}", "open", made_by)


def check_page_file(path: Path) -> None:
    """Refuse a page with another suffix, or one that cannot be written."""
    from holdfast.core.storage import check_file_writable

    if path.suffix.lower() not in SUFFIXES:
        raise HoldfastError(f"{path}: a page is FILE.html or FILE.md")
    check_file_writable(path)


def write_report(report: Report, path: Path | str) -> None:
    """Write the report as a self-contained HTML page or as Markdown, by the suffix, in one step."""
    write_text(Path(path), markdown(report) if Path(path).suffix.lower() == ".md" else html_page(report))


def html_page(report: Report) -> str:
    """The whole page, which loads nothing and runs no script."""
    return _rendered("page.html", report)


def html_fragment(report: Report) -> str:
    """The body of the page, for a notebook."""
    return _rendered("body.html", report)


def _rendered(template: str, report: Report) -> str:
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.tests["table"] = lambda part: isinstance(part, Table)
    environment.tests["listing"] = lambda part: isinstance(part, Listing)
    page = environment.get_template(template).render(report=report)
    return page.encode("utf-8", "replace").decode("utf-8")  # what UTF-8 cannot encode becomes a question mark


def markdown(report: Report) -> str:
    """Markdown for a pull request or a page of documentation; long lists are folded."""
    parts = [f"### {plain_markdown(report.headline)}", _bullets(report.lead)]
    for part in report.parts:
        if isinstance(part, Table):
            table = table_markdown(part.heads, part.rows[: _SHOWN if part.folded else None], part.strong)
            parts.append(_folded(part.folded, table) if part.folded else table)
        elif isinstance(part, Listing):
            parts.append(_folded(f"{part.title} ({len(part.lines):,})", _bullets(part.lines[:_SHOWN])))
        else:
            parts.append(plain_markdown(part))
    parts += [_bullets(report.notes), f"<sub>{plain_markdown(' '.join(report.basis))}</sub>" if report.basis else ""]
    return "\n\n".join(part for part in parts if part) + "\n"


def table_markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], strong: Sequence[int] = ()) -> str:
    """A Markdown table of text, with numbers from the second column on; empty without rows."""
    if not rows:
        return ""
    marks = ["", *("**" if number in strong else "" for number in range(len(rows)))]
    lines = [
        f"| {' | '.join(f'{mark}{plain_markdown(cell)}{mark}' for cell in row)} |"
        for mark, row in zip(marks, (heads, *rows))
    ]
    return "\n".join([lines[0], "|---|" + "--:|" * (len(heads) - 1), *lines[1:]])


def _bullets(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {plain_markdown(sentence)}" for sentence in sentences)


def _folded(summary: str, body: str) -> str:
    return f"<details><summary>{plain_markdown(summary)}</summary>\n\n{body}\n\n</details>"


def plain_markdown(value: object) -> str:
    """Text escaped so that it cannot break a table, start HTML or Markdown, embed an image or mention a user."""
    safe = re.sub(r"([\\`*\[\]|])", r"\\\1", " ".join(str(value).split()))
    safe = safe.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"(?<!\w)@", "@\u200b", safe)

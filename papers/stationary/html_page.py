"""Tables and figures of the reproduction as one self-contained HTML page."""

import base64
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from papers.run_pages.html import text
from papers.run_pages.style import style
from papers.stationary.result_page import Figure, ResultPage, Selection, Table
from papers.stationary.results import Results

_ABOUT = (
    "Numbers measured by Holdfast beside those the paper prints. AC is the share of pairs of a newer model and an older"
    " gallery that beat the old model on its own gallery; AA the mean of all models on their own and on older"
    " galleries; ACA the mean on older ones alone, with 0 for a pair that is not compatible. Where there are several"
    " seeds: mean ± standard deviation."
)
_STYLE = (
    ".picture img { max-width:100%; height:auto; background:#fff; border-radius:4px; }\n"
    ".contents { columns:2 22rem; padding-left:1.2rem; line-height:1.7; }\n"
)


def render_html(pages: Mapping[str, ResultPage], results: Results, selection: Selection) -> str:
    """The HTML page, with its pictures embedded."""
    title = "The paper's tables, reproduced"
    headings = {name: text(page.about[0].upper() + page.about[1:]) for name, page in pages.items()}
    body = [f"<h1>{title}</h1><p>{text(_ABOUT)}</p>", _contents(headings)]
    for name, page in pages.items():
        body.append(f'<h2 id="{text(name)}">{headings[name]}</h2>')
        body += [_table(table) for table in page.tables(results, selection)]
        body += [_picture(figure) for figure in page.pictures(results, selection)]
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{title}</title><style>{style(0)}{_STYLE}</style></head>\n<body><main>{chr(10).join(body)}"
        "<footer>Made with Holdfast; every number comes from a file in results/.</footer></main></body></html>\n"
    )


def _contents(headings: Mapping[str, str]) -> str:
    """Links to the parts; empty for a single part."""
    if len(headings) < 2:
        return ""
    links = "".join(f'<li><a href="#{text(name)}">{heading}</a></li>' for name, heading in headings.items())
    return f'<nav aria-label="Contents"><ul class="contents">{links}</ul></nav>'


def _table(table: Table) -> str:
    heads = "".join(f'<th scope="col"{_side(i, table)}>{text(name)}</th>' for i, name in enumerate(table.header))
    rows = "".join(
        "<tr>" + "".join(f"<td{_side(i, table)}>{text(cell)}</td>" for i, cell in enumerate(row)) + "</tr>"
        for row in table.rows
    )
    notes = "".join(f'<p class="note">{_with_code(note)}</p>' for note in table.notes)
    return (
        f'<h3>{text(table.title)}</h3><div class="scroll" tabindex="0" role="region" aria-label="{text(table.title)}">'
        f'<table class="scores"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{notes}'
    )


def _with_code(note: str) -> str:
    """A note as HTML, with text between backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", text(note))


def _side(column: int, table: Table) -> str:
    return "" if column in table.right else ' style="text-align:left"'


def _picture(figure: Figure) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{figure.name}.png"
        figure.draw(figure.data, path)
        data = base64.b64encode(path.read_bytes()).decode("ascii")
    return (
        f'<figure class="picture"><img src="data:image/png;base64,{data}" alt="{text(figure.caption)}">'
        f"<figcaption>{text(figure.caption)}</figcaption></figure>"
    )

"""HTML of the pages: escaped text, tables of scores and settings, and the document around them."""

import html
from collections.abc import Sequence

DASH = "–"


def text(value: object) -> str:
    """``value`` escaped for HTML text and attributes. Characters that UTF-8 cannot encode become question marks."""
    return html.escape(str(value).encode("utf-8", "replace").decode("utf-8"), quote=True)


def scroll_box(label: str, content: str) -> str:
    """HTML in a box that scrolls sideways on narrow screens. label: the name of the box, for screen readers."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{text(label)}">{content}</div>'


def plain_table(label: str, heads: Sequence[str], rows: str) -> str:
    """A table of text in a scrolling box. heads: HTML of each column's head. rows: HTML of all rows."""
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    return scroll_box(label, f'<table class="settings"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>')


def document(title: str, css: str, body: Sequence[str], footer: str) -> str:
    """A whole HTML document; empty parts of ``body`` are left out."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # The browser enforces that the page fetches nothing and runs no script.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{text(title)}</title><style>{css}</style></head>\n"
        f"<body><main>{chr(10).join(part for part in body if part)}"
        f"<footer>{text(footer)}</footer></main></body></html>\n"
    )

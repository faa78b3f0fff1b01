"""The shell of every page: self-contained, and the browser is told to hold it to that."""

from collections.abc import Sequence

from holdfast.reports.tables import text


def document(title: str, css: str, body: Sequence[str], footer: str) -> str:
    """A whole HTML document; empty parts of ``body`` are left out."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # The page's own promise, enforced by the browser: nothing is fetched and nothing runs.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{text(title)}</title><style>{css}</style></head>\n"
        f"<body><main>{chr(10).join(part for part in body if part)}"
        f"<footer>{text(footer)}</footer></main></body></html>\n"
    )

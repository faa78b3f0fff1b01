"""Reports from records on disk, without torch: HTML pages about checks and versions, and a check as Markdown."""

from holdfast.reports.check_page import render_check, write_check
from holdfast.reports.check_text import check_markdown, refusal_markdown

__all__ = [
    "check_markdown",
    "refusal_markdown",
    "render_check",
    "write_check",
]

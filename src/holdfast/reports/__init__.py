"""Reports from records on disk, without torch: HTML pages about runs and checks, and a check as Markdown."""

from holdfast.reports.check_page import render_check, write_check
from holdfast.reports.check_text import check_markdown, refusal_markdown
from holdfast.reports.page import render, write_report
from holdfast.reports.records import METHOD_NAMES, ProtocolRecord, RunRecord, read_run

__all__ = [
    "METHOD_NAMES",
    "ProtocolRecord",
    "RunRecord",
    "check_markdown",
    "read_run",
    "refusal_markdown",
    "render",
    "render_check",
    "write_check",
    "write_report",
]

"""One self-contained HTML page about one or several runs, rebuilt from their records on disk: no torch, no network."""

from holdfast.reports.check_page import render_check, write_check
from holdfast.reports.check_words import check_markdown, refusal_markdown
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

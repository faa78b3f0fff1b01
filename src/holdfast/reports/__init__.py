"""Reports from records: one set of facts, as text, Markdown or a page. Without torch."""

from holdfast.reports.check_report import check_report
from holdfast.reports.compare_report import compare_report
from holdfast.reports.report import Report, html_fragment, html_page, markdown, refusal_report, write_report

__all__ = [
    "Report",
    "check_report",
    "compare_report",
    "html_fragment",
    "html_page",
    "markdown",
    "refusal_report",
    "write_report",
]

"""One self-contained HTML page about one or several runs, rebuilt from their records on disk: no torch, no network."""

from holdfast.reports.page import render, write_report
from holdfast.reports.records import METHOD_NAMES, ProtocolRecord, RunRecord, read_run

__all__ = ["METHOD_NAMES", "ProtocolRecord", "RunRecord", "read_run", "render", "write_report"]

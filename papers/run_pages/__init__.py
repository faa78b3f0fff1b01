"""HTML pages that compare finished runs: ``python -m papers.run_pages RUN [RUN ...]``."""

from papers.run_pages.page import render, write_report
from papers.run_pages.records import METHOD_NAMES, ProtocolRecord, RunRecord, read_run

__all__ = ["METHOD_NAMES", "ProtocolRecord", "RunRecord", "read_run", "render", "write_report"]

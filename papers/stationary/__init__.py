"""The study of "A Stationary (and Therefore Compatible) Representation is All You Need".

``PAGES`` lists every table, figure and further study. A page names its runs, reads their results, and puts them beside
the numbers that the paper prints. To add a page, write a module with its runs, rows and tables and add it to ``PAGES``.
"""

from papers.stationary.pages import PAGES
from papers.stationary.result_page import ResultPage, Selection
from papers.stationary.results import Results
from papers.stationary.study_runs import StudyRun

__all__ = ["PAGES", "ResultPage", "Results", "Selection", "StudyRun"]

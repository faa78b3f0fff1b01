"""The paper's tables and figures: which runs they need, what the paper printed, what was measured here.

``EXHIBITS`` names them all. Another one is a file with its cells, rows and tables, and a line in that table.
"""

from papers.stationary.cells import Cell
from papers.stationary.exhibit import Exhibit, Selection
from papers.stationary.exhibits import EXHIBITS
from papers.stationary.results import Results

__all__ = ["EXHIBITS", "Cell", "Exhibit", "Results", "Selection"]

"""The paper's tables and figures: which runs they need, what the paper printed, what was measured here.

``EXHIBITS`` names them all. Another one is a file with its cells, rows and tables, and a line in that table.
"""

from holdfast.reproduction.cells import Cell
from holdfast.reproduction.exhibit import Exhibit, Selection
from holdfast.reproduction.exhibits import EXHIBITS
from holdfast.reproduction.results import Results

__all__ = ["EXHIBITS", "Cell", "Exhibit", "Results", "Selection"]

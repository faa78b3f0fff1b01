"""One file, one method, one final class: a paper's, unless it says ``ours``. The training loop knows none of them."""

from holdfast.methods.advbct import AdvBCT
from holdfast.methods.bct import BCT
from holdfast.methods.cvs import CVS
from holdfast.methods.er import ER
from holdfast.methods.fan import FAN
from holdfast.methods.interface import Batch, FeaturePhase, Method, Progress, Survey, TaskView
from holdfast.methods.lce import LCE
from holdfast.methods.means_hoc import MeansHOC
from holdfast.methods.simplex_fd import SimplexFD
from holdfast.methods.simplex_hoc import SimplexHOC
from holdfast.methods.simplex_hoc_views import SimplexHOCViews
from holdfast.methods.table import METHODS, method_class

__all__ = [
    "BCT",
    "CVS",
    "ER",
    "FAN",
    "LCE",
    "METHODS",
    "AdvBCT",
    "Batch",
    "FeaturePhase",
    "MeansHOC",
    "Method",
    "Progress",
    "SimplexFD",
    "SimplexHOC",
    "SimplexHOCViews",
    "Survey",
    "TaskView",
    "method_class",
]

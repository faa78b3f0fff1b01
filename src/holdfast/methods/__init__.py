"""One file, one method, one final class: a paper's, unless it says ``ours``. The training loop knows none of them.

The methods by name, and methods of the user's own.
"""

import inspect

from holdfast.errors import HoldfastError, unknown_name
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
from holdfast.named_code import import_named, is_named_code

METHODS: dict[str, type[Method]] = {
    "er": ER,
    "fan": FAN,
    "bct": BCT,
    "lce": LCE,
    "advbct": AdvBCT,
    "cvs": CVS,
    "simplex_fd": SimplexFD,
    "simplex_hoc": SimplexHOC,
    "simplex_hoc_views": SimplexHOCViews,
    "means_hoc": MeansHOC,
}


def method_class(name: str) -> type[Method]:
    """The method of that name; ``package.module:Class`` is the user's own, imported: a finished subclass of Method."""
    if not is_named_code(name):
        if name not in METHODS:
            raise HoldfastError(f"{unknown_name('method', name, METHODS)}; or your own: package.module:Class")
        return METHODS[name]
    found = import_named("method", name)
    if not (inspect.isclass(found) and issubclass(found, Method)):
        raise HoldfastError(f"method {name}: it must be a class derived from holdfast.methods.Method")
    if inspect.isabstract(found):
        lacking = ", ".join(sorted(found.__abstractmethods__))
        raise HoldfastError(f"method {name}: it does not say what to do in {lacking}")
    return found


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

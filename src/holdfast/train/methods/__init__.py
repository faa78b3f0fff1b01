"""Training methods, one file and one final class each. ``METHODS`` is the table of their names.

A method comes from a paper unless its class sets ``ours``. The training loop does not know which method it runs.
"""

import inspect

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.train.methods.advbct import AdvBCT
from holdfast.train.methods.bct import BCT
from holdfast.train.methods.cosine_hoc import CosineHOC
from holdfast.train.methods.cvs import CVS
from holdfast.train.methods.distillation import Distillation
from holdfast.train.methods.er import ER
from holdfast.train.methods.fan import FAN
from holdfast.train.methods.interface import Batch, FeaturePhase, Method, Progress, Survey, TaskView
from holdfast.train.methods.lce import LCE
from holdfast.train.methods.simplex_fd import SimplexFD
from holdfast.train.methods.simplex_hoc import SimplexHOC
from holdfast.train.methods.simplex_hoc_views import SimplexHOCViews
from holdfast.train.named_code import import_named, is_named_code

# A new method: its import above and its line here. The name is that of its file, its card and its recipes.
METHODS: dict[str, type[Method]] = {
    "er": ER,
    "fan": FAN,
    "distillation": Distillation,
    "bct": BCT,
    "lce": LCE,
    "advbct": AdvBCT,
    "cvs": CVS,
    "simplex_fd": SimplexFD,
    "simplex_hoc": SimplexHOC,
    "simplex_hoc_views": SimplexHOCViews,
    "cosine_hoc": CosineHOC,
}


def method_class(name: str) -> type[Method]:
    """The class of a method.

    name: a key of ``METHODS``, or ``package.module:Class`` for a user's own subclass of ``Method``, which is imported.
    """
    if not is_named_code(name):
        if name not in METHODS:
            raise HoldfastError(f"{unknown_name('method', name, METHODS)}; or your own: package.module:Class")
        return METHODS[name]
    found = import_named("method", name)
    if not (inspect.isclass(found) and issubclass(found, Method)):
        raise HoldfastError(f"method {name}: it must be a class derived from holdfast.Method")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise HoldfastError(f"method {name}: it must define {missing}")
    return found


__all__ = [
    "METHODS",
    "Batch",
    "FeaturePhase",
    "Method",
    "Progress",
    "Survey",
    "TaskView",
    "method_class",
    *(method.__name__ for method in METHODS.values()),
]

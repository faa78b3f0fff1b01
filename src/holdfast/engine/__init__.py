"""The only place with an optimiser step: fit one task, walk a scenario, checkpoint, resume."""

from holdfast.engine.fit import fit
from holdfast.engine.options import FitOptions, resolve_device
from holdfast.engine.walk import walk

__all__ = ["FitOptions", "fit", "resolve_device", "walk"]

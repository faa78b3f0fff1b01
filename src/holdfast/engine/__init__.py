"""The only place with an optimiser step: fit one task, walk a scenario, checkpoint, resume."""

from holdfast.engine.fit import fit
from holdfast.engine.kept import KeptFeatures, remember
from holdfast.engine.options import FitOptions
from holdfast.engine.stored_reference import StoredReference
from holdfast.engine.walk import walk

__all__ = ["FitOptions", "KeptFeatures", "StoredReference", "fit", "remember", "walk"]

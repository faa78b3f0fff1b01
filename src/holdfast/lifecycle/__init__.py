"""A model of which only the stored vectors are left becomes version 0: judged, described, kept for later training."""

from holdfast.lifecycle.adopt import adopt
from holdfast.lifecycle.adopted_model import Adopted, read_adopted
from holdfast.lifecycle.adoption_result import Adoption, Later, Way
from holdfast.lifecycle.stored_vectors import StoredVectors, read_stored

__all__ = ["Adopted", "Adoption", "Later", "StoredVectors", "Way", "adopt", "read_adopted", "read_stored"]

"""A model of which only the stored vectors are left becomes version 0: judged, described, kept for later training."""

from holdfast.adoption.adopt import adopt
from holdfast.adoption.folder import Adopted, read_adopted
from holdfast.adoption.result import Adoption, Later, Way
from holdfast.adoption.stored import StoredVectors, read_stored

__all__ = ["Adopted", "Adoption", "Later", "StoredVectors", "Way", "adopt", "read_adopted", "read_stored"]

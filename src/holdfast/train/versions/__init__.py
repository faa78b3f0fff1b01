"""Versions of one's own model: train the first, update it, or adopt a model of which only stored vectors exist."""

from holdfast.train.versions.adopt import adopt
from holdfast.train.versions.adopted_model import Adopted, read_adopted
from holdfast.train.versions.adoption_result import Adoption, Later, Question, Way
from holdfast.train.versions.settings import VersionSettings
from holdfast.train.versions.stored_vectors import StoredVectors, read_stored
from holdfast.train.versions.version_report import report_versions
from holdfast.train.versions.versions import start, update

__all__ = [
    "Adopted",
    "Adoption",
    "Later",
    "Question",
    "StoredVectors",
    "VersionSettings",
    "Way",
    "adopt",
    "read_adopted",
    "read_stored",
    "report_versions",
    "start",
    "update",
]

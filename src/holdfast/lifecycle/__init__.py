"""Versions of one's own model: train the first, update it, or adopt a model of which only stored vectors exist."""

from holdfast.lifecycle.adopt import adopt
from holdfast.lifecycle.adopted_model import Adopted, read_adopted
from holdfast.lifecycle.adoption_result import Adoption, Later, Question, Way
from holdfast.lifecycle.settings import VersionSettings
from holdfast.lifecycle.stored_vectors import StoredVectors, read_stored
from holdfast.lifecycle.version_report import report_versions
from holdfast.lifecycle.versions import start, update

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

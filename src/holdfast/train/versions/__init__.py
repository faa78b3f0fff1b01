"""Versions of one's own model: train the first, then update it."""

from holdfast.train.versions.settings import VersionSettings
from holdfast.train.versions.version_report import report_versions
from holdfast.train.versions.versions import start, update

__all__ = ["VersionSettings", "report_versions", "start", "update"]

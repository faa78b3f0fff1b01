"""Versions of one's own model: train the first, then update it."""

from holdfast.train.versions.settings import VersionSettings
from holdfast.train.versions.versions import start, update

__all__ = ["VersionSettings", "start", "update"]

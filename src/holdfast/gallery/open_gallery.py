"""A gallery that is open in this process: what all of them share, and what the service needs."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.gallery.gallery_base import BaseGallery
from holdfast.gallery.gallery_versions import Version
from holdfast.gallery.version_models import Models


class OpenGallery(BaseGallery):
    """folder: the gallery's folder. models: the models of all versions."""

    def __init__(self, folder: Path, models: Models) -> None:
        self.folder, self.models = folder, models

    @property
    def device(self) -> str:
        """Where its models embed."""
        return self.models.device

    def versions(self) -> list[Version]:
        return self.models.versions()

    def newest(self) -> Version:
        """The version that embeds new items and queries."""
        return self.models.newest()

    @abstractmethod
    def get(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Version, label, metadata and path of the ids that exist."""

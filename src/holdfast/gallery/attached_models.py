"""The models of an attached gallery at work: images in, full features out."""

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from holdfast.backbones import Encoder
from holdfast.errors import unknown_name
from holdfast.gallery.forward_pass import enough_memory, full_features
from holdfast.gallery.versions import MODEL, Version


class AttachedModels:
    """Version 0 and the models registered after it, by number; the encoder in use is held, any thread may ask.

    device: where encoders are loaded and embed.
    """

    def __init__(self, folder: Path, versions: Sequence[Version], device: torch.device) -> None:
        self._folder, self.device = folder, device
        self._versions = list(versions)
        self._encoding = threading.RLock()
        self._held: tuple[int, Encoder] | None = None

    def folder(self, number: int) -> Path:
        return self._folder / "versions" / f"{number:04d}"

    def versions(self) -> list[Version]:
        return list(self._versions)

    def newest(self) -> Version:
        return self._versions[-1]

    def version(self, number: int | None) -> Version:
        """The version of this number; None is the newest."""
        if number is None:
            return self.newest()
        known = self.versions()
        if not 0 <= number < len(known):
            raise unknown_name("version", str(number), range(len(known)))
        return known[number]

    def welcome(self, version: Version) -> None:
        self._versions = [*self._versions, version]

    def encoder(self, version: Version) -> Encoder:
        with self._encoding:
            if self._held is None or self._held[0] != version.number:
                with enough_memory(self.device):
                    encoder = Encoder.from_pretrained(self.folder(version.number) / MODEL, device=self.device)
                self._held = version.number, encoder
            return self._held[1]

    def image_vectors(self, images: Tensor, version: Version, encoder: Encoder) -> np.ndarray:
        """Preprocessed images (N x C x H x W) as full unit features, N x dim."""
        with self._encoding:
            found: np.ndarray = full_features(encoder, images, self.device).numpy()
        return found

"""Features and space maps of a run's models on disk. Each model computes its features only once."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.core.storage import read_array, read_json, write_array, write_json
from holdfast.train.space_map import SpaceMap


class ModelFeatures(NamedTuple):
    """Unit features of one model: queries (Q x d) and gallery (G x d), float32.

    basis: of compact features (encoders/compact.py), full size x d; None for full features.
    """

    query: np.ndarray
    gallery: np.ndarray
    basis: np.ndarray | None = None

    @property
    def full_dim(self) -> int:
        """Size of the full features."""
        return int(self.query.shape[1] if self.basis is None else self.basis.shape[0])


MOST_CLASSES = 2**24
"""Larger class numbers are damage: arrays with an element for each class would take all memory."""


class FeatureStore:
    """A folder of npy files: the labels, and 01/query.npy, 01/gallery.npy and so on, one folder per model.

    All features belong to one evaluation set, identified by its fingerprint.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open_for(self, query_labels: np.ndarray, gallery_labels: np.ndarray, fingerprint: str) -> None:
        """Write the labels; if they exist, refuse another evaluation set."""
        index = self.folder / "index.json"
        if index.exists():
            known = read_json(index)
            if not isinstance(known, dict) or known.get("fingerprint") != fingerprint:
                raise HoldfastError(
                    f"{self.folder}: holds features of other images; use another output folder or delete this one"
                )
            return
        write_array(self.folder / "query_labels.npy", query_labels)
        write_array(self.folder / "gallery_labels.npy", gallery_labels)
        write_json(index, {"fingerprint": fingerprint, "queries": len(query_labels), "gallery": len(gallery_labels)})

    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        """The classes of the queries and of the gallery."""
        return self._labels("query"), self._labels("gallery")

    def _labels(self, name: str) -> np.ndarray:
        path = self.folder / f"{name}_labels.npy"
        found = read_array(path)
        numbers = found.ndim == 1 and np.issubdtype(found.dtype, np.integer)
        if not numbers or (len(found) and not (found.min() >= 0 and found.max() < MOST_CLASSES)):
            raise HoldfastError(f"{path}: not one class number for each image; run the evaluation again")
        return found

    def has(self, number: int) -> bool:
        # The gallery is written last, so both are complete if it exists.
        return (self._model(number) / "gallery.npy").exists()

    def write(self, number: int, features: ModelFeatures) -> None:
        if features.basis is not None:
            write_array(self._model(number) / "basis.npy", features.basis)
        write_array(self._model(number) / "query.npy", features.query)
        write_array(self._model(number) / "gallery.npy", features.gallery)

    def read(self, number: int) -> ModelFeatures:
        """Memory-mapped: a matrix over many models touches two at a time."""
        folder = self._model(number)
        query, gallery = (read_array(folder / f"{name}.npy", mapped=True) for name in ("query", "gallery"))
        if not (folder / "basis.npy").exists():
            return ModelFeatures(query, gallery, None)
        basis = read_array(folder / "basis.npy", mapped=True)
        if basis.dtype != np.float32 or basis.ndim != 2 or basis.shape[1:] != query.shape[1:]:
            found = f"{basis.dtype} of shape {basis.shape}"
            raise HoldfastError(f"{folder / 'basis.npy'}: not the basis of these features, but {found}")
        return ModelFeatures(query, gallery, basis)

    def read_all(self) -> list[ModelFeatures]:
        """The features of models 1, 2, ... up to the first that is missing."""
        features: list[ModelFeatures] = []
        while self.has(len(features) + 1):
            features.append(self.read(len(features) + 1))
        if not features:
            raise HoldfastError(f"{self.folder}: contains no features")
        return features

    def _model(self, number: int) -> Path:
        return self.folder / f"{number:02d}"


class StoredMaps(Sequence[SpaceMap | None]):
    """Space maps in files; None for a model without a file. A map is read from disk at each access and not kept.

    Maps of wide features are large (0.5 GB each for FAN on ResNet-50), and only one is needed at a time.
    """

    def __init__(self, paths: Sequence[Path | None]) -> None:
        self._paths = tuple(paths)

    def __len__(self) -> int:
        return len(self._paths)

    @overload
    def __getitem__(self, index: int) -> SpaceMap | None: ...

    @overload
    def __getitem__(self, index: slice) -> "StoredMaps": ...

    def __getitem__(self, index: int | slice) -> "SpaceMap | StoredMaps | None":
        if isinstance(index, slice):
            return StoredMaps(self._paths[index])
        path = self._paths[index]
        return None if path is None else SpaceMap.load(path)


def read_space_maps(folder: RunFolder, count: int) -> StoredMaps:
    """For models 1 .. count the map from the previous model; None without a file, as for the first."""
    paths = [folder.space_map(number) for number in range(1, count + 1)]
    return StoredMaps([path if path.exists() else None for path in paths])

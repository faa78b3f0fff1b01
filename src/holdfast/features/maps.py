"""The maps between a run's models, where its method learned any."""

from collections.abc import Sequence
from pathlib import Path
from typing import overload

from holdfast.run_folder import RunFolder
from holdfast.space_map import SpaceMap


class StoredMaps(Sequence[SpaceMap | None]):
    """Maps in files, None where there is no file. Each is read anew whenever it is asked for and kept by nobody here.

    Those of wide features are large (0.5 GB each for FAN on ResNet-50), and galleries need one at a time.
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
    """For models 1 .. count the map from the one before; None where there is no file, as for the first."""
    paths = [folder.space_map(number) for number in range(1, count + 1)]
    return StoredMaps([path if path.exists() else None for path in paths])

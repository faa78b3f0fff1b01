"""The maps between a run's models, where its method learned any."""

from holdfast.run_folder import RunFolder
from holdfast.space_map import SpaceMap


def read_space_maps(folder: RunFolder, count: int) -> list[SpaceMap | None]:
    """For models 1 .. count the map from the one before; None where there is no file, as for the first."""
    paths = [folder.space_map(number) for number in range(1, count + 1)]
    return [SpaceMap.load(path) if path.exists() else None for path in paths]

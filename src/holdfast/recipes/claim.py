"""Whose folder is it: a run goes only where nothing is, or where the same recipe was run before."""

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.recipes.load import read_recipe
from holdfast.run_folder import FolderRefusedError, RunFolder
from holdfast.storage import TEMPORARY


def claim(
    tables: Mapping[str, Any],
    folder: RunFolder,
    *,
    resume: bool,
    check: Callable[[dict[str, Any]], Mapping[str, Any]],
) -> None:
    """Refuse a folder with something else in it; one with this recipe's run needs ``resume``. ``check``: raw tables
    of a recipe to checked ones."""
    if not folder.recipe.exists():
        if folder.path.exists() and not folder.path.is_dir():
            raise FolderRefusedError(f"{folder.path}: not a folder; choose another --out")
        # A kill while the very first file was written leaves its temporary and the lock alone in the folder, a failure
        # before it (data that is not there) only what it says.
        if folder.path.exists() and not all(
            entry in (folder.lock, folder.error) or entry.name.startswith(TEMPORARY) for entry in folder.path.iterdir()
        ):
            raise FolderRefusedError(f"{folder.path}: not empty and not a run folder; choose another --out")
        return
    try:
        held = check(read_recipe(str(folder.recipe)))
    except HoldfastError as error:  # a recipe of another kind or that nobody can read: not this one's in any case
        place = f"{folder.recipe}: "
        raise FolderRefusedError(place + str(error).removeprefix(place)) from error
    if held != tables:
        raise FolderRefusedError(f"{folder.path}: holds a run of another recipe; choose another --out")
    if not resume:
        raise FolderRefusedError(f"{folder.path}: holds a run of this recipe; add --resume to go on with it")

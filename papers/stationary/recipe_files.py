"""The recipes of the study: those in ``recipes`` beside this file, else the built-in ones.

Importing this module makes known what the recipes name: the executor "fused" and the readers of the data sets.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import papers.bridged_runs
import papers.kernels
import papers.networks
import papers.readers  # noqa: F401
from holdfast.train.experiments.load import find_recipe, read_recipe

FOLDER = Path(__file__).parent / "recipes"


def study_recipe(source: str) -> str:
    """The file of a recipe of the study; ``source`` itself if it names a file or a built-in recipe."""
    name = source.removeprefix("recipes/").removesuffix(".toml")
    own = FOLDER / f"{name}.toml"
    return str(own) if own.is_file() and not Path(source).is_file() else source


def read_study_recipe(source: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The tables of a recipe, not yet checked; arguments as for ``read_recipe``."""
    return read_recipe(study_recipe(source), overrides)


def study_command(source: str, overrides: Sequence[str] = ()) -> str:
    """The command that runs a recipe of the study, quoted for a shell; arguments as for ``read_recipe``."""
    settings = [word for text in overrides for word in ("--set", text)]
    return shlex.join(["python", "-m", "papers.stationary", "run", source, *settings])


def recipe_path(source: str) -> Path:
    """The file of a recipe."""
    return find_recipe(study_recipe(source))

"""Which reader a recipe asks for: image files or vectors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.backbones import Preprocess, VectorInput
from holdfast.data.vectors import VECTOR_SUFFIXES
from holdfast.recipes.schema import Recipe
from holdfast.updating.image_files import ImageFiles
from holdfast.updating.pictures import Reader
from holdfast.updating.vector_rows import VectorRows


def holds_vectors(source: Path) -> bool:
    """Whether ``source`` is a file of vectors; folders and CSV files name images."""
    return source.suffix in VECTOR_SUFFIXES and not source.is_dir()


def reader_to_train(recipe: Recipe, preprocess: Preprocess | VectorInput | None) -> Reader:
    """Items as they are trained on. preprocess: of the model before, if there is one."""
    data: Mapping[str, Any] = recipe["data"]
    if "features" not in data:
        return ImageFiles(data["size"], data["colour"])
    return VectorRows(data["features"], data["labels"], preprocess.channels if preprocess else None)


def reader_to_judge(recipe: Recipe, preprocess: Preprocess | VectorInput) -> Reader:
    """Items as ``encode`` sees them."""
    if isinstance(preprocess, VectorInput):
        return reader_to_train(recipe, preprocess)
    return ImageFiles(preprocess.height_width[0], preprocess.colour, preprocess.resize)

"""What vectors that somebody has already are to a version: features it made, or what it has yet to embed."""

from dataclasses import dataclass
from pathlib import Path

from holdfast.backbones.vector_input import VectorInput, input_from_json
from holdfast.errors import HoldfastError
from holdfast.gallery.versions import MODEL, Version
from holdfast.storage import read_json


@dataclass(frozen=True)
class VectorsTaken:
    """features: the sizes of a feature, full and compact. input: the size of what the model embeds, None for images.

    adopted: the model was adopted, so that the vectors somebody stored are its input.
    """

    version: int
    features: tuple[int, ...]
    input: int | None
    adopted: bool

    def embedded(self, width: int, embed: bool | None, name: str) -> bool:
        """Whether vectors of ``width`` numbers are to be embedded; refused where they fit nothing, or both.

        embed: what the user says; None: what the size says. An adopted model's vectors of its input's size are input.
        Any other model that takes vectors as large as its features cannot be guessed about: taken for the wrong one,
        every answer would be wrong and none would look it.
        """
        as_input, as_feature = width == self.input and embed is not False, width in self.features and embed is not True
        if as_input and as_feature and not self.adopted:
            raise HoldfastError(
                f"{name}: version {self.version} takes vectors of {width} numbers and gives such too; say --embed "
                "(they are its input) or --no-embed (its features)"
            )
        if not as_input and not as_feature:
            raise HoldfastError(f"{name}: vectors of {width} numbers, but {self._wanted(embed)}")
        return as_input

    def _wanted(self, embed: bool | None) -> str:
        if embed and self.input is None:
            return f"version {self.version} embeds images, not vectors; leave out --embed"
        found = [] if embed else [f"features of {' or '.join(map(str, self.features))}"]
        found += [] if self.input is None or embed is False else [f"input of {self.input}"]
        return f"version {self.version} has {' and '.join(found)}; is --version right?"


def vectors_taken(folder: Path, version: Version) -> VectorsTaken:
    """Read from the description of the kept model: the model itself need not be loaded for it."""
    config = read_json(folder / MODEL / "config.json")
    taken = input_from_json(config["preprocess"])
    return VectorsTaken(
        version.number,
        tuple(sorted({version.dim, version.stored_dim})),
        taken.width if isinstance(taken, VectorInput) else None,
        "adopted" in config.get("info", {}),
    )

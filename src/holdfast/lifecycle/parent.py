"""The model that the next one goes on from: its network, classes, slots, buffer and what it was judged by.

Images that travel with a model: the buffer that is replayed, and those it is judged by.
"""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.checksums import SEAL, refuse_broken_seal
from holdfast.encoders import Encoder, Preprocess, VectorInput
from holdfast.encoders.backbones import is_own_code
from holdfast.errors import HoldfastError
from holdfast.lifecycle.inputs import Picture, Reader
from holdfast.scenarios import SlotRegistry
from holdfast.storage import read_array, read_json, write_array, write_json


@dataclass(frozen=True, eq=False)
class KeptImages:
    """Pictures by path and hash, and their pixels where these are embedded; new ones only ever join at the end."""

    pictures: tuple[Picture, ...] = ()
    embedded: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.pictures)

    def pixels(self, reader: Reader, what: str) -> np.ndarray:
        """N x H x W x C; refused where a file is gone or not the one that was kept. ``what`` names them."""
        if self.embedded is not None:
            if len(self) and self.embedded.shape[1:] != reader.shape:
                raise HoldfastError(f"{what}: embedded as {self.embedded.shape[1:]}, but {reader.shape} is asked for")
            return self.embedded
        gone = [one.path for one in self.pictures if not one.path.is_file()]
        left = frozenset(self.pictures if gone else self.left(reader).pictures)
        changed = [one.path for one in self.pictures if one not in left]
        for bad, how in ((gone, "gone"), (changed, "changed (sha256 differs)")):
            if bad:
                raise HoldfastError(
                    f"{what}: {len(bad)} of {len(self)} images are {how}, the first is {bad[0]}; put them back, or "
                    "draw others with --buffer-from FOLDER"
                )
        return reader.read(self.pictures)

    def left(self, reader: Reader) -> "KeptImages":
        """Those whose files are still there and unchanged; all of them where they are embedded."""
        return self if self.embedded is not None else KeptImages(tuple(reader.unchanged(self.pictures)))

    def joined(self, pictures: Sequence[Picture], pixels: np.ndarray) -> "KeptImages":
        """With more pictures at the end; ``pixels`` are theirs, kept only where the others' are."""
        embedded = None if self.embedded is None else np.concatenate([self.embedded, pixels])
        return KeptImages((*self.pictures, *pictures), embedded)

    def with_pixels(self, pixels: np.ndarray) -> "KeptImages":
        """Embedded: the files are no longer needed."""
        return replace(self, embedded=pixels)

    def counts(self) -> Counter[str]:
        return Counter(picture.name for picture in self.pictures)

    def save(self, folder: Path, stem: str) -> None:
        items = [{"class": one.name, "path": str(one.path), "sha256": one.sha256} for one in self.pictures]
        write_json(folder / f"{stem}.json", {"embedded": self.embedded is not None, "images": items})
        if self.embedded is not None:
            write_array(folder / f"{stem}.npy", self.embedded)

    @classmethod
    def load(cls, folder: Path, stem: str) -> "KeptImages | None":
        """None where the folder has none."""
        path = folder / f"{stem}.json"
        if not path.exists():
            return None
        record = read_json(path)
        try:
            items = tuple(Picture(item["class"], Path(item["path"]), item["sha256"]) for item in record["images"])
            embedded = read_array(folder / f"{stem}.npy") if record["embedded"] else None
        except (KeyError, TypeError):
            raise HoldfastError(f"{path}: not a record of kept images") from None
        if embedded is not None and len(embedded) != len(items):
            raise HoldfastError(f"{path}: {len(items)} images recorded, {len(embedded)} embedded")
        return cls(items, embedded)


BUFFER, HELD_OUT, METHOD, RECIPE = "buffer", "held_out", "method.safetensors", "recipe.toml"


@dataclass(frozen=True, eq=False)
class Parent:
    """A model folder that Holdfast wrote; read once, and never written to.

    number: of its task; 0 for a model that was pre-trained. classes: those it knows, by arrival.
    buffer: None where the folder has none, as those of ``holdfast run`` and ``pretrain``.
    """

    folder: Path
    encoder: Encoder
    weights_sha256: str
    number: int
    classes: tuple[str, ...]
    buffer: KeptImages | None
    held_out: KeptImages

    @property
    def info(self) -> dict[str, Any]:
        return self.encoder.info

    @property
    def preprocess(self) -> Preprocess | VectorInput:
        assert self.encoder.preprocess is not None
        return self.encoder.preprocess

    @property
    def method_state(self) -> Path:
        return self.folder / METHOD

    def record(self) -> dict[str, str]:
        """Which model it is, without where it lies."""
        return {"name": self.folder.resolve().name, "weights_sha256": self.weights_sha256}


def read_parent(folder: Path) -> Parent:
    """Refused: a folder changed since it was written, a model that was adopted, images that are not square."""
    description = describe_model(folder)
    refuse_broken_seal(folder)
    encoder = Encoder.from_pretrained(folder).float()
    if encoder.preprocess is None:
        raise HoldfastError(f"{folder}: has no preprocess, so nothing says what its images or vectors are")
    refuse_adopted(folder, encoder.info)
    height, width = encoder.preprocess.height_width
    if height != width:
        raise HoldfastError(f"{folder}: takes images of {height} x {width}; only squares are read from files")
    info = encoder.info
    owners = SlotRegistry.from_json(info["slots"]).owners if "task" in info and "slots" in info else {}
    return Parent(
        folder,
        encoder,
        str(description["weights_sha256"]),
        int(info.get("task", 0)),
        tuple(info.get("classes", owners)),
        KeptImages.load(folder, BUFFER),
        KeptImages.load(folder, HELD_OUT) or KeptImages(),
    )


def describe_model(folder: Path) -> dict[str, Any]:
    """A model's ``config.json``, of which only the outside is looked at yet."""
    if not (folder / "config.json").is_file():
        raise HoldfastError(f"{folder}: no model here; give a folder with config.json and model.safetensors")
    description = read_json(folder / "config.json")
    if not isinstance(description, dict) or not {"backbone", "preprocess", "weights_sha256"} <= description.keys():
        raise HoldfastError(f"{folder / 'config.json'}: does not describe a Holdfast encoder")
    return description


def refuse_adopted(folder: Path, info: object) -> None:
    """Of such a model only vectors are left, so no network can be trained on from it."""
    if isinstance(info, Mapping) and "adopted" in info:
        raise HoldfastError(
            f"{folder}: an adopted model, of which only vectors are left; train the next one by holdfast run with a "
            "table [adopted]"
        )


def own_code_of(description: Mapping[str, Any]) -> str | None:
    """The name of the user's code that the network is built by; None for Holdfast's own networks."""
    spec = description["backbone"]
    name = spec.get("name") if isinstance(spec, Mapping) else None
    return name if isinstance(name, str) and is_own_code(name) else None


def recipe_beside(folder: Path) -> dict[str, Any] | None:
    """The recipe that the model was made by, without its backbone: a model folder never names code to be run.

    That of the folder itself, or of the run it belongs to (RUN/models/NN); None where there is neither.
    """
    models = folder.resolve().parent
    if (folder / SEAL).exists():
        path = folder / RECIPE
    elif models.name == "models":
        path = models.parent / RECIPE
    else:
        return None
    if not path.is_file():
        return None
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HoldfastError(f"{path}: not valid TOML: {error}") from None
    tables.pop("backbone", None)
    return tables

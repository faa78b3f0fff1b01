"""The model that an update starts from: its network, classes, slots, replay buffer and held-out samples."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.checksums import CHECKSUM_FILE, verify_checksums
from holdfast.core.errors import HoldfastError
from holdfast.core.saved_samples import BUFFER, HELD_OUT, read_sample_list
from holdfast.core.storage import read_array, read_json, write_array, write_json
from holdfast.core.untrusted_files import read_toml
from holdfast.core.wording import are
from holdfast.train.encoders import Encoder, Input
from holdfast.train.encoders.backbones import is_own_code
from holdfast.train.scenarios import SlotRegistry
from holdfast.train.versions.samples import Reader, SampleRef

METHOD, RECIPE, TRAINED = "method.safetensors", "recipe.toml", "trained.npy"


@dataclass(frozen=True, eq=False)
class Parent:
    """A model folder that Holdfast wrote; it is read once and never changed.

    number: number of its task; 0 for a pre-trained model.
    classes: the classes it knows, in order of arrival.
    buffer: samples to replay; None if the folder has none, as after ``holdfast run`` and ``pretrain``.
    held_out: samples that no version was trained on.
    trained: ``short_hashes`` of all samples that it and the versions before it were trained on; empty if the folder
        does not list them, as those of earlier versions of Holdfast and of ``holdfast run`` and ``pretrain``.
    """

    folder: Path
    encoder: Encoder
    weights_sha256: str
    number: int
    classes: tuple[str, ...]
    buffer: "SampleSet | None"
    held_out: "SampleSet"
    trained: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))

    @property
    def info(self) -> dict[str, Any]:
        return self.encoder.info

    @property
    def preprocess(self) -> Input:
        assert self.encoder.preprocess is not None
        return self.encoder.preprocess

    @property
    def method_state(self) -> Path:
        return self.folder / METHOD

    def record(self) -> dict[str, str]:
        """The model's name and the hash of its weights, without its location."""
        return {"name": self.folder.resolve().name, "weights_sha256": self.weights_sha256}


def read_parent(folder: Path) -> Parent:
    """Read a model. Refused: a folder changed since it was written, images that training cannot read as it does."""
    description = describe_model(folder)
    verify_checksums(folder)
    encoder = Encoder.from_pretrained(folder).float()
    if encoder.preprocess is None:
        raise HoldfastError(f"{folder}: has no preprocess, so it is not known which images or vectors it takes")
    height, width = encoder.preprocess.height_width
    if height != width:
        raise HoldfastError(f"{folder}: takes images of {height} x {width}; only square images are read from files")
    scaled = getattr(encoder.preprocess, "interpolation", "bilinear")
    if scaled != "bilinear":
        raise HoldfastError(f"{folder}: scales images by {scaled}; training from files is bilinear only")
    info = encoder.info
    owners = SlotRegistry.from_json(info["slots"]).owners if "task" in info and "slots" in info else {}
    return Parent(
        folder,
        encoder,
        str(description["weights_sha256"]),
        int(info.get("task", 0)),
        tuple(info.get("classes", owners)),
        SampleSet.load(folder, BUFFER),
        SampleSet.load(folder, HELD_OUT) or SampleSet(),
        _trained_hashes(folder),
    )


def _trained_hashes(folder: Path) -> np.ndarray:
    if not (folder / TRAINED).is_file():
        return np.zeros(0, np.uint64)
    found = read_array(folder / TRAINED)
    if found.dtype != np.uint64 or found.ndim != 1:
        raise HoldfastError(f"{folder / TRAINED}: not a list of hashes; restore the folder from a copy")
    return found


def describe_model(folder: Path) -> dict[str, Any]:
    """A model's ``config.json``, checked for its main keys only."""
    if not (folder / "config.json").is_file():
        raise HoldfastError(f"{folder}: no model here; give a folder with config.json and model.safetensors")
    description = read_json(folder / "config.json")
    if not isinstance(description, dict) or not {"backbone", "preprocess", "weights_sha256"} <= description.keys():
        raise HoldfastError(f"{folder / 'config.json'}: does not describe a Holdfast encoder")
    return description


def own_code_of(description: Mapping[str, Any]) -> str | None:
    """The name of the user's code that builds the network; None for Holdfast's own networks."""
    spec = description["backbone"]
    name = spec.get("name") if isinstance(spec, Mapping) else None
    return name if isinstance(name, str) and is_own_code(name) else None


def recorded_recipe(folder: Path) -> dict[str, Any] | None:
    """The recipe the model was trained by, without its backbone: a model folder must never name code to run.

    It is read from the folder, or from the run that the model belongs to (RUN/models/NN). None if neither has one.
    """
    models = folder.resolve().parent
    if (folder / CHECKSUM_FILE).exists():
        path = folder / RECIPE
    elif models.name == "models":
        path = models.parent / RECIPE
    else:
        return None
    if not path.is_file():
        return None
    tables = read_toml(path)
    tables.pop("backbone", None)
    return tables


@dataclass(frozen=True, eq=False)
class SampleSet:
    """Samples saved with a model, by path and hash; new ones are only ever appended.

    embedded: their pixels or vectors (N x H x W x C), so that the files are not needed; None if not saved.
    """

    samples: tuple[SampleRef, ...] = ()
    embedded: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.samples)

    def hashes(self) -> frozenset[str]:
        return frozenset(one.sha256 for one in self.samples)

    def pixels(self, reader: Reader, which: str) -> np.ndarray:
        """N x H x W x C. Refused if a file is gone or changed. which: "buffered" or "held-out", for the message."""
        if self.embedded is not None:
            if len(self) and self.embedded.shape[1:] != reader.shape:
                shape = self.embedded.shape[1:]
                raise HoldfastError(f"{which} {reader.noun}s: saved as {shape}, but {reader.shape} is needed")
            return self.embedded
        gone = [one.path for one in self.samples if not one.path.is_file()]
        unchanged = frozenset(self.samples if gone else self.unchanged(reader).samples)
        changed = [one.path for one in self.samples if one not in unchanged]
        for bad, how in ((gone, "gone"), (changed, "changed (sha256 differs)")):
            if bad:
                others = (
                    ", or draw others with --buffer-from FOLDER (buffer_from in Python)" if which == "buffered" else ""
                )
                raise HoldfastError(
                    f"{which} {reader.noun}s: {len(bad)} of {len(self)} {are(len(bad))} {how}, the first is {bad[0]}; "
                    f"put them back{others}"
                )
        return reader.read(self.samples)

    def unchanged(self, reader: Reader) -> "SampleSet":
        """The samples with files that still exist and are unchanged; all of them if they are embedded."""
        return self if self.embedded is not None else SampleSet(tuple(reader.unchanged(self.samples)))

    def extended(self, samples: Sequence[SampleRef], pixels: np.ndarray) -> "SampleSet":
        """With more samples at the end. ``pixels`` are theirs, kept only if this set is embedded."""
        embedded = None if self.embedded is None else np.concatenate([self.embedded, pixels])
        return SampleSet((*self.samples, *samples), embedded)

    def with_pixels(self, pixels: np.ndarray) -> "SampleSet":
        return replace(self, embedded=pixels)

    def class_counts(self) -> Counter[str]:
        return Counter(one.class_name for one in self.samples)

    def save(self, folder: Path, stem: str) -> None:
        items = [{"class": one.class_name, "path": str(one.path), "sha256": one.sha256} for one in self.samples]
        write_json(folder / f"{stem}.json", {"embedded": self.embedded is not None, "images": items})
        if self.embedded is not None:
            write_array(folder / f"{stem}.npy", self.embedded)

    @classmethod
    def load(cls, folder: Path, stem: str) -> "SampleSet | None":
        """None if the folder has none."""
        found = read_sample_list(folder, stem)
        if found is None:
            return None
        samples = tuple(SampleRef(name, Path(path), sha256) for name, path, sha256 in found.samples)
        embedded = read_array(folder / f"{stem}.npy") if found.embedded else None
        if embedded is not None and len(embedded) != len(samples):
            raise HoldfastError(f"{folder / stem}.json: lists {len(samples)} samples, but {len(embedded)} are embedded")
        return cls(samples, embedded)

"""A version of a gallery is one model: a folder with its copy, and the basis its vectors are stored in.

What vectors that somebody has already are to a version: features it made, or what it has yet to embed.
"""

import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.encoders import Encoder
from holdfast.encoders.compact import compact_basis
from holdfast.encoders.preprocess import VectorInput, input_from_json
from holdfast.errors import HoldfastError
from holdfast.scenarios import SlotRegistry
from holdfast.storage import read_array, read_json, replacing_folder, write_array

MODEL, BASIS = "model", "basis.npy"
_FILES = ("config.json", "model.safetensors")


@dataclass(frozen=True)
class Version:
    """What the catalogue keeps of a model.

    source: the folder it was registered from. dim: numbers of a full feature, K - 1 for a simplex. stored_dim: numbers
    of a stored vector. slots: K, None for a model without a slot registry. checks: one verdict for each older version.
    backbone: the network's name; None in galleries that were made before it was kept.
    """

    number: int
    source: str
    weights_sha256: str
    dim: int
    stored_dim: int
    slots: int | None
    registered: str
    checks: list[dict[str, Any]] = field(default_factory=list)
    backbone: str | None = None

    @property
    def collection(self) -> str:
        return f"v{self.number:04d}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Candidate:
    """A model that wants to be a version: read, but not yet kept."""

    folder: Path
    encoder: Encoder
    basis: Tensor | None
    weights_sha256: str
    registry: SlotRegistry | None

    def version(self, number: int, checks: list[dict[str, Any]]) -> Version:
        return Version(
            number=number,
            source=str(self.folder.absolute()),
            weights_sha256=self.weights_sha256,
            dim=self.encoder.dim,
            stored_dim=self.encoder.dim if self.basis is None else self.basis.shape[1],
            slots=None if self.registry is None else self.registry.num_slots,
            registered=datetime.now(UTC).isoformat(timespec="seconds"),
            checks=checks,
            backbone=_backbone_name(self.encoder),
        )


def read_candidate(folder: Path) -> Candidate:
    """A model folder as a version to be; refused unless it can be given images."""
    encoder = Encoder.from_pretrained(folder)
    if encoder.preprocess is None:
        raise HoldfastError(f"{folder}: this model has no preprocess, so it cannot be given images; save it with one")
    slots = encoder.info.get("slots")
    registry = None if slots is None else SlotRegistry.from_json(slots)
    if registry is not None and registry.num_slots != encoder.dim + 1:
        raise HoldfastError(
            f"{folder}: features of {encoder.dim} numbers do not lie in a simplex of {registry.num_slots} slots"
        )
    sha256 = read_json(folder / _FILES[0])["weights_sha256"]
    return Candidate(folder, encoder, compact_basis(encoder), sha256, registry)


def _backbone_name(encoder: Encoder) -> str:
    spec = getattr(encoder.backbone, "backbone_spec", None)
    return type(encoder.backbone).__name__ if spec is None else str(spec["name"])


def slots_together(known: SlotRegistry | None, new: Candidate, dim: int) -> SlotRegistry | None:
    """Everybody's slots once ``new`` joins models with features of ``dim`` numbers and the slots ``known``.

    Refused: slots on one side only, other sizes, and what ``SlotRegistry.meet`` refuses.
    """
    mine = new.registry
    if known is None or mine is None:
        if known is not mine:
            which = (
                "has no class slots, the gallery's models have" if mine is None else "has class slots, they have not"
            )
            raise HoldfastError(f"{new.folder}: the model {which}; their features cannot be compared")
        if new.encoder.dim != dim:
            raise HoldfastError(f"{new.folder}: features of {new.encoder.dim} numbers, the gallery's have {dim}")
        return None
    try:
        return known.meet(mine)
    except HoldfastError as error:
        raise HoldfastError(f"{new.folder}: does not fit the gallery's models: {error}") from error


def keep_model(candidate: Candidate, folder: Path) -> None:
    """Copy the model and its basis into the gallery, so that it outlives the folder it came from."""
    with replacing_folder(folder) as temporary:
        (temporary / MODEL).mkdir()
        for name in _FILES:
            shutil.copyfile(candidate.folder / name, temporary / MODEL / name)
        if candidate.basis is not None:
            write_array(temporary / BASIS, candidate.basis.numpy())


def read_basis(folder: Path) -> Tensor | None:
    """The basis of a kept model; None where full features are stored."""
    path = folder / BASIS
    return torch.from_numpy(np.ascontiguousarray(read_array(path))) if path.exists() else None


def registry_of(value: Any) -> SlotRegistry | None:
    """A registry as the catalogue keeps it."""
    return None if value is None else SlotRegistry.from_json(json.loads(json.dumps(value)))


def slots_of_kept(folders: Iterable[Path]) -> SlotRegistry | None:
    """Everybody's slots among kept models, read from their descriptions; None where they have none."""
    together: SlotRegistry | None = None
    for folder in folders:
        registry = registry_of(read_json(folder / MODEL / _FILES[0]).get("info", {}).get("slots"))
        together = registry if together is None or registry is None else together.meet(registry)
    return together


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

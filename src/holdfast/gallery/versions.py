"""A version of a gallery is one model: a folder with its copy, and the basis in which its vectors are stored."""

import hashlib
import shutil
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.storage import read_array, read_json, replacing_folder, write_array
from holdfast.train.encoders import Encoder
from holdfast.train.encoders.compact import compact_basis
from holdfast.train.encoders.preprocess import VectorInput, input_from_json
from holdfast.train.scenarios import SlotRegistry

MODEL, BASIS = "model", "basis.npy"
_MODEL_FILES = ("config.json", "model.safetensors")


@dataclass(frozen=True)
class Version:
    """The catalogue's record of a model.

    number: the version's number, never reused.
    source: the folder it was registered from.
    weights_sha256: checksum of its weights.
    dim: numbers of a full feature, K - 1 for a simplex.
    stored_dim: numbers of a stored vector.
    slots: K, None for a model without a slot registry.
    registered: date and time in UTC, ISO 8601.
    checks: one compatibility check for each older version that could be checked.
    backbone: the network's name; None in galleries created by early versions.
    bridges: one record for each older version that has a bridge; see ``version_bridges.bridge_record``.
    unreachable: older versions that have no items, and whose vectors queries of this version could not search.
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
    bridges: list[dict[str, Any]] = field(default_factory=list)
    unreachable: list[int] = field(default_factory=list)

    def can_compare(self, other: "Version") -> bool:
        """Whether queries of one of the two versions can search items of the other."""
        newer, older = (self, other) if self.number > other.number else (other, self)
        return older.number not in newer.unreachable

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of a feature, compact or full, ascending; one size if they are equal."""
        return tuple(sorted({self.dim, self.stored_dim}))

    @property
    def collection(self) -> str:
        return f"v{self.number:04d}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Candidate:
    """A model that may become a version: read, but not yet copied into the gallery."""

    folder: Path
    encoder: Encoder
    basis: Tensor | None
    weights_sha256: str
    registry: SlotRegistry | None

    def version(self, number: int) -> Version:
        return Version(
            number=number,
            source=str(self.folder.absolute()),
            weights_sha256=self.weights_sha256,
            dim=self.encoder.embedding_dim,
            stored_dim=self.encoder.embedding_dim if self.basis is None else self.basis.shape[1],
            slots=None if self.registry is None else self.registry.num_slots,
            registered=datetime.now(UTC).isoformat(timespec="seconds"),
            backbone=_backbone_name(self.encoder),
        )


def read_candidate(folder: Path) -> Candidate:
    """Read a model folder; refused if the model has no preprocess."""
    encoder = Encoder.from_pretrained(folder)
    if encoder.preprocess is None:
        raise HoldfastError(f"{folder}: this model has no preprocess, so it cannot embed images; save it with one")
    registry = _simplex_slots(encoder.info.get("slots"), encoder.dim, encoder.feature_dim, encoder.readout)
    if registry is not None and registry.num_slots != encoder.dim + 1:
        raise HoldfastError(
            f"{folder}: features of {encoder.dim} numbers do not fit a simplex of {registry.num_slots} slots"
        )
    sha256 = read_json(folder / _MODEL_FILES[0])["weights_sha256"]
    return Candidate(folder, encoder, compact_basis(encoder), _model_hash(encoder, sha256), registry)


def _model_hash(encoder: Encoder, weights_sha256: str) -> str:
    """A hash that differs between models. Many adopted models have no weights, so their vectors are hashed too."""
    adopted = encoder.info.get("adopted")
    if adopted is None or encoder.projection is not None:
        return weights_sha256
    return hashlib.sha256(f"{weights_sha256} {adopted['features_sha256']} {encoder.dim}".encode()).hexdigest()


def _backbone_name(encoder: Encoder) -> str:
    spec = getattr(encoder.backbone, "backbone_spec", None)
    return type(encoder.backbone).__name__ if spec is None else str(spec["name"])


def space_conflict(known: SlotRegistry | None, dim: int, new: Candidate) -> str | None:
    """Why features of ``new`` cannot be compared with those of a model without a bridge; None if they can.

    known: the slots of that model; None if it has none.
    dim: numbers of its full features.
    """
    mine = new.registry
    if known is None or mine is None:
        if known is not mine:
            return (
                "the model has no class slots, they have"
                if mine is None
                else "the model has class slots, they have not"
            )
        if new.encoder.embedding_dim != dim:
            return f"features of {new.encoder.embedding_dim} numbers, the gallery's have {dim}"
        return None
    try:
        known.merge(mine)
    except HoldfastError as error:
        return str(error)
    return None


def copy_model(candidate: Candidate, folder: Path) -> None:
    """Copy the model and its basis into the gallery; the source folder is then no longer needed."""
    with replacing_folder(folder) as temporary:
        (temporary / MODEL).mkdir()
        for name in _MODEL_FILES:
            shutil.copyfile(candidate.folder / name, temporary / MODEL / name)
        if candidate.basis is not None:
            write_array(temporary / BASIS, candidate.basis.numpy())


def read_basis(folder: Path) -> Tensor | None:
    """The basis of a copied model; None if full features are stored."""
    path = folder / BASIS
    if not path.exists() and not path.is_symlink():
        return None
    basis = read_array(path)
    if basis.dtype != np.float32 or basis.ndim != 2:
        raise HoldfastError(f"{path}: not a basis, but {basis.dtype} of shape {basis.shape}; restore it from a backup")
    return torch.from_numpy(np.ascontiguousarray(basis))


def read_registry(folder: Path) -> SlotRegistry | None:
    """The slots of a copied model, read from its config file; None if it has none."""
    found = read_json(folder / MODEL / _MODEL_FILES[0])
    readout = found.get("readout", "simplex")
    return _simplex_slots(found.get("info", {}).get("slots"), found["dim"], found["feature_dim"], readout)


def _simplex_slots(slots: dict[str, Any] | None, dim: int, feature_dim: int, readout: str) -> SlotRegistry | None:
    """The slots of the simplex that the stored features lie on; None if they lie on none.

    A model without a simplex lists its classes under the same key. Features of a simplex have one number less than it
    has slots; a network without a projection can miss that. Features read from the backbone lie on no simplex.
    """
    registry = None if slots is None else SlotRegistry.from_json(slots)
    without = readout == "backbone" or (registry is not None and registry.num_slots != dim + 1 and dim == feature_dim)
    return None if without else registry


@dataclass(frozen=True)
class VectorSizes:
    """The sizes of vectors that can be added to a version.

    version: its number.
    features: sizes of a feature, full and compact.
    input: size of the vectors that the model embeds, None for a model that embeds images.
    adopted: whether the model was adopted; vectors of an existing store are then its input.
    """

    version: int
    features: tuple[int, ...]
    input: int | None
    adopted: bool

    def is_input(self, width: int, embed: bool | None, name: str) -> bool:
        """Whether vectors of ``width`` numbers are the model's input (True) or its features (False).

        Refused: a size that fits neither. Also a size that fits both, unless the model was adopted or ``embed`` is
        given, because a wrong guess would silently give wrong search results.

        embed: the user's choice; None to decide by size.
        name: of the file, for errors.
        """
        as_input, as_feature = width == self.input and embed is not False, width in self.features and embed is not True
        if as_input and as_feature and not self.adopted:
            raise HoldfastError(
                f"{name}: both input and features of version {self.version} have {width} numbers; say --embed "
                "(they are its input) or --no-embed (its features)"
            )
        if not as_input and not as_feature:
            raise HoldfastError(f"{name}: vectors of {width} numbers, but {self._accepted(embed)}")
        return as_input

    def _accepted(self, embed: bool | None) -> str:
        if embed and self.input is None:
            return f"version {self.version} embeds images, not vectors; leave out --embed"
        found = [] if embed else [f"features of {' or '.join(map(str, self.features))}"]
        found += [] if self.input is None or embed is False else [f"input of {self.input}"]
        return f"version {self.version} has {' and '.join(found)}; is --version right?"


def vector_sizes(folder: Path, version: Version) -> VectorSizes:
    """The sizes of a copied model, read from its config file; the model is not loaded."""
    config = read_json(folder / MODEL / "config.json")
    taken = input_from_json(config["preprocess"])
    return VectorSizes(
        version.number,
        version.sizes,
        taken.width if isinstance(taken, VectorInput) else None,
        "adopted" in config.get("info", {}),
    )

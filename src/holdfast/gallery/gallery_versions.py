"""A version of a gallery: a model with the basis in which its vectors are stored, or vectors alone.

A version's folder holds a copy of its model. A version of vectors alone has no model: what made its vectors is not
here, so it is searched by vectors, and new vectors of it are given.
"""

import hashlib
import shutil
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

import numpy as np

from holdfast.core.checksums import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.storage import read_array, read_json, replacing_folder, write_array
from holdfast.embedders.model_folder import CONFIG_FILE, WEIGHTS_FILE, ModelFolder
from holdfast.embedders.slot_registry import SlotRegistry
from holdfast.gallery.vector_sources import BLOCK_ROWS, OpenVectors, VectorSource, is_model_hash

if TYPE_CHECKING:
    from holdfast.embedders.image_encoder import ImageEncoder

MODEL, BASIS = "model", "basis.npy"
IMAGES, VECTORS, NOTHING = "images", "vectors", "nothing"
"""What a version's model embeds."""


@dataclass(frozen=True)
class Version:
    """The catalogue's record of a model.

    number: the version's number, never reused.
    source: the model's folder, or what gave the vectors.
    weights_sha256: hash of the model's weights; of vectors alone the hash of what gave them, unless they name a model.
    dim: numbers of a full feature, K - 1 for a simplex.
    stored_dim: numbers of a stored vector.
    slots: K, None for a model without a slot registry.
    registered: date and time in UTC, ISO 8601.
    checks: one compatibility check for each older version that could be checked.
    embeds: ``images``, ``vectors`` or, for a version of vectors alone, ``nothing``.
    input_dim: numbers of the vectors that the model embeds.
    backbone: the network's name; None without a model.
    bridges: one record for each older version that has a bridge; see ``version_bridges.bridge_record``.
    notes: what was noticed when it was registered, in sentences.
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
    embeds: str = IMAGES
    input_dim: int | None = None
    backbone: str | None = None
    bridges: list[dict[str, Any]] = field(default_factory=list)
    unreachable: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Refuse what a damaged record holds in place of a number, a text or a list."""
        for part in fields(self):
            value: Any = getattr(self, part.name)
            kind: Any = part.type
            if get_origin(kind) is list:
                (inner,) = get_args(kind)
                fits = isinstance(value, list) and all(isinstance(one, get_origin(inner) or inner) for one in value)
            else:
                fits = isinstance(value, kind)
            if not fits:
                raise TypeError(f"{part.name} of a version: {str(value)[:100]!r}")
        for bridge in self.bridges:
            if not (isinstance(bridge["version"], int) and isinstance(bridge["sha256"], dict)):
                raise TypeError(f"bridges of a version: {str(bridge)[:100]!r}")

    def can_compare(self, other: "Version") -> bool:
        """Whether queries of one of the two versions can search items of the other."""
        newer, older = (self, other) if self.number > other.number else (other, self)
        return older.number not in newer.unreachable

    @property
    def embeds_here(self) -> bool:
        """Whether it has a model, and what is needed to run it is installed."""
        return self.embeds != NOTHING and _torch_is_installed()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of a feature, compact or full, ascending; one size if they are equal."""
        return tuple(sorted({self.dim, self.stored_dim}))

    @property
    def collection(self) -> str:
        return f"v{self.number:04d}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _torch_is_installed() -> bool:
    try:
        return find_spec("torch") is not None
    except ModuleNotFoundError:  # an import hook refuses it
        return False


@dataclass(frozen=True)
class VersionCandidate:
    """A model, or vectors alone, that may become a version; nothing is copied into the gallery yet.

    source: what was given, for messages.
    dim: numbers of a full feature.
    weights_sha256: as of ``Version``.
    model: the model's folder; None for vectors alone.
    basis: of compact features, dim x stored_dim; None if full features are stored.
    """

    source: Path | str
    dim: int
    weights_sha256: str
    model: ModelFolder | None = None
    basis: np.ndarray | None = None

    @property
    def registry(self) -> SlotRegistry | None:
        """The slots of the simplex that the features lie on; None if they lie on none."""
        return None if self.model is None else self.model.registry

    def version(self, number: int) -> Version:
        model, registry = self.model, self.registry
        width = None if model is None else model.vector_width
        return Version(
            number=number,
            source=str(self.source.absolute() if isinstance(self.source, Path) else self.source),
            weights_sha256=self.weights_sha256,
            dim=self.dim,
            stored_dim=self.dim if self.basis is None else self.basis.shape[1],
            slots=None if registry is None else registry.num_slots,
            registered=datetime.now(UTC).isoformat(timespec="seconds"),
            embeds=NOTHING if model is None else IMAGES if width is None else VECTORS,
            input_dim=width,
            backbone=None if model is None else model.backbone_name,
        )

    def load(self, device: str) -> "ImageEncoder | None":
        """The model, loaded to see that it works; None without a model, or without what is needed to run it here.

        A gallery of a model's vectors can also be kept where the model cannot run.
        """
        if self.model is None or not self.version(0).embeds_here:
            return None
        from holdfast.embedders.image_encoder import ImageEncoder

        return ImageEncoder.load(self.model.folder, device)


def read_candidate(model: str | Path | None, vectors: VectorSource | None) -> VersionCandidate:
    """A model folder, or vectors alone, as a version that may be; one of the two is given."""
    if (model is None) == (vectors is None):
        raise HoldfastError("a version is of a model folder or, without a model, of vectors alone: give one of the two")
    return _vectors_candidate(vectors) if vectors is not None else _model_candidate(Path(str(model)))


def _model_candidate(folder: Path) -> VersionCandidate:
    model = ModelFolder.read(folder)
    if model.config["preprocess"] is None:
        raise HoldfastError(f"{folder}: this model has no preprocess, so it cannot embed images; save it with one")
    registry = model.registry
    if registry is not None and registry.num_slots != model.dim + 1:
        raise HoldfastError(
            f"{folder}: features of {model.dim} numbers do not fit a simplex of {registry.num_slots} slots"
        )
    return VersionCandidate(folder, model.dim, model.weights_sha256, model, model.compact_basis())


def _vectors_candidate(given: VectorSource) -> VersionCandidate:
    """Vectors are called by the hash of the model that made them if they name it, else by their own hash."""
    opened = OpenVectors(given)
    if is_model_hash(opened.model):
        name = str(opened.model)
    elif isinstance(given, str | Path) and Path(given).is_file():
        name = sha256_of(Path(given))
    else:
        digest = hashlib.sha256(f"{opened.model} {opened.dim} ".encode())
        for _, block in opened.blocks(BLOCK_ROWS):
            digest.update(np.ascontiguousarray(block).tobytes())
        name = digest.hexdigest()
    return VersionCandidate(opened.name, opened.dim, name)


def space_conflict(known: SlotRegistry | None, dim: int, new: VersionCandidate) -> str | None:
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
        if new.dim != dim:
            return f"features of {new.dim} numbers, the gallery's have {dim}"
        return None
    try:
        known.merge(mine)
    except HoldfastError as error:
        return str(error)
    return None


def copy_model(candidate: VersionCandidate, folder: Path) -> None:
    """Copy the model and its basis into the gallery; the source folder is then no longer needed."""
    with replacing_folder(folder) as temporary:
        if candidate.model is None:
            return
        (temporary / MODEL).mkdir()
        for name in (CONFIG_FILE, WEIGHTS_FILE):
            shutil.copyfile(candidate.model.folder / name, temporary / MODEL / name)
        if candidate.basis is not None:
            write_array(temporary / BASIS, candidate.basis)


def read_basis(folder: Path) -> np.ndarray | None:
    """The basis of a copied model; None if full features are stored."""
    path = folder / BASIS
    if not path.exists() and not path.is_symlink():
        return None
    basis = read_array(path)
    if basis.dtype != np.float32 or basis.ndim != 2:
        raise HoldfastError(f"{path}: not a basis, but {basis.dtype} of shape {basis.shape}; restore it from a backup")
    return np.ascontiguousarray(basis)


def read_registry(folder: Path, version: Version) -> SlotRegistry | None:
    """The slots of a copied model, read from its config file; None if it has none."""
    if version.embeds == NOTHING:
        return None
    return ModelFolder(folder / MODEL, read_json(folder / MODEL / CONFIG_FILE)).registry

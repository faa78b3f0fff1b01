"""What a saved model's folder says about the model, read without loading its network.

``config.json`` describes the model, ``model.safetensors`` holds its weights. Galleries need the sizes, the input, the
class slots, the hash of the weights and the compact basis; all of them are plain data.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from holdfast.core.checksums import sha256_of, verify_checksums
from holdfast.core.errors import HoldfastError
from holdfast.core.storage import reading_tensors
from holdfast.core.untrusted_files import open_regular, read_json, whole_number
from holdfast.embedders.slot_registry import SlotRegistry

Readout = Literal["simplex", "backbone"]

FORMAT = "holdfast-encoder"
FORMAT_VERSION = 2
"""1 was written by Holdfast 0.1 and 0.2 and is not read."""
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
PROJECTION = "projection.weight"
MOST_DIM = 2**22
"""The largest size of a feature: a larger one is refused before memory is allocated for it."""

_MOST_CONFIG = 32 * 2**20  # bytes; most of it are the names of the classes
_REQUIRED = ("backbone", "dim", "feature_dim", "preprocess", "info", "weights_sha256")


@dataclass(frozen=True)
class ModelFolder:
    """A saved model.

    folder: where it is.
    config: the contents of ``config.json``, checked by ``read_model_config``.
    """

    folder: Path
    config: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> "ModelFolder":
        """Read the description, and check that the weights are those that it was written for."""
        return cls(folder, read_model_config(folder))

    @property
    def feature_dim(self) -> int:
        """Size of the backbone's features."""
        return int(self.config["feature_dim"])

    @property
    def readout(self) -> Readout:
        """Which features are stored and compared; see ``Encoder``."""
        return self.config.get("readout", "simplex")

    @property
    def dim(self) -> int:
        """Size of the features that are stored and compared."""
        return self.feature_dim if self.readout == "backbone" else int(self.config["dim"])

    @property
    def weights_sha256(self) -> str:
        return str(self.config["weights_sha256"])

    @property
    def info(self) -> dict[str, Any]:
        """What was saved with the model, such as its class slots."""
        return dict(self.config["info"])

    @property
    def vector_width(self) -> int | None:
        """The size of the vectors that the model embeds; None if it embeds images."""
        given = self.config["preprocess"]
        return given.get("width") if isinstance(given, dict) and given.get("kind") == "vectors" else None

    @property
    def backbone_name(self) -> str:
        spec = self.config["backbone"]
        return str(spec["name"] if isinstance(spec, dict) and "name" in spec else self.config.get("backbone_class"))

    @cached_property
    def registry(self) -> SlotRegistry | None:
        """The slots of the simplex that the stored features lie on; None if they lie on none.

        A model without a simplex lists its classes under the same key. Features of a simplex have one number less than
        it has slots; a network without a projection can miss that. Features read from the backbone lie on no simplex.
        """
        slots, dim = self.config["info"].get("slots"), int(self.config["dim"])
        registry = None if slots is None else SlotRegistry.from_json(slots)
        if registry is None or self.readout == "backbone":
            return None
        if registry.num_slots == dim + 1:
            return registry
        if dim == self.feature_dim:
            return None
        raise HoldfastError(
            f"{self.folder}: features of {dim} numbers do not fit a simplex of {registry.num_slots} slots"
        )

    def compact_basis(self) -> np.ndarray | None:
        """The basis of compact features, dim x feature_dim; None if full features are not larger."""
        if self.dim <= self.feature_dim:
            return None
        return compact_basis(_weight(self.folder / WEIGHTS_FILE, PROJECTION))


def compact_basis(projection: np.ndarray) -> np.ndarray:
    """Q of the thin QR factorisation of a projection (dim x F): float32 with orthonormal columns.

    The diagonal of R is positive, so that Q is unique and a model with a grown simplex keeps its compact vectors. A
    full feature is z = P h = Q (R h). Its compact form Q^T z / |z| is a unit vector of F numbers, and the dot product
    of two of them is the cosine of the full features. A query u of another model with basis O is compared with them as
    Q^T O u. The length of that vector is at most 1 and part of the score.
    """
    q, r = np.linalg.qr(projection.astype(np.float64))
    return np.ascontiguousarray(q * np.where(r.diagonal() < 0, -1.0, 1.0), dtype=np.float32)


def change_basis(own: np.ndarray | None, other: np.ndarray | None, dim: int) -> np.ndarray:
    """The matrix (d x d') that carries vectors of one model, from the right, into the basis of another.

    own, other: the bases of the two models; None for full features.
    dim: numbers of a vector of the first model.
    """
    if own is other:
        return np.eye(dim, dtype=np.float32)
    if own is None:
        assert other is not None
        return other
    return np.ascontiguousarray(own.T if other is None else own.T @ other)


def read_model_config(folder: Path) -> dict[str, Any]:
    """The checked description of a saved model; refused if its weights are others than it names."""
    models = sorted(folder.glob(f"models/*/{CONFIG_FILE}"))
    if models and not (folder / CONFIG_FILE).exists():
        raise HoldfastError(f"{folder}: a run, not a model; name one of its models, such as {models[-1].parent}")
    if not (folder / CONFIG_FILE).exists():
        raise HoldfastError(f"{folder}: no model here; give a folder with {CONFIG_FILE} and {WEIGHTS_FILE}")
    config = read_json(folder / CONFIG_FILE, _MOST_CONFIG)
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise HoldfastError(f"{folder / CONFIG_FILE}: does not describe a Holdfast encoder")
    given = config.get("format_version")
    if given == 1:
        raise HoldfastError(
            f"{folder}: written by Holdfast 0.2 or earlier, which this one does not read; make it again"
        )
    if given != FORMAT_VERSION:
        raise HoldfastError(f"{folder / CONFIG_FILE}: format version {given!r}, this Holdfast reads {FORMAT_VERSION}")
    absent = [key for key in _REQUIRED if key not in config]
    if absent:
        raise HoldfastError(f"{folder / CONFIG_FILE}: has no {', '.join(absent)}")
    for size in ("dim", "feature_dim"):
        whole_number(config[size], f"{folder / CONFIG_FILE}: {size}", 1, MOST_DIM)
    if not isinstance(config["info"], dict):
        raise HoldfastError(f"{folder / CONFIG_FILE}: info must be an object")
    frozen = config.get("frozen", [])
    if not isinstance(frozen, list) or not all(isinstance(name, str) for name in frozen):
        raise HoldfastError(f"{folder / CONFIG_FILE}: frozen must be a list of names, found {frozen!r}")
    try:
        checked_readout(config.get("readout", "simplex"))
    except HoldfastError as error:
        raise HoldfastError(f"{folder / CONFIG_FILE}: {error}") from error
    with _opened(folder / WEIGHTS_FILE):
        pass
    if sha256_of(folder / WEIGHTS_FILE) != config["weights_sha256"]:
        raise HoldfastError(f"{folder / WEIGHTS_FILE}: not the weights {CONFIG_FILE} was written for (sha256 differs)")
    verify_checksums(folder, only=(CONFIG_FILE,))
    return config


def checked_readout(readout: Any) -> Readout:
    """The readout, if it is one."""
    if readout not in get_args(Readout):
        raise HoldfastError(f"readout must be one of {', '.join(get_args(Readout))}, got {readout!r}")
    return readout


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """The weights, opened; no tensor is read yet."""
    from safetensors import safe_open

    with reading_tensors(file), safe_open(file, framework="np") as opened:
        yield opened


def _weight(file: Path, name: str) -> np.ndarray:
    """One matrix of a model's weights, float32."""
    with _opened(file) as opened:
        if name not in opened.keys():  # noqa: SIM118
            raise HoldfastError(f"{file}: has no {name}; restore the model from a copy")
        part = opened.get_slice(name)
        if part.get_dtype() != "BF16":
            return np.asarray(opened.get_tensor(name), dtype=np.float32)
        shape = part.get_shape()
    # NumPy has no bfloat16, whose numbers are the upper halves of float32 numbers.
    with open_regular(file) as raw:
        length = int.from_bytes(raw.read(8), "little")
        first, last = json.loads(raw.read(length))[name]["data_offsets"]
        raw.seek(8 + length + first)
        upper = np.frombuffer(raw.read(last - first), "<u2").astype(np.uint32)
    return (upper << 16).view(np.float32).reshape(shape)

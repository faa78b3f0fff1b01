"""An adopted model on disk: an encoder of stored vectors, its class prototypes, and a record of their origin.

``config.json`` and ``model.safetensors`` make it a model folder like any other; its inputs are the stored vectors.
``adopted.json`` records the way, the file of the vectors and the report. The vectors themselves are not copied. If the
way is a bridge, ``bridge`` holds it and ``new_model`` may hold a copy of the model that it belongs to.
"""

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.bridges import Bridge, Candidate, Evidence, ScoreScale
from holdfast.bridges.maps import Affine
from holdfast.core.checksums import sha256_of, verify_checksums, write_checksums
from holdfast.core.errors import HoldfastError
from holdfast.core.storage import read_json, replacing_folder, write_json
from holdfast.train.encoders import Encoder, VectorInput, build_backbone
from holdfast.train.engine import StoredReference
from holdfast.train.geometry import unit
from holdfast.train.losses import class_means
from holdfast.train.methods import Method, method_class
from holdfast.train.scenarios import SlotRegistry
from holdfast.train.tensor_files import read_torch, write_torch
from holdfast.train.versions.adoption_result import Adoption
from holdfast.train.versions.samples import Sample
from holdfast.train.versions.stored_vectors import StoredVectors, read_stored
from holdfast.vectors.feature_files import read_features
from holdfast.vectors.feature_set import find_rows, shorten

FORMAT = "holdfast-adopted"
RECORD, PROTOTYPES, BRIDGE_FOLDER, NEW_MODEL = "adopted.json", "prototypes.safetensors", "bridge", "new_model"


@dataclass(frozen=True)
class Adopted:
    """An adopted model.

    record: the contents of ``adopted.json``.
    prototypes: unit class means, C x dim; C is 0 if no classes are known.
    registry: the slots; None unless the way is a projection.
    bridge: carries a new model's queries into the stored vectors' space; None unless the way is a bridge.
    """

    folder: Path
    encoder: Encoder
    record: dict[str, Any]
    prototypes: Tensor
    class_names: tuple[str, ...]
    registry: SlotRegistry | None
    bridge: Bridge | None = None

    @property
    def way(self) -> str:
        return str(self.record["way"])

    @property
    def dim(self) -> int:
        """The size of the space that new models are trained into."""
        return self.encoder.dim

    def carried(self, vectors: Tensor) -> Tensor:
        """Stored vectors (N x D) in the space that new models are trained into: unit, N x ``dim``."""
        return self.encoder.encode(vectors)

    def method_options(self, method: str, given: Mapping[str, Any]) -> dict[str, int]:
        """Options of a method that follow from this model and are not ``given``: ``slots`` or ``dim``."""
        wanted = {"dim": self.dim} if self.registry is None else {"slots": self.registry.num_slots}
        known = inspect.signature(method_class(method)).parameters
        return {name: value for name, value in wanted.items() if name in known and given.get(name) is None}

    def refuse_unfit(self, method: Method, dim: int, *, where: str) -> None:
        """Refuse a method that does not train into this model's space.

        dim: size of the features of the model that it trains.
        where: the option that names this model, for the error message.
        """
        slots = None if self.registry is None else self.registry.num_slots
        if method.num_slots != slots:
            here = "has no simplex" if slots is None else f"is a simplex of {slots} slots"
            needs = "means_hoc" if slots is None else f"a simplex method with {slots} slots"
            raise HoldfastError(f"{where}: the adopted space {here}; train with {needs}")
        if dim != self.dim:
            advice = f"take a network with features of {self.dim} numbers, or method means_hoc, which projects them"
            if hasattr(method, "dim"):
                advice = f"set method.dim to {self.dim}"
            raise HoldfastError(
                f"{where}: the adopted space has {self.dim} dimensions, the trained model {dim}; {advice}"
            )
        if method.old_features == "none":
            raise HoldfastError(
                "method.name: this method reads no old features, so it cannot stay compatible with the stored vectors"
            )
        if method.old_features == "replayed":
            raise HoldfastError(
                "method.name: this method reads old features of replayed images only, and an adopted model has none; "
                "set method.on to all"
            )

    def on_store(self, z: Tensor) -> Tensor:
        """New models' features (N x ``dim``) as queries (N x D) for a search of the unchanged vectors; not normalised.

        With a projection P the inner product with a stored h is |P h| cos(z, P h). The order is exact only if P is an
        isometry, which it is unless a better projection was found.
        """
        return z if self.encoder.projection is None else z @ self.encoder.projection.weight.detach()

    def reference(self, names: np.ndarray, *, features: str | Path | None = None) -> StoredReference:
        """The reference for training: for each image in ``names`` its stored vector, zeros if there is none.

        features: the file of the vectors, if it was moved. A file with other contents is refused.
        """
        stored = self.stored(features)
        if not stored.has_ids:
            raise HoldfastError(f"{stored.name}: has no ids, so its vectors cannot be found for training images")
        rows = find_rows(names, stored.ids)
        known = torch.from_numpy(rows >= 0)
        if not bool(known.any()):
            raise HoldfastError(
                f"{stored.name}: none of its ids ({shorten(stored.ids, 2)}) is a training image ({shorten(names, 2)})"
            )
        table = torch.zeros(len(names), self.dim)
        table[known] = self.carried(stored.vectors[torch.from_numpy(rows[rows >= 0])])
        return StoredReference(table)

    def stored(self, features: str | Path | None = None) -> StoredVectors:
        """The adopted vectors and their ids, read from their file; without the labels, which training does not need."""
        source = self.record["features"]
        if source["sha256"] is None:
            what = "arrays in memory" if source["path"] is None else f"the folder {source['path']}"
            raise HoldfastError(f"{self.folder}: was adopted from {what}; adopt a file to train against it")
        path = Path(features or source["path"])
        if not path.is_file():
            raise HoldfastError(
                f"{path}: no such file; say where the adopted vectors are now (--stored FILE, or adopted.features in a "
                "recipe)"
            )
        if sha256_of(path) != source["sha256"]:
            raise HoldfastError(f"{path}: not the features that {self.folder} was adopted from (sha256 differs)")
        return read_stored(replace(read_features(path, "gallery"), labels=None))


@dataclass(frozen=True, eq=False)
class VectorsByPath:
    """The stored vectors of an adopted model, found by the paths of images.

    adopted: the model.
    stored: its vectors, with ids. An id is the end of an image's path, such as ``shoes/17.jpg``.
    """

    adopted: Adopted
    stored: StoredVectors

    @cached_property
    def _row_of_id(self) -> dict[str, int]:
        return {str(name): row for row, name in enumerate(self.stored.ids)}

    def features(self, samples: Sequence[Sample]) -> tuple[np.ndarray, Tensor]:
        """Which samples have a stored vector (N booleans), and the vectors, N x dim; zeros where there is none."""
        rows = np.array([self._row(one.path) for one in samples], dtype=np.int64)
        self._refuse_shared_ids(samples, rows)
        known = rows >= 0
        table = torch.zeros(len(samples), self.adopted.dim)
        if known.any():
            table[torch.from_numpy(known)] = self.adopted.carried(self.stored.vectors[torch.from_numpy(rows[known])])
        return known, table

    def _row(self, path: Path) -> int:
        """The row with the longest id that is the end of ``path``; -1 if there is none."""
        parts = path.as_posix().split("/")
        found = (self._row_of_id.get("/".join(parts[start:])) for start in range(len(parts)))
        return next((row for row in found if row is not None), -1)

    def _refuse_shared_ids(self, samples: Sequence[Sample], rows: np.ndarray) -> None:
        """Two different images with one id would be held to one vector."""
        first: dict[int, Sample] = {}
        for one, row in zip(samples, rows.tolist()):
            if row >= 0 and first.setdefault(row, one).sha256 != one.sha256:
                raise HoldfastError(
                    f"{self.stored.name}: the id {self.stored.ids[row]} is the end of two paths, {first[row].path} and "
                    f"{one.path}; store ids with more of the path"
                )


def write_adopted(
    out: Path,
    stored: StoredVectors,
    found: Adoption,
    *,
    projection: Tensor | None,
    registry: SlotRegistry | None,
    features: dict[str, Any],
    bridge: Bridge | None = None,
    new_model: Encoder | None = None,
) -> None:
    """Write the folder in one step.

    projection: K - 1 x D; None keeps the vectors' own space.
    registry: the slots of a projection.
    features: the origin of the vectors.
    bridge: carries a new model's queries into the stored space.
    new_model: that model, which is copied beside the bridge.
    """
    backbone = build_backbone("identity", in_channels=stored.dim)
    dim = stored.dim if projection is None else len(projection)
    origin = features["sha256"] or hashlib.sha256(stored.vectors.numpy().tobytes()).hexdigest()
    info: dict[str, Any] = {"adopted": {"way": found.chosen, "features_sha256": origin}}
    if registry is not None:
        info["slots"] = registry.to_json()
    encoder = Encoder(backbone, dim, preprocess=VectorInput(stored.dim, unit=True), info=info)
    if projection is not None:
        assert encoder.projection is not None
        encoder.projection.weight = nn.Parameter(projection.clone())
    with replacing_folder(out) as temporary:
        encoder.write_into(temporary)
        write_torch(temporary / PROTOTYPES, {"prototypes": _prototypes(encoder, stored)})
        if bridge is not None:
            bridge.save(temporary / BRIDGE_FOLDER)
        if new_model is not None:
            (temporary / NEW_MODEL).mkdir()
            new_model.write_into(temporary / NEW_MODEL)
        record = {
            "format": FORMAT,
            "format_version": 1,
            "way": found.chosen,
            "adopted": datetime.now(UTC).isoformat(timespec="seconds"),
            "features": features,
            "class_names": list(stored.class_names),
            "judged": found.judged,
            "prototypes_sha256": sha256_of(temporary / PROTOTYPES),
            "report": found.as_json(),
        }
        write_json(temporary / RECORD, record)
        write_checksums(temporary)


def _prototypes(encoder: Encoder, stored: StoredVectors) -> Tensor:
    if stored.labels is None:
        return torch.zeros(0, encoder.dim)
    labels = torch.from_numpy(stored.labels)
    return unit(class_means(encoder.encode(stored.vectors), labels, len(stored.class_names)))


def read_adopted(folder: str | Path) -> Adopted:
    """An adopted model; a folder changed by hand is refused.

    >>> import numpy as np
    >>> from holdfast import adopt, read_adopted
    >>> _ = adopt(np.eye(4, 3) + 0.1, out="models/1", way="unchanged")
    >>> read_adopted("models/1").way
    'unchanged'
    """
    folder = Path(folder)
    if not (folder / RECORD).is_file():
        raise HoldfastError(f"{folder}: no adopted model here (no {RECORD}); make one with holdfast adopt")
    verify_checksums(folder)
    record = read_json(folder / RECORD)
    if not isinstance(record, dict) or record.get("format") != FORMAT or record.get("format_version") != 1:
        raise HoldfastError(f"{folder / RECORD}: does not describe an adopted model this Holdfast can read")
    tensors, _ = read_torch(folder / PROTOTYPES)
    if sha256_of(folder / PROTOTYPES) != record["prototypes_sha256"]:
        raise HoldfastError(f"{folder / PROTOTYPES}: not the prototypes {RECORD} was written for (sha256 differs)")
    encoder = Encoder.from_pretrained(folder)
    slots = encoder.info.get("slots")
    registry = None if slots is None else SlotRegistry.from_json(slots)
    names, bridge = tuple(record["class_names"]), _read_bridge(folder)
    return Adopted(folder, encoder, record, tensors["prototypes"], names, registry, bridge)


def _read_bridge(folder: Path) -> Bridge | None:
    """The bridge of an adopted folder. Early versions wrote a matrix without bias, ``map.safetensors``."""
    if (folder / BRIDGE_FOLDER).is_dir():
        return Bridge.load(folder / BRIDGE_FOLDER)
    if not (folder / "map.safetensors").is_file():
        return None
    matrix = read_torch(folder / "map.safetensors")[0]["map"]
    size, new_size = matrix.shape
    unknown = Candidate(Affine.kind, {}, float("nan"), float("nan"))
    return Bridge(
        kind=Affine.kind,
        options={},
        dims=(new_size, size),
        map=Affine(matrix.T.numpy(), np.zeros(size, np.float32)),
        scale=ScoreScale(),
        error_weights=np.zeros(size + 1, np.float32),
        evidence=Evidence("not measured", float("nan"), 0, 0, 0, (unknown,)),
    )

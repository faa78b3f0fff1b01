"""Read the records of a finished run from its folder, and check them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import not_a_run_error
from holdfast.core.storage import read_json
from holdfast.core.untrusted_files import read_toml
from holdfast.metrics import compatible_pairs
from holdfast.train.events import read_events

METHOD_NAMES = {
    "er": "ER",
    "simplex_fd": "d-Simplex-FD",
    "simplex_hoc": "d-Simplex-HOC",
    "simplex_hoc_views": "d-Simplex-HOC-Views (ours)",
    "cosine_hoc": "Cosine-HOC (ours)",
    "fan": "FAN",
    "distillation": "Distillation",
    "bct": "BCT-ER",
    "lce": "LCE-ER",
    "advbct": "AdvBCT-ER",
    "cvs": "CVS",
}


@dataclass(frozen=True)
class ProtocolRecord:
    """Scores under one protocol, in [0, 1]; NaN if undefined. ``matrix`` is T x T, NaN above the diagonal."""

    matrix: NDArray[np.float64]
    AC: float
    AA: float
    ACA: float
    AC_tau: list[float]
    AA_tau: list[float]
    extras: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def compatible(self) -> NDArray[np.bool_]:
        """True if query model t beats gallery model k's own score (strictly); only below the diagonal, never at NaN."""
        return compatible_pairs(self.matrix)

    @property
    def pairs(self) -> int:
        return len(self.matrix) * (len(self.matrix) - 1) // 2


@dataclass(frozen=True)
class BridgedRecord:
    """Scores with bridged queries. Their AC is AC-R: bridged C[t, k] > plain C[k, k].

    kind: of all bridges of the run. pairs: gallery images that each was fitted on.
    mixed: the mixed gallery searched with bridges, with scaled scores, or with both; one record for each.
    """

    kind: str
    pairs: int
    protocols: dict[str, ProtocolRecord]
    mixed: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class RunRecord:
    """The records of one run folder. All fields but method and protocols may be empty."""

    folder: Path
    method: str
    protocols: dict[str, ProtocolRecord]
    bridged: BridgedRecord | None = None
    mixed: dict[str, Any] = field(default_factory=dict)
    maps: list[int] = field(default_factory=list)
    tasks: list[dict[str, Any]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)
    stationarity: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return METHOD_NAMES.get(self.method, self.method)


def read_run(folder: Path) -> RunRecord:
    """Read ``metrics.json`` (required), and recipe, environment, log and ``stationarity.json`` if they exist."""
    folder = Path(folder)
    path = folder / "metrics.json"
    if not path.is_file():
        raise not_a_run_error(folder)
    metrics = read_json(path)
    if not isinstance(metrics, dict) or not isinstance(metrics.get("method"), str):
        raise HoldfastError(f"{path}: names no method; it is not the record of a run")
    protocols = metrics.get("protocols")
    if not isinstance(protocols, dict) or not protocols:
        raise HoldfastError(f"{path}: has no protocols; evaluate the run first")
    environment, stationarity = folder / "environment.json", folder / "stationarity.json"
    return RunRecord(
        folder=folder,
        method=metrics["method"],
        protocols={name: _protocol(value, f"{path}: protocol {name!r}") for name, value in protocols.items()},
        bridged=_bridged(metrics.get("bridged"), path),
        mixed=_of_type(metrics.get("mixed"), dict),
        maps=[task for task in _of_type(metrics.get("maps"), list) if isinstance(task, int)],
        tasks=[task for task in _of_type(metrics.get("tasks"), list) if isinstance(task, dict)],
        data=_of_type(metrics.get("data"), dict),
        recipe=_recipe(folder / "recipe.toml"),
        environment=_of_type(read_json(environment), dict) if environment.is_file() else {},
        log=read_events(folder / "log.jsonl"),
        stationarity=_of_type(read_json(stationarity), dict) if stationarity.is_file() else {},
    )


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, keys joined by dots: {"a": {"b": 1}} gives {"a.b": 1}."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            leaves.update(flatten(value, f"{prefix}{key}."))
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves


def _bridged(value: Any, path: Path) -> BridgedRecord | None:
    if not isinstance(value, dict):
        return None
    protocols, where = _of_type(value.get("protocols"), dict), f"{path}: bridged, protocol"
    return BridgedRecord(
        kind=str(value.get("kind")),
        pairs=_of_type(value.get("pairs"), int),
        protocols={name: _protocol(one, f"{where} {name!r}") for name, one in protocols.items()},
        mixed=[way for way in _of_type(value.get("mixed"), list) if isinstance(way, dict)],
    )


def _protocol(value: Any, where: str) -> ProtocolRecord:
    if not isinstance(value, dict) or "matrix" not in value:
        raise HoldfastError(f"{where} has no matrix")
    extras = _of_type(value.get("extras"), dict)
    return ProtocolRecord(
        matrix=_matrix(value["matrix"], f"{where}, matrix"),
        AC=finite_or_nan(value.get("AC")),
        AA=finite_or_nan(value.get("AA")),
        ACA=finite_or_nan(value.get("ACA")),
        AC_tau=[finite_or_nan(item) for item in _of_type(value.get("AC_tau"), list)],
        AA_tau=[finite_or_nan(item) for item in _of_type(value.get("AA_tau"), list)],
        extras={name: _matrix(extra, f"{where}, {name}") for name, extra in extras.items()},
    )


def _matrix(rows: Any, where: str) -> NDArray[np.float64]:
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) for row in rows):
        raise HoldfastError(f"{where} is not a list of rows")
    matrix = np.full((len(rows), len(rows)), np.nan)
    for t, row in enumerate(rows):
        if not t < len(row) <= len(rows):
            raise HoldfastError(f"{where}: row {t + 1} has {len(row)} cells, but there are {len(rows)} models")
        if not all(cell is None or type(cell) in (int, float) for cell in row[: t + 1]):
            raise HoldfastError(f"{where}: row {t + 1} holds something that is neither a number nor null")
        matrix[t, : t + 1] = [finite_or_nan(cell) for cell in row[: t + 1]]
    if bool(((matrix < 0) | (matrix > 1)).any()):
        raise HoldfastError(f"{where}: scores must be in [0, 1]")
    return matrix


def finite_or_nan(value: Any) -> float:
    """``value`` as a float; NaN for null, for anything but a number, and for infinities."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return math.nan


def _of_type(value: Any, kind: type[Any]) -> Any:
    return value if isinstance(value, kind) else kind()


def _recipe(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    return read_toml(path)

"""The record of a run as one JSON file: command, recipe, environment, data and scores, or why it has no scores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.core.storage import read_json, write_json
from holdfast.core.untrusted_files import read_toml
from holdfast.train.events import read_events


def write_record(folder: RunFolder, path: Path, command: str, also: Mapping[str, Any] | None = None) -> None:
    """Write the record of the run in ``folder`` to ``path``; small enough to commit, and enough to repeat the run.

    command: the command line that repeats the run.
    also: further entries, such as the device time of the run.

    The environment names the executor, or "fused + graph" if tasks had different ones; old runs have no such entry.
    """
    if not folder.metrics.exists():
        raise HoldfastError(f"{folder.path}: the run is not finished; finish it before recording it")
    recipe: dict[str, Any] = read_toml(folder.recipe)
    metrics = read_json(folder.metrics)
    record = {
        "method": metrics["method"],
        "tasks": len(metrics["tasks"]),
        "seed": recipe["seed"],
        "command": command,
        "minutes": round(sum(task["seconds"] for task in metrics["tasks"]) / 60, 2),
        **(also or {}),
        "steps": sum(task["steps"] or 0 for task in metrics["tasks"]),
        "environment": {**read_json(folder.environment), **_executor(folder)},
        "recipe": recipe,
        "data": metrics["data"],
        "protocols": metrics["protocols"],
        **{part: metrics[part] for part in ("models", "mixed", "bridged") if part in metrics},
    }
    write_json(path, record)


def write_divergence(folder: RunFolder, path: Path, command: str, reason: str) -> None:
    """Write the record of a run that has no scores because its loss, weights or maps became NaN or infinite.

    command: the command line that repeats the run.
    reason: the message of the error.
    """
    recipe: dict[str, Any] = read_toml(folder.recipe)
    record = {
        "method": recipe["method"]["name"],
        "seed": recipe["seed"],
        "command": command,
        "diverged": reason,
        "environment": {**read_json(folder.environment), **_executor(folder)},
        "recipe": recipe,
    }
    write_json(path, record)


def _executor(folder: RunFolder) -> dict[str, str]:
    used = sorted({event["executor"] for event in read_events(folder.log) if "executor" in event})
    return {"executor": " + ".join(used)} if used else {}

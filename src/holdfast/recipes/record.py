"""One JSON file that says all about a finished run: what was asked, where it ran, what came out."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.engine.journal import read_events
from holdfast.errors import HoldfastError
from holdfast.run_folder import RunFolder
from holdfast.storage import read_json, write_json


def write_record(folder: RunFolder, path: Path, command: str, also: Mapping[str, Any] | None = None) -> None:
    """Write the record that ``results/`` keeps of a run; small enough to commit, and enough to repeat the run.

    ``also``: what the folder does not know, such as how much of the device the run had. Its environment names the
    executor that trained, "fused + graph" where tasks had different ones; runs older than that have none.
    """
    if not folder.metrics.exists():
        raise HoldfastError(f"{folder.path}: not finished, so there is nothing to record")
    recipe: dict[str, Any] = tomllib.loads(folder.recipe.read_text(encoding="utf-8"))
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
        **({"mixed": metrics["mixed"]} if "mixed" in metrics else {}),
    }
    write_json(path, record)


def _executor(folder: RunFolder) -> dict[str, str]:
    used = sorted({event["executor"] for event in read_events(folder.log) if "executor" in event})
    return {"executor": " + ".join(used)} if used else {}

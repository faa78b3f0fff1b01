"""One JSON file that says all about a finished run: what was asked, where it ran, what came out.

The sittings that a run was made in: a run that goes on later, or elsewhere, names every commit and GPU it had.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.environment import BETWEEN_SITTINGS
from holdfast.errors import HoldfastError
from holdfast.run_folder import RunFolder
from holdfast.storage import read_json, write_json
from holdfast.training.event_log import read_events


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


NAMED_TOGETHER = {"commit": "unknown", "gpu": "no GPU"}
"""What pages say of a run, so the run's own value names that of every sitting; and what stands for None among them."""

CHANGES = {
    "threads": "rounding will differ",
    "device": "rounding will differ",
    "ranks": "rounding will differ",
    "gpu": "rounding will differ",
    "commit": "its record names both",
}


class Sitting:
    """One sitting of a run. A later one is noted only once it does something: if it is refused, all stays as it was."""

    def __init__(self, folder: RunFolder, environment: dict[str, Any]) -> None:
        self._folder, self._now = folder, environment
        self._earlier = _earlier(folder)
        self._noted = False
        if not self._earlier:
            self.note()

    def changes(self) -> Iterator[str]:
        """What it has otherwise than one before it, a line each; what an older file does not say is no change."""
        for name, means in CHANGES.items():
            others = [one[name] for one in self._earlier if one.get(name) not in (None, self._now[name])]
            if others:
                yield f"begun with {name} {others[0]}, goes on with {self._now[name]}: {means}"

    def note(self) -> None:
        """Write ``environment.json``, the first time this is called."""
        if not self._noted:
            write_json(self._folder.environment, of_sittings([*self._earlier, self._now]))
            self._noted = True


def of_sittings(every: list[dict[str, Any]]) -> dict[str, Any]:
    """A run's environment: of a single sitting just its own.

    Of several the first one's, where commit and GPU are "a + b" if they differ, and all of them under ``sittings``.
    """
    if len(every) == 1:
        return every[0]
    together = {name: _together([one.get(name) for one in every], none) for name, none in NAMED_TOGETHER.items()}
    return {**every[0], **together, "sittings": every}


def _together(values: list[Any], none: str) -> Any:
    different = list(dict.fromkeys(values))
    return different[0] if len(different) == 1 else BETWEEN_SITTINGS.join(str(value or none) for value in different)


def _earlier(folder: RunFolder) -> list[dict[str, Any]]:
    """The environments of those that left something to go on with; none where the run begins."""
    begun = folder.checkpoint.exists() or any(folder.models.glob("[0-9]*"))
    before = read_json(folder.environment) if begun and folder.environment.exists() else None
    if not isinstance(before, dict):
        return []
    return list(before.get("sittings") or [before])

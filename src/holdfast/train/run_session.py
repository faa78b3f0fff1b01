"""The environments a run was made in: ``environment.json`` of a run that was resumed names every commit and GPU."""

from collections.abc import Iterator
from typing import Any

from holdfast.core.environment import BETWEEN_SESSIONS
from holdfast.core.run_folder import RunFolder
from holdfast.core.storage import read_json, write_json

COMBINED = {"commit": "unknown", "gpu": "no GPU"}
"""Entries of a run's environment that name the values of all its sessions, and the text that replaces None there."""

CONSEQUENCES = {
    "threads": "rounding will differ",
    "device": "rounding will differ",
    "gpu": "rounding will differ",
    "commit": "its record names both",
}


class RunSession:
    """One process's work on a run. A later session is recorded when ``record`` is called, so a refused one is not."""

    def __init__(self, folder: RunFolder, environment: dict[str, Any]) -> None:
        self._folder, self._environment = folder, environment
        self._earlier = _earlier_environments(folder)
        self._recorded = False
        if not self._earlier:
            self.record()

    def changes(self) -> Iterator[str]:
        """One line for each entry that differs from an earlier session; entries that an older file lacks are equal."""
        for name, consequence in CONSEQUENCES.items():
            now = self._environment[name]
            others = [one[name] for one in self._earlier if one.get(name) not in (None, now)]
            if others:
                yield f"started with {name} {others[0]}, resumed with {now}: {consequence}"

    def record(self) -> None:
        """Write ``environment.json``; later calls do nothing."""
        if not self._recorded:
            write_json(self._folder.environment, combined_environment([*self._earlier, self._environment]))
            self._recorded = True


def combined_environment(sessions: list[dict[str, Any]]) -> dict[str, Any]:
    """The environment of a run: the first session's, with all of them under ``sittings`` if there are several.

    Commit and GPU are "a + b" if sessions differ in them.
    """
    if len(sessions) == 1:
        return sessions[0]
    named = {name: _combined([one.get(name) for one in sessions], none) for name, none in COMBINED.items()}
    return {**sessions[0], **named, "sittings": sessions}


def _combined(values: list[Any], none: str) -> Any:
    different = list(dict.fromkeys(values))
    return different[0] if len(different) == 1 else BETWEEN_SESSIONS.join(str(value or none) for value in different)


def _earlier_environments(folder: RunFolder) -> list[dict[str, Any]]:
    """Environments of sessions that left a checkpoint or a model; empty for a new run."""
    begun = folder.checkpoint.exists() or any(folder.models.glob("[0-9]*"))
    before = read_json(folder.environment) if begun and folder.environment.exists() else None
    if not isinstance(before, dict):
        return []
    return list(before.get("sittings") or [before])

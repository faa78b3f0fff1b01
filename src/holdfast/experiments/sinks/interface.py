"""What a log sink is asked for, and what it is told of the run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.run_folder import RunFolder
from holdfast.storage import read_json, write_json


@dataclass(frozen=True)
class LoggedRun:
    """A run as a sink sees it; ``settings`` are the recipe's tables."""

    folder: RunFolder
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.folder.path.resolve().name

    @property
    def flat_settings(self) -> dict[str, Any]:
        """``{"train.lr": 0.1, ...}``; what the recipe leaves open is left out."""
        return dict(_flat(self.settings))

    def known_as(self, sink: str) -> str | None:
        """The id under which ``sink`` knows this run since an earlier sitting."""
        path = self.folder.sink(sink)
        return str(read_json(path)["id"]) if path.exists() else None

    def keep_id(self, sink: str, number: str) -> None:
        write_json(self.folder.sink(sink), {"id": number})


def _flat(tables: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        elif value is not None:
            yield before + key, value


class Sink(Protocol):
    """One place that numbers go to. All but ``require`` is called from one thread of its own and may fail or wait."""

    def __init__(self, run: LoggedRun) -> None: ...

    @staticmethod
    def require() -> None:
        """Raise the error that names what to install, if it is not."""

    def open(self) -> None:
        """Begin, or go on where an earlier sitting of the same run folder ended."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Numbers at an optimiser step, counted over the whole run."""

    def summary(self, values: Mapping[str, float], step: int) -> None:
        """What the run came to, once, behind its last step."""

    def close(self, finished: bool) -> None:
        """Send what is left; not ``finished`` when the run failed or was interrupted."""

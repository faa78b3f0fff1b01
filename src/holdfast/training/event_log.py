"""The log of a run as JSON lines."""

import json
import time
from pathlib import Path
from typing import Any

from holdfast.storage import write_text


class Journal:
    """Appends one JSON object per event to a file.

    When a task begins again at some step, lines from beyond that step are dropped: they tell of work that a kill undid.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] == "pulse":
            return
        if event["event"] == "begin":
            self._rewind(event["task"], event["step"])
        line = json.dumps({"time": round(time.time(), 3), **event}, allow_nan=False)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def _rewind(self, task: int, step: int) -> None:
        kept = []
        for event in read_events(self.path):
            at = (event.get("task", 0), event.get("step", 0))
            if at < (task, step) or (at == (task, step) and event["event"] == "epoch"):
                kept.append(json.dumps(event))
        text = "".join(line + "\n" for line in kept)
        if self.path.exists() and self.path.read_text(encoding="utf-8", errors="replace") != text:
            write_text(self.path, text)


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of a log; a line that a kill cut short is passed over, and no log at all has no events."""
    events = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "event" in event:
            events.append(event)
    return events

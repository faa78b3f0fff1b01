"""Progress events of training and of whole runs, and the log that keeps them as JSON lines.

``fit`` and everything above it report progress by calling a function with one event. Events are small frozen
dataclasses that can be pickled. ``to_json`` gives the form on disk.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar


@dataclass(frozen=True)
class Event:
    """One progress event; ``kind`` is the value of "event" in its JSON form."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        return {"event": self.kind, **asdict(self)}


OnEvent = Callable[[Event], None]


Watch = Callable[[str, Event], None]
"""Called with the name of a run and one of its events."""


def ignore_event(event: Event) -> None:
    """The default of ``on_event``: does nothing."""


@dataclass(frozen=True)
class TaskEvent(Event):
    """An event of one task; ``task`` counts from 1."""

    task: int


@dataclass(frozen=True)
class TaskBegan(TaskEvent):
    """Training of a task begins or is resumed.

    step: steps of the task done before, 0 unless it is resumed.
    steps: steps of the whole task.
    classes: number of classes seen up to this task.
    executor: how steps are executed.
    """

    kind = "begin"
    step: int
    steps: int
    classes: int
    executor: str


@dataclass(frozen=True)
class StepsDone(TaskEvent):
    """Sent a few times a second while a task trains; not written to the log.

    step: steps of the task done so far.
    """

    kind = "pulse"
    step: int


@dataclass(frozen=True)
class EpochEnded(TaskEvent):
    """An epoch of a task is done.

    epoch: number of the epoch, from 1.
    step: steps of the task done so far.
    lr: learning rate of the last step of the epoch.
    loss: sum of ``terms``.
    terms: mean of each weighted loss term over the epoch.
    seconds: duration of the epoch, or of its part since a resume.

    >>> from holdfast.train.events import EpochEnded
    >>> ended = EpochEnded(task=1, epoch=3, step=30, lr=0.1, loss=2.5, terms={"classification": 2.5}, seconds=0.4)
    >>> ended.terms["classification"], ended.kind
    (2.5, 'epoch')
    """

    kind = "epoch"
    epoch: int
    step: int
    lr: float
    loss: float
    terms: dict[str, float]
    seconds: float


@dataclass(frozen=True)
class TaskEnded(TaskEvent):
    """The model of a task is saved.

    classes: number of classes seen up to this task.
    """

    kind = "task"
    classes: int


@dataclass(frozen=True)
class FeaturesBegan(TaskEvent):
    """The features of a task's model are being computed for the evaluation."""

    kind = "features"


@dataclass(frozen=True)
class TasksPlanned(Event):
    """The first event of a run. steps: number of steps of each task."""

    kind = "plan"
    steps: Sequence[int]


@dataclass(frozen=True)
class EvaluationBegan(Event):
    """All models are trained; the compatibility matrix is being computed."""

    kind = "matrix"


@dataclass(frozen=True)
class RunEnded(Event):
    """A run is complete, or was found complete."""

    kind = "done"


@dataclass(frozen=True)
class TextEvent(Event):
    """A sentence for the user."""

    text: str


@dataclass(frozen=True)
class Note(TextEvent):
    """How the run is executed."""

    kind = "note"


@dataclass(frozen=True)
class RunWarning(TextEvent):
    """Something the user should know about the run, which continues."""

    kind = "warning"


@dataclass(frozen=True)
class RunFailed(TextEvent):
    """A run of a sweep failed; ``text`` is the error in one line."""

    kind = "failed"


class EventLog:
    """Appends events to a file, one JSON object per line.

    When a task begins again at some step, lines from after that step are removed: a kill undid that work.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepsDone):
            return
        if isinstance(event, TaskBegan):
            self._remove_after(event.task, event.step)
        line = json.dumps({"time": round(time.time(), 3), **event.to_json()}, allow_nan=False)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def _remove_after(self, task: int, step: int) -> None:
        from holdfast.core.storage import write_text  # imports numpy, which the command line's help does without

        lines = []
        for event in read_events(self.path):
            at = (event.get("task", 0), event.get("step", 0))
            if at < (task, step) or (at == (task, step) and event["event"] == EpochEnded.kind):
                lines.append(json.dumps(event) + "\n")
        text = "".join(lines)
        if self.path.exists() and self.path.read_text(encoding="utf-8", errors="replace") != text:
            write_text(self.path, text)


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of a log in their JSON form, each with the "time" it was written.

    A line cut short by a kill is skipped. A missing file has no events.
    """
    events = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "event" in event:
            events.append(event)
    return events

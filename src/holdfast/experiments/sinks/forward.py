"""Send a run's events to its log sinks, one thread per sink: a slow or failing server does not affect training."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from holdfast.errors import unknown_name
from holdfast.events import EpochEnded, Event
from holdfast.experiments.sinks.trackers import SINKS, LoggedRun, Sink

FINISHED_SECONDS, INTERRUPTED_SECONDS = 30.0, 10.0
"""How long a finished or an interrupted run waits for a sink to send what is left."""


def check_sinks(names: Sequence[str]) -> None:
    """Refuse an unknown name, and a sink with a package that is not installed."""
    for name in names:
        if name not in SINKS:
            raise unknown_name("log sink", name, SINKS)
        SINKS[name].require()


class _Forward:
    """One sink behind a queue. ``failure`` says why the sink was switched off, or is None."""

    def __init__(self, name: str, sink: Sink) -> None:
        self.name = name
        self.failure: str | None = None
        self._sink = sink
        self._calls: queue.SimpleQueue[Callable[[Sink], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"holdfast-{name}", daemon=True)
        self._thread.start()

    def __call__(self, call: Callable[[Sink], None]) -> None:
        if self.failure is None:
            self._calls.put(call)

    def close(self, finished: bool, seconds: float) -> None:
        self._calls.put(lambda sink: sink.close(finished))
        self._calls.put(None)
        self._thread.join(seconds)
        if self._thread.is_alive():
            self.failure = f"did not accept everything within {seconds:g} seconds"

    def _work(self) -> None:
        try:
            self._sink.open()
            while (call := self._calls.get()) is not None:
                call(self._sink)
        except BaseException as error:  # also SystemExit, which some libraries raise: it ends only this thread
            reason = str(error).strip().splitlines()
            self.failure = f"{type(error).__name__}: {reason[0]}" if reason else type(error).__name__


class Sinks:
    """The sinks of one run. Called with every event; sends the losses and learning rate of each epoch."""

    def __init__(
        self, names: Sequence[str], run: LoggedRun, task_steps: Sequence[int], warn: Callable[[str], None]
    ) -> None:
        """task_steps: the steps of each task, so that steps are counted over the whole run even if it is resumed."""
        self._before = [0, *accumulate(task_steps)]
        self._warn = warn
        self._warned: set[str] = set()
        self._forwards = [_Forward(name, SINKS[name](run)) for name in dict.fromkeys(names)]

    def __call__(self, event: Event) -> None:
        if isinstance(event, EpochEnded):
            values = {f"loss/{name}": value for name, value in event.terms.items()}
            values |= {"lr": event.lr, "task": float(event.task)}
            at = self._before[event.task - 1] + event.step
            self._each(lambda sink: sink.scalars(values, at))

    def summary(self, protocols: Mapping[str, Mapping[str, Any]]) -> None:
        """Send AC, AA and ACA under each protocol, in [0, 1]; undefined ones are left out."""
        values = {
            f"{protocol}/{name}": float(scores[name])
            for protocol, scores in protocols.items()
            for name in ("AC", "AA", "ACA")
            if scores[name] is not None
        }
        self._each(lambda sink: sink.summary(values, self._before[-1]))

    def close(self, finished: bool) -> None:
        seconds = FINISHED_SECONDS if finished else INTERRUPTED_SECONDS
        for forward in self._forwards:
            forward.close(finished, seconds)
        self._report()

    def _each(self, call: Callable[[Sink], None]) -> None:
        for forward in self._forwards:
            forward(call)
        self._report()

    def _report(self) -> None:
        """Warn once, from the caller's thread, of each sink that was switched off."""
        for forward in self._forwards:
            if forward.failure is not None and forward.name not in self._warned:
                self._warned.add(forward.name)
                self._warn(f"{forward.name} is switched off for this run, which continues: {forward.failure}")


@contextlib.contextmanager
def logging_to(
    names: Sequence[str], run: LoggedRun, task_steps: Sequence[int], *, warn: Callable[[str], None]
) -> Iterator[Sinks]:
    """Open the named sinks for the block; they are closed as finished only if the block raises nothing."""
    sinks = Sinks(names, run, task_steps, warn)
    finished = False
    try:
        yield sinks
        finished = True
    finally:
        sinks.close(finished)

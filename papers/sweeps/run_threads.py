"""Threads that carry out runs at the same time on one device, each on its own CUDA stream."""

import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from holdfast.core.errors import HoldfastError, first_line
from holdfast.core.process_settings import SHORT_TURNS
from holdfast.core.run_folder import FolderRefusedError
from holdfast.core.storage import write_text
from holdfast.train.cuda_streams import PER_PRIORITY
from holdfast.train.engine import Cancellation, Cancelled, RunControl
from holdfast.train.events import OnEvent, RunFailed

Outcome = dict[str, Any] | HoldfastError
"""The result of a finished run, or why it failed."""

INTERRUPTED = "interrupted"
"""The text of the error of a stopped run. A stopped run has not failed: the same command resumes it."""


GENERATOR_ERROR = "Offset increment outside graph capture"
"""In torch's error when a run draws random numbers on the GPU while another one captures a CUDA graph."""
SHARED_GENERATOR = (
    "; runs that draw random numbers (dropout) share a generator on a GPU: take as many --processes as --parallel"
)


class RunThreads:
    """A thread pool for runs. Leaving its block waits until the submitted runs have ended.

    Each thread keeps one CUDA stream, and with it the memory of its graphs, from run to run.

    device: where the runs train. On a GPU there are at most ``PER_PRIORITY`` threads, one per distinct stream.
    count: number of threads, so of runs at the same time.
    cancel: stops the runs between two steps; no further run starts.
    """

    def __init__(self, device: torch.device, count: int, cancel: Cancellation) -> None:
        self._cancel = cancel
        streams = []
        if device.type == "cuda":
            streams = distinct_streams(lambda: torch.cuda.Stream(device), min(count, PER_PRIORITY))
        self._local = local = threading.local()
        torch_threads = torch.get_num_threads()

        def begin_thread() -> None:
            local.stream = streams.pop() if streams else None
            # Otherwise a thread that begins while another one trains a small step (``threads_of_step``) has its number.
            torch.set_num_threads(torch_threads)

        self._pool = ThreadPoolExecutor(max_workers=len(streams) or count, initializer=begin_thread)

    def __enter__(self) -> "RunThreads":
        SHORT_TURNS.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        try:
            self._pool.shutdown(cancel_futures=exception[0] is not None)
        finally:
            SHORT_TURNS.__exit__()

    def submit(
        self,
        work: Callable[[RunControl], dict[str, Any]],
        *,
        on_event: OnEvent,
        error_file: Path,
        ended: Callable[[], None] = lambda: None,
    ) -> Future[Outcome]:
        """Queue one run. An exception in it does not affect other runs.

        work: the run; it is called with its control.
        on_event: called with each event, and with ``RunFailed`` after an exception.
        error_file: where the traceback of an exception is written, unless the run's folder was refused.
        ended: called when the run ends for any reason, if it was started.
        """
        return self._pool.submit(self._run, work, on_event, error_file, ended)

    def results(self, futures: Mapping[str, Future[Outcome]]) -> dict[str, Outcome]:
        """The outcome of each submitted run, by name, once all have ended. Ctrl-C stops the runs."""
        try:
            return {name: future.result() for name, future in futures.items()}
        except KeyboardInterrupt:
            self._cancel.cancel()  # each run saves a checkpoint and ends
            raise

    def _run(
        self,
        work: Callable[[RunControl], dict[str, Any]],
        on_event: OnEvent,
        error_file: Path,
        ended: Callable[[], None],
    ) -> Outcome:
        if self._cancel.requested:
            return HoldfastError(INTERRUPTED)

        try:
            with torch.cuda.stream(self._local.stream):  # does nothing for None
                return work(RunControl(on_event, self._cancel))
        except Cancelled:
            return HoldfastError(INTERRUPTED)
        except Exception as error:  # of any kind: the other runs continue
            if not isinstance(error, FolderRefusedError):
                with suppress(OSError):  # such as a full disk, which may be what ended the run
                    write_text(error_file, traceback.format_exc())
            failure = without_traceback(error)
            on_event(RunFailed(str(failure)))
            return failure
        finally:
            ended()


def distinct_streams(make: Callable[[], torch.cuda.Stream], wanted: int) -> list[torch.cuda.Stream]:
    """Up to ``wanted`` different streams; torch has a small pool and returns the same ones again after that.

    Two runs must not share a stream: work of one run would be recorded into the CUDA graph that the other captures.
    """
    found: dict[int, torch.cuda.Stream] = {}
    while len(found) < wanted:
        stream = make()
        if stream.cuda_stream in found:
            break
        found[stream.cuda_stream] = stream
    return list(found.values())


def without_traceback(error: Exception) -> HoldfastError:
    """The error as one line, without its traceback.

    The frames of a traceback hold the run's networks, graphs and streams. A sweep keeps its failures until the last
    run has ended, so that memory would stay allocated.
    """
    reason = first_line(error)
    hint = SHARED_GENERATOR if GENERATOR_ERROR in reason else ""
    failure = error if isinstance(error, HoldfastError) else HoldfastError(f"{type(error).__name__}: {reason}{hint}")
    for each in (error, failure):
        each.__traceback__ = each.__context__ = each.__cause__ = None
    return failure

"""Jobs of the study in this process or in several."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch

from papers.quarters.study_data import NETWORK, PHOTOGRAPHS, StudyData, photographs, pictures, texts

LITE2_FEATURES = "photographs under lite2"
"""The data of the network that replaces lite0 in the study of heads."""

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Workplace:
    """Where jobs read and write, and what they compute on.

    features: folder with the files of features and of photographs.
    results: folder with a JSON file for each run.
    out: where models go; a training that is found there is not repeated.
    device: of training and of networks.
    threads: CPU threads of each process.
    """

    features: Path
    results: Path
    out: Path
    device: str = "cpu"
    threads: int = 1

    def data(self, study: str) -> StudyData:
        return _read(self.features, study)


@cache
def _read(features: Path, study: str) -> StudyData:
    """Read once in each process."""
    if study == NETWORK:
        return pictures(features)
    if study == LITE2_FEATURES:
        return photographs(features, "lite2")
    return photographs(features) if study == PHOTOGRAPHS else texts(features)


def results_of(
    work: Callable[[Workplace, Job], Result], jobs: Sequence[Job], place: Workplace, processes: int
) -> Iterator[Result]:
    """What ``work`` returns for each job, as soon as it is done.

    processes: 1 runs the jobs here, one after the other, up to the first error. Several processes finish all jobs; then
        the first error is raised.
    """
    if processes == 1 or len(jobs) < 2:
        torch.set_num_threads(place.threads)
        yield from (work(place, job) for job in jobs)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, spawn, initializer=torch.set_num_threads, initargs=(place.threads,)) as pool:
        started = [pool.submit(work, place, job) for job in jobs]
        errors = []
        try:
            for done in as_completed(started):
                if error := done.exception():
                    errors.append(error)
                else:
                    yield done.result()
        finally:
            pool.shutdown(cancel_futures=True)
    if errors:
        raise errors[0]

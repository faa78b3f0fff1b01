"""How much of a call's time the host of a virtual machine took away: tells pauses of the machine from the program's.

Linux counts for each core how long a virtual machine wanted to run and was not let ("steal" in /proc/stat), in steps of
some 10 ms. A process of its own samples it, because threads of this one may wait for each other.
"""

import json
import subprocess
import sys
from types import TracebackType
from typing import Self

import numpy as np

EVERY = 0.005
"""Seconds between two samples."""
SAMPLE = """
import json, os, select, sys, time
samples, tick = [], os.sysconf("SC_CLK_TCK")

def sample():
    with open("/proc/stat") as file:
        cores = [line.split() for line in file if line.startswith("cpu") and line[3].isdigit()]
    samples.append([time.perf_counter(), *(int(core[8]) / tick for core in cores)])

sample()
print("ready", flush=True)
while not select.select([sys.stdin], [], [], float(sys.argv[1]))[0]:  # until stdin is closed
    sample()
sample()
print(json.dumps(samples))
"""


class StolenTime:
    """Samples stolen time while the block runs. ``within`` answers after the block; 0 where Linux does not count it."""

    def __init__(self) -> None:
        self._samples = np.zeros((1, 2))

    def __enter__(self) -> Self:
        words = [sys.executable, "-c", SAMPLE, str(EVERY)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it samples, or it has ended because there is no /proc/stat
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        found, _ = self._process.communicate()
        if found:
            self._samples = np.array(json.loads(found))

    def within(self, start: float, end: float) -> float:
        """Seconds stolen from one core between two times of ``time.perf_counter``, from the one that lost most."""
        times, counts = self._samples[:, 0], self._samples[:, 1:]
        # The samples around the interval: a step that is counted late still belongs to it.
        first = max(0, int(np.searchsorted(times, start, side="right")) - 1)
        last = min(len(times) - 1, int(np.searchsorted(times, end, side="left")) + 1)
        return float(min(end - start, (counts[last] - counts[first]).max()))

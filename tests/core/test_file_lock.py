"""The lock file: one holder at a time, freed by the end of its process."""

import subprocess
import sys
import threading

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.core.file_lock import acquire_lock, locked

HOLD = """
import sys, time
from pathlib import Path
from holdfast.core.file_lock import acquire_lock
lock = acquire_lock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def test_a_taken_lock_is_refused_with_the_given_error(tmp_path):
    busy = HoldfastError("in use")
    with locked(tmp_path / "lock"), pytest.raises(HoldfastError, match="in use"):
        acquire_lock(tmp_path / "lock", busy=busy)
    acquire_lock(tmp_path / "lock", busy=busy).release()


def test_the_lock_is_released_after_an_error(tmp_path):
    with pytest.raises(ValueError), locked(tmp_path / "lock"):
        raise ValueError
    acquire_lock(tmp_path / "lock", busy=HoldfastError("in use")).release()


def test_threads_wait_for_each_other(tmp_path):
    inside, most, turns = [], [], []

    def take():
        for _ in range(10):
            with locked(tmp_path / "lock"):
                inside.append(1)
                most.append(len(inside))
                inside.pop()
                turns.append(1)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert (len(turns), max(most)) == (40, 1)


def test_a_killed_process_releases_its_lock(tmp_path):
    path, busy = tmp_path / "lock", HoldfastError("in use")
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().strip() == "held"
        with pytest.raises(HoldfastError, match="in use"):
            acquire_lock(path, busy=busy)
    finally:
        process.kill()
        process.wait(timeout=60)
    acquire_lock(path, busy=busy).release()


COPY = """
import ctypes, os
if ctypes.CDLL(None).fork() == 0:  # as subprocess does it, without the steps that os.fork takes for the lock
    time.sleep(0.7)
    os._exit(0)
"""


def test_a_copy_of_a_killed_process_is_waited_for(tmp_path):
    """A process that starts another one is copied first, and the copy holds the lock for a moment."""
    path = tmp_path / "lock"
    words = [sys.executable, "-c", HOLD.replace("print(", f"{COPY}print("), str(path)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().strip() == "held"
    finally:
        process.kill()
        process.wait(timeout=60)
    acquire_lock(path, busy=HoldfastError("in use")).release()

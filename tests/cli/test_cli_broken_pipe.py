"""``holdfast ... | head -1``: a verb whose output is no longer read ends quietly, with its own exit status."""

import subprocess
import sys

import numpy as np
import pytest


@pytest.fixture
def files(tmp_path):
    old = np.random.default_rng(0).standard_normal((60, 8))
    names = [str(number) for number in range(60)]
    for name, vectors in (("old", old), ("new", -old)):
        np.savez(tmp_path / f"{name}.npz", features=vectors, labels=np.arange(60) % 6, ids=names)
    old, new = (str(tmp_path / name) for name in ("old.npz", "new.npz"))
    return ["--gallery", old, "--queries-old", old, "--queries-new", new]


def closed(words):
    """Exit status and stderr of a process whose output nobody reads."""
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    said = process.stderr.read()
    return process.wait(), said


@pytest.mark.parametrize("verb", ["check", "ls"])  # with a verdict as its status; with a table of rich
def test_a_closed_pipe_changes_neither_status_nor_errors(files, verb, command):
    words = ["check", *files] if verb == "check" else ["ls", "methods"]
    read = command(*words)
    assert read.stdout
    assert read.returncode == (1 if verb == "check" else 0)
    assert closed(words) == (read.returncode, read.stderr)

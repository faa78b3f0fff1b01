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


def run(words, *, closed):
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if closed:
        process.stdout.close()
    said = process.stderr.read()
    text = "" if closed else process.stdout.read()
    return process.wait(), said, text


@pytest.mark.parametrize("verb", ["check", "ls"])  # with a verdict as its status; with a table of rich
def test_a_closed_pipe_changes_neither_status_nor_errors(files, verb):
    words = ["check", *files] if verb == "check" else ["ls", "methods"]
    status, said, text = run(words, closed=False)
    assert text
    assert status in (0, 1)
    assert run(words, closed=True) == (status, said, "")

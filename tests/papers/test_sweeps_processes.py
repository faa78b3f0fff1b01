"""The same runs over two processes: what they find, what a crash takes along, and how they stop."""

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.engine import Cancellation
from holdfast.train.experiments.assemble import SharedData
from papers.sweeps.gpu_memory import how_many_fit
from papers.sweeps.plan import plan
from papers.sweeps.sweep import SweepOptions, run_all

QUICK = ["train.epochs=1"]
FATAL = """
import multiprocessing
import os

from holdfast.train.encoders.small_networks import small


def fatal():
    if multiprocessing.parent_process() is not None:
        os._exit(9)
    return small()
"""


def carried_out(runs, folder, processes, **more):
    return run_all(runs, folder, SweepOptions(torch.device("cpu"), 2, processes), shared=SharedData(), **more)


@pytest.mark.slow
def test_processes_find_what_one_finds_and_a_crash_takes_its_own_run_along(tiny_recipe, tmp_path, monkeypatch):
    (tmp_path / "fatal_network.py").write_text(FATAL)
    monkeypatch.syspath_prepend(str(tmp_path))
    fatal = plan([str(tiny_recipe)], seeds=[9], settings=[*QUICK, "backbone.name=fatal_network:fatal"])
    good = plan([str(tiny_recipe)], methods=["er", "simplex_hoc"], tasks=[2], settings=QUICK)
    events, ended = [], []
    found = carried_out(
        [*fatal, *good], tmp_path / "two", 2,
        watch=lambda name, event: events.append((name, event.kind)), ended=ended.append,
    )  # fmt: skip
    assert list(found) == [run.name for run in (*fatal, *good)]
    assert str(found[fatal[0].name]) == "its process ended with exit code 9"
    assert (fatal[0].name, "failed") in events
    assert sorted(ended) == sorted(found)
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // 2))  # as each of the two had
    try:
        alone = carried_out(good, tmp_path / "one", 1)
    finally:
        torch.set_num_threads(threads)
    for run in good:
        assert (run.name, "done") in events
        assert found[run.name]["protocols"] == alone[run.name]["protocols"]


@pytest.mark.slow
def test_a_sweep_that_is_stopped_begins_nothing_more_and_goes_on_later(tiny_recipe, tmp_path):
    runs = plan([str(tiny_recipe)], seeds=[0, 1, 2], tasks=[2], settings=QUICK)
    cancel = Cancellation()

    def watch(name, event):
        if event.kind == "task":
            cancel.cancel()

    first = carried_out(runs, tmp_path, 2, watch=watch, cancel=cancel)
    assert isinstance(first[runs[2].name], HoldfastError)
    assert str(first[runs[2].name]) == "interrupted"
    assert not (tmp_path / runs[2].name).exists()
    again = carried_out(runs, tmp_path, 2)
    assert all(isinstance(metrics, dict) for metrics in again.values())


@pytest.mark.parametrize(("beside", "fit"), [(0, 9), (5 * 10**9, 4), (9 * 10**9, 1), (20 * 10**9, 0)])
def test_what_further_processes_keep_is_not_given_to_runs(beside, fit, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10 * 10**9, 80 * 10**9))
    assert how_many_fit(16, 10**9, torch.device("cuda"), beside=beside) == fit

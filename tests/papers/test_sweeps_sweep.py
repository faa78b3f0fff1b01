"""Many runs: planned, carried out side by side, one failure at a time."""

import itertools
import multiprocessing
import sys
from types import SimpleNamespace

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.core.storage import read_json
from holdfast.train.experiments.assemble import SharedData
from papers.sweeps.plan import plan
from papers.sweeps.run_threads import distinct_streams
from papers.sweeps.sweep import NO_MORE, SweepOptions, _next_message, run_all

QUICK = ["train.epochs=1"]


def carried_out(runs, folder, parallel=2, watch=lambda name, event: None, shared=None):
    shared = shared or SharedData()
    return run_all(runs, folder, SweepOptions(torch.device("cpu"), parallel), shared=shared, watch=watch)


def test_every_combination_has_a_name_and_a_command(tiny_recipe):
    runs = plan([str(tiny_recipe)], methods=["er", "cvs"], tasks=[2, 3], seeds=[0, 1], settings=QUICK)
    assert len(runs) == 8
    first = runs[0]
    assert first.name.endswith("-er-t2-s0")
    assert first.command == (
        f"holdfast run {tiny_recipe} --set method.name=er --set scenario.tasks=2 --set seed=0 --set train.epochs=1"
    )
    assert first.recipe["scenario"]["tasks"] == 2
    assert len({run.name for run in runs}) == 8


def test_a_bad_run_is_refused_before_any_starts(tiny_recipe):
    with pytest.raises(HoldfastError, match="known: advbct"):
        plan([str(tiny_recipe)], methods=["er", "nonesuch"])
    with pytest.raises(HoldfastError, match="would be called"):
        plan([str(tiny_recipe)], seeds=[1, 1])
    with pytest.raises(HoldfastError, match=r"tasks and the setting scenario\.tasks name the same thing; give one"):
        plan([str(tiny_recipe)], tasks=[5], settings=["scenario.tasks=3"])


def test_side_by_side_is_one_by_one(tiny_recipe, tmp_path):
    runs = plan([str(tiny_recipe)], methods=["er", "simplex_hoc", "advbct", "fan"], tasks=[5], settings=QUICK)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns as often as they can, so that shared random numbers would show
    try:
        together = carried_out(runs, tmp_path / "together", 4)
    finally:
        sys.setswitchinterval(interval)
    alone = carried_out(runs, tmp_path / "alone", 1)
    assert {name: found["protocols"] for name, found in together.items()} == {
        name: found["protocols"] for name, found in alone.items()
    }
    for run in runs:
        for file in sorted((tmp_path / "alone" / run.name / "models").glob("*/*.safetensors")):
            other = tmp_path / "together" / file.relative_to(tmp_path / "alone")
            assert file.read_bytes() == other.read_bytes(), file


def test_one_failure_leaves_the_others_alone(tiny_recipe, tmp_path):
    good = plan([str(tiny_recipe)], seeds=[0, 1], settings=QUICK)
    bad = plan([str(tiny_recipe)], seeds=[7], settings=[*QUICK, "train.lr=1e30"])
    events = []
    found = carried_out([good[0], *bad, good[1]], tmp_path, watch=lambda name, event: events.append((name, event)))
    assert isinstance(found[bad[0].name], HoldfastError)
    assert "NaN" in str(found[bad[0].name])
    assert any(name == bad[0].name and event.kind == "failed" for name, event in events)
    for run in good:
        assert found[run.name] == read_json(tmp_path / run.name / "metrics.json")


def test_finished_runs_are_read_and_not_repeated(tiny_recipe, tmp_path):
    runs = plan([str(tiny_recipe)], seeds=[0, 1], settings=QUICK)
    first = carried_out(runs[:1], tmp_path)
    trained = tmp_path / runs[0].name / "models" / "03" / "model.safetensors"
    before = trained.stat().st_mtime_ns
    events = []
    found = carried_out(runs, tmp_path, watch=lambda name, event: events.append((name, event.kind)))
    assert found[runs[0].name] == first[runs[0].name]
    assert trained.stat().st_mtime_ns == before
    assert [event for name, event in events if name == runs[0].name] == ["done"]


def test_the_data_is_read_once(tiny_recipe, tmp_path, monkeypatch):
    from holdfast.train.experiments import assemble

    calls = []
    real = assemble.load_split
    monkeypatch.setattr(assemble, "load_split", lambda *a, **k: calls.append(a) or real(*a, **k))
    carried_out(plan([str(tiny_recipe)], seeds=[0, 1, 2], settings=QUICK), tmp_path)
    assert len(calls) == 3  # train, query, gallery


def test_a_failed_run_leaves_its_traceback(tiny_recipe, tmp_path):
    (bad,) = plan([str(tiny_recipe)], settings=[*QUICK, "train.lr=1e30"])
    carried_out([bad], tmp_path)
    assert "Traceback" in (tmp_path / bad.name / "error.txt").read_text()


def test_a_run_that_failed_at_once_can_be_asked_for_again(tiny_recipe, tmp_path):
    """Before its recipe is written there is only what went wrong in its folder."""

    class Absent(SharedData):
        def open_set(self, recipe):
            raise HoldfastError("no data there")

    (run,) = plan([str(tiny_recipe)], settings=QUICK)
    error = tmp_path / run.name / "error.txt"
    assert "no data there" in str(carried_out([run], tmp_path, shared=Absent())[run.name])
    assert error.exists()
    assert isinstance(carried_out([run], tmp_path)[run.name], dict)
    assert not error.exists()


@pytest.mark.parametrize(("wanted", "given"), [(2, 2), (3, 3), (40, 3)])
def test_no_two_threads_get_the_same_stream(wanted, given):
    """torch has a few streams and hands them out in turns."""
    few = itertools.cycle([SimpleNamespace(cuda_stream=number) for number in (7, 8, 9)])
    found = distinct_streams(lambda: next(few), wanted)
    assert len({stream.cuda_stream for stream in found}) == len(found) == given


def test_a_worker_ends_if_its_parent_was_killed_with_unread_events():
    """The connection is then reset, which is another error than its end."""
    here, there = multiprocessing.Pipe()
    here.send("unread")
    there.close()
    assert _next_message(here) == NO_MORE

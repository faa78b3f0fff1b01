"""A run that failed is over: what it trained is gone while the others go on."""

import gc
import sys
import threading
import weakref
from pathlib import Path

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder
from holdfast.train.engine import Cancellation
from holdfast.train.experiments.assemble import SharedData
from papers.sweeps import run_threads
from papers.sweeps.plan import plan
from papers.sweeps.run_threads import without_traceback
from papers.sweeps.sweep import SweepOptions, run_all

CPU = torch.device("cpu")
DIVERGES = ["train.epochs=1", "train.lr=1e30"]


@pytest.fixture
def trained(monkeypatch):
    """Weak references to every step and encoder that training began with."""
    fitting = sys.modules["holdfast.train.engine.fit"]  # of its package's two names fit is the function
    seen, real = [], fitting.prepare_step

    def prepare_step(encoder, *arguments, **options):
        step, state = real(encoder, *arguments, **options)
        seen.extend([weakref.ref(step), weakref.ref(encoder)])
        return step, state

    monkeypatch.setattr(fitting, "prepare_step", prepare_step)
    return seen


def still_there(trained):
    gc.collect()
    return [type(one()).__name__ for one in trained if one() is not None]


def test_a_failed_run_of_a_sweep_is_let_go(tiny_recipe, tmp_path, trained):
    runs = plan([str(tiny_recipe)], seeds=[0, 1], settings=DIVERGES)
    found = run_all(runs, tmp_path, SweepOptions(CPU, 2), shared=SharedData())
    assert len(trained) >= 4
    assert still_there(trained) == []
    for run in runs:
        assert "NaN" in str(found[run.name])
        assert "in fit\n" in (tmp_path / run.name / "error.txt").read_text()  # written before it was dropped


def test_a_failed_run_has_an_outcome_though_its_error_cannot_be_written(tiny_recipe, tmp_path, monkeypatch):
    def no_space(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_threads, "write_text", no_space)
    runs = plan([str(tiny_recipe)], seeds=[0], settings=DIVERGES)
    found = run_all(runs, tmp_path, SweepOptions(CPU, 2), shared=SharedData())
    assert "NaN" in str(found[runs[0].name])


def test_runs_have_the_usual_number_of_threads_beside_a_small_step(two_threads):
    """``threads_of_step`` sets torch's number of threads, which a thread that begins meanwhile would take over."""
    begun, end = threading.Event(), threading.Event()

    def small_step():
        torch.set_num_threads(1)
        begun.set()
        end.wait(10)
        torch.set_num_threads(2)

    def work(control):
        torch.ones(10**6).sum()
        return {"threads": torch.get_num_threads()}

    with run_threads.RunThreads(CPU, 1, Cancellation()) as pool:
        thread = threading.Thread(target=small_step)
        thread.start()
        begun.wait(10)
        outcome = pool.submit(work, on_event=lambda event: None, error_file=Path("unused")).result()
        end.set()
        thread.join()
    assert outcome == {"threads": 2}


def test_a_defect_of_ours_is_let_go_too(tiny_recipe, tmp_path, trained):
    def stumble(name, event):
        if event.kind == "epoch":
            try:
                raise KeyError("why")
            except KeyError as why:
                raise RuntimeError("stumbled\nover two lines") from why

    runs = plan([str(tiny_recipe)], settings=["train.epochs=1"])
    found = run_all(runs, tmp_path, SweepOptions(CPU), shared=SharedData(), watch=stumble)
    assert still_there(trained) == []
    assert str(found[runs[0].name]) == "RuntimeError: stumbled"
    text = (tmp_path / runs[0].name / "error.txt").read_text()
    assert "KeyError: 'why'" in text
    assert "over two lines" in text


def test_the_class_and_the_text_stay():
    class RefusedError(HoldfastError):
        pass

    def fails(held):
        try:
            raise ValueError(held)
        except ValueError as inner:
            raise RefusedError("a line") from inner

    encoder = Encoder(torch.nn.Identity(), None, feature_dim=2)
    gone = weakref.ref(encoder)
    try:
        fails(encoder)
    except HoldfastError as error:
        kept = without_traceback(error)
    del encoder
    assert gone() is None  # at once: not even a cycle is left
    assert type(kept) is RefusedError
    assert str(kept) == "a line"
    assert (kept.__traceback__, kept.__context__, kept.__cause__) == (None, None, None)


def test_an_error_of_the_shared_generator_says_what_to_do():
    error = RuntimeError("Offset increment outside graph capture encountered unexpectedly.")
    assert "as many --processes as --parallel" in str(without_traceback(error))
    assert "--processes" not in str(without_traceback(RuntimeError("CUDA out of memory")))

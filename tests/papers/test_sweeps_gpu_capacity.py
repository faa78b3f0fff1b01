"""What is refused, foretold and measured of a GPU's memory; the GPU is made up."""

import pytest
import torch
from typer.testing import CliRunner

from holdfast.core.errors import HoldfastError
from holdfast.train.data.device_images import DeviceImages
from holdfast.train.events import StepsDone
from holdfast.train.experiments.assemble import SharedData
from papers.stationary import PAGES, ResultPage, StudyRun
from papers.stationary.__main__ import app as study
from papers.sweeps import gpu_memory
from papers.sweeps.__main__ import app as sweeps
from papers.sweeps.gpu_capacity import Capacity, largest_of_each_kind, sweep_capacity
from papers.sweeps.plan import plan

GB = 10**9
CUDA = torch.device("cuda")


@pytest.fixture
def gpu(monkeypatch):
    """A card of 10 GB of which 8 are free; images stay where the CPU can see them."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (8 * GB, 10 * GB))
    monkeypatch.setattr(SharedData, "images", lambda self, train, device, placement="auto": DeviceImages(train))

    def takes(answer):
        def bytes_per_run(experiment, images, test_batch=None, *, compact=False):
            found = answer(experiment) if callable(answer) else answer
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(gpu_memory, "bytes_per_run", bytes_per_run)

    return takes


def fits(runs, wanted=4, processes=1, shared=None):
    return sweep_capacity(runs, shared or SharedData(), CUDA, wanted, processes, False)


def test_as_many_as_fit_and_what_is_then_in_use(gpu, tiny_recipe, capsys):
    gpu(3 * GB)
    assert fits(plan([str(tiny_recipe)], seeds=[0, 1, 2, 3])) == Capacity(2, 2 * GB + 2 * 3 * GB)
    assert capsys.readouterr().err == "2 runs at once, about 3.00 GB of device memory each; 2 wait\n"


def test_running_out_of_memory_while_trying_is_an_answer(gpu, tiny_recipe):
    runs = plan([str(tiny_recipe)], methods=["er", "simplex_hoc"])
    gpu(lambda experiment: torch.OutOfMemoryError("CUDA out of memory") if experiment.make_method().num_slots else GB)
    with pytest.raises(HoldfastError, match=r"simplex_hoc-t3-s0: a single run took more than the 8\.00 of 10\.00 GB"):
        fits(runs)


def test_of_each_kind_the_one_with_most_tasks_is_tried(tiny_recipe):
    runs = plan([str(tiny_recipe)], methods=["er", "simplex_hoc"], tasks=[2, 5, 3], seeds=[0, 1])
    tried = largest_of_each_kind(runs)
    assert [(run.recipe.method, run.recipe["scenario"]["tasks"]) for run in tried] == [("er", 5), ("simplex_hoc", 5)]
    smaller = plan([str(tiny_recipe)], methods=["er"], tasks=[2], settings=["evaluation.batch_size=4"])
    assert len(largest_of_each_kind([*runs, *smaller])) == 3
    for setting in ("evaluation.compact=true", "scenario.buffer_per_class=9"):
        assert len(largest_of_each_kind([*runs, *plan([str(tiny_recipe)], methods=["er"], settings=[setting])])) == 3
    protocols = plan([str(tiny_recipe)], methods=["er"], tasks=[2], settings=['evaluation.protocols=["template"]'])
    assert len(largest_of_each_kind([*runs, *protocols])) == 2


@pytest.fixture
def pretended(gpu, monkeypatch):
    """Commands believe in the card, and their runs are over after one event."""

    def run_all(runs, *arguments, watch, **options):
        watch(runs[0].name, StepsDone(1, 1))
        return {}

    monkeypatch.setattr("papers.sweeps.sweep.run_all", run_all)
    monkeypatch.setattr("papers.stationary.execute.run_all", run_all)
    # Last: a module that is first imported after this would keep the replaced function.
    monkeypatch.setattr("holdfast.train.devices.resolve_device", lambda name="auto": CUDA)
    return gpu


@pytest.fixture
def commands(tiny_recipe, tmp_path, monkeypatch):
    runs = [StudyRun("paper", str(tiny_recipe), "simplex_hoc", 3, family="tiny")]
    nothing = ResultPage("tiny", lambda: runs, lambda results, selection: [], lambda results, selection: [])
    monkeypatch.setitem(PAGES, "tiny", nothing)
    out = ["--out", str(tmp_path / "runs")]
    return {
        "sweep": [str(tiny_recipe), *out],
        "reproduce": ["reproduce", "tiny", "--results", str(tmp_path / "results"), *out],
    }


@pytest.mark.parametrize("name", ["sweep", "reproduce"])
def test_commands_start_nothing_that_does_not_fit(pretended, commands, name, tmp_path):
    pretended(9 * GB)
    result = CliRunner().invoke(study if name == "reproduce" else sweeps, commands[name])
    assert isinstance(result.exception, HoldfastError)
    assert "a single run takes about 9.00 GB" in str(result.exception)
    assert not (tmp_path / "runs").exists()

"""What reaches a sink, and that nothing a sink does reaches the training."""

import subprocess
import sys
import threading
import time

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.events import StepsDone, TaskBegan
from holdfast.train.experiments.sinks import SINKS, check_sinks, logging_to


class Recorded:
    """A sink that keeps what it is told, and fails where it is asked to."""

    def __init__(self, run, fails_at="nowhere"):
        self.calls = []
        self.run = run
        self.fails_at = fails_at
        self.threads = set()
        made.append(self)

    @staticmethod
    def require():
        pass

    def _told(self, name, *values):
        self.threads.add(threading.get_ident())
        if name == self.fails_at:
            raise ConnectionError("no route to host\nand a second line")
        self.calls.append((name, *values))

    def open(self):
        self._told("open")

    def scalars(self, values, step):
        self._told("scalars", values, step)

    def summary(self, values, step):
        self._told("summary", values, step)

    def close(self, finished):
        self._told("close", finished)


made: list[Recorded] = []


@pytest.fixture
def sink(monkeypatch):
    """Put a sink of this kind into the table under a name."""
    made.clear()

    def put(name="kept", **options):
        monkeypatch.setitem(SINKS, name, lambda run: Recorded(run, **options))
        monkeypatch.setattr(SINKS[name], "require", Recorded.require, raising=False)
        return name

    return put


def test_steps_are_counted_over_the_whole_run(sink, logged, epoch):
    with logging_to([sink()], logged, [4, 6, 6], warn=pytest.fail) as sinks:
        for event in (TaskBegan(3, 2, 6, 4, "eager"), StepsDone(3, 3), epoch(3, 4, 0.25)):
            sinks(event)
        sinks.summary({"template": {"AC": 1.0, "AA": 0.5, "ACA": None}})
    assert made[0].calls == [
        ("open",),
        ("scalars", {"loss/ce": 0.25, "lr": 0.1, "task": 3.0}, 14),  # the first two tasks were found finished
        ("summary", {"template/AC": 1.0, "template/AA": 0.5}, 16),
        ("close", True),
    ]
    assert made[0].threads.isdisjoint({threading.get_ident()})
    assert len(made[0].threads) == 1


def test_a_name_given_twice_is_one_sink(sink, logged):
    with logging_to([sink(), "kept"], logged, [4], warn=pytest.fail):
        pass
    assert len(made) == 1


@pytest.mark.parametrize("fails_at", ["open", "scalars", "summary", "close"])
def test_a_sink_that_fails_is_given_up_with_one_warning(sink, logged, epoch, fails_at):
    texts = []
    with logging_to([sink("bad", fails_at=fails_at), sink("good")], logged, [4, 4], warn=texts.append) as sinks:
        for step in (1, 2, 3, 4):
            sinks(epoch(1, step))
        sinks.summary({"template": {"AC": 1.0, "AA": 0.5, "ACA": 0.5}})
    assert texts == ["bad is switched off for this run, which continues: ConnectionError: no route to host"]
    assert [call[0] for call in made[1].calls] == ["open", *["scalars"] * 4, "summary", "close"]


def test_a_sink_that_hangs_holds_nobody_up(sink, logged, epoch, monkeypatch):
    monkeypatch.setattr("holdfast.train.experiments.sinks.FINISHED_SECONDS", 0.05)
    sink("slow")
    release, texts = threading.Event(), []
    monkeypatch.setattr(Recorded, "open", lambda self: release.wait(20))
    before = time.monotonic()
    with logging_to(["slow"], logged, [4], warn=texts.append) as sinks:
        sinks(epoch(1, 1))
    assert time.monotonic() - before < 5
    release.set()
    reason = "did not accept everything within 0.05 seconds"
    assert texts == [f"slow is switched off for this run, which continues: {reason}"]


def test_a_run_that_fails_is_not_closed_as_finished(sink, logged):
    with pytest.raises(KeyboardInterrupt), logging_to([sink()], logged, [4], warn=pytest.fail):
        raise KeyboardInterrupt
    assert made[0].calls[-1] == ("close", False)


def test_the_numbers_of_a_run_do_not_depend_on_its_sinks(sink, short_run):
    plain, _ = short_run()
    sink("good")
    logged_metrics, texts = short_run("good", sink("bad", fails_at="scalars"), name="logged")
    assert logged_metrics["protocols"] == plain["protocols"]
    assert len(texts) == 1
    told = [call for call in made[0].calls if call[0] == "scalars"]
    assert [values["task"] for _, values, _ in told] == [1.0, 2.0, 3.0]
    steps = [step for _, _, step in told]
    assert steps == sorted(set(steps))
    (summary,) = [call for call in made[0].calls if call[0] == "summary"]
    assert summary[2] == steps[-1]
    assert summary[1]["template/AA"] == plain["protocols"]["template"]["AA"]
    assert made[0].run.flat_settings["method.lambda"] == 0.3


def test_unknown_names_and_missing_packages_are_refused_before_anything_is_written(short_run, tmp_path, monkeypatch):
    with pytest.raises(HoldfastError, match=r"unknown log sink 'wanbd'.*known: mlflow, tensorboard, wandb"):
        short_run("wanbd")
    for name, module in (("wandb", "wandb"), ("mlflow", "mlflow.tracking"), ("tensorboard", "torch.utils.tensorboard")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(HoldfastError, match=rf"is not installed; pip install '\.\[{name}\]' in Holdfast's clone$"):
            short_run(name)
    assert not (tmp_path / "run").exists()


def test_a_sweep_refuses_them_before_its_first_run(tiny_recipe, tmp_path):
    from typer.testing import CliRunner

    from holdfast.cli import app

    words = ["sweep", str(tiny_recipe), "--out", str(tmp_path / "sweep"), "--log", "nonesuch"]
    assert "unknown log sink" in str(CliRunner().invoke(app, words).exception)
    assert not (tmp_path / "sweep").exists()


def test_nothing_is_imported_that_is_not_asked_for():
    heavy = "{'torch', 'wandb', 'mlflow', 'tensorboard'}"
    code = f"import sys, holdfast.train.experiments.sinks; print(*{heavy} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_no_sinks_need_nothing():
    check_sinks([])

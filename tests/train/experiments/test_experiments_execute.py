"""A run folder under all that can befall it, and what a run warns of."""

import os

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import FolderRefusedError, RunFolder
from holdfast.core.storage import read_json, write_json
from holdfast.train.encoders import Encoder, FeatureStore
from holdfast.train.engine import RunControl
from holdfast.train.experiments.assemble import SharedData
from holdfast.train.experiments.execute import execute
from holdfast.train.experiments.load import read_recipe, with_overrides
from holdfast.train.experiments.schema import check_recipe

QUICK = ["train.epochs=1", "scenario.tasks=2"]


def quick(tiny_recipe, *settings):
    return check_recipe(read_recipe(str(tiny_recipe), [*QUICK, "scenario.initial=3", *settings]))


def test_two_processes_do_not_write_into_one_folder(tiny_recipe, tmp_path):
    folder = RunFolder(tmp_path / "run")
    with folder.locked(), pytest.raises(HoldfastError, match="another process"):
        execute(quick(tiny_recipe), folder, device="cpu")
    execute(quick(tiny_recipe), folder, device="cpu")  # the lock went with its holder


def test_a_place_that_may_not_be_written_is_found_before_the_data_are_read(tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(SharedData, "open_set", lambda self, recipe: pytest.fail("the data were read"))
    with pytest.raises(FolderRefusedError, match=f"{tmp_path} may not be written to; choose another folder"):
        execute(quick(tiny_recipe), RunFolder(tmp_path / "runs" / "1"), device="cpu")


def test_a_run_that_another_process_began_meanwhile_is_not_taken_over(tiny_recipe, tmp_path):
    """Its models would be evaluated as those of this recipe."""
    folder, other = RunFolder(tmp_path / "run"), quick(tiny_recipe, "train.lr=0.01")

    class Slow(SharedData):
        def open_set(self, recipe):
            if not folder.metrics.exists():
                execute(other, folder, device="cpu")
            return super().open_set(recipe)

    with pytest.raises(FolderRefusedError, match="holds a run of another recipe"):
        execute(quick(tiny_recipe), folder, shared=Slow(), device="cpu")
    execute(other, folder, device="cpu", resume=True)  # it is unchanged


@pytest.mark.parametrize("name", ["fused", "graph"])
def test_an_executor_for_a_gpu_is_refused_before_the_folder_is_taken(tiny_recipe, tmp_path, name):
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(HoldfastError, match=f"^train\\.executor '{name}' needs a GPU, .* set it to auto") as error:
        execute(quick(tiny_recipe, f"train.executor={name}"), folder, device="cpu")
    assert "\n" not in str(error.value)
    execute(quick(tiny_recipe, "train.executor=auto"), folder, device="cpu")  # what the message says, into that folder


def test_tested_classes_that_were_trained_on_are_named(tiny_recipe, tmp_path):
    events = []
    settings = ["data.query.split=train", "data.gallery.split=train", "data.gallery.per_class_train=9"]
    sizes = [f"data.{part}.train_classes=6" for part in ("query", "gallery")]
    recipe = quick(tiny_recipe, *settings, *sizes, "data.query.per_class_train=4")
    metrics = execute(recipe, RunFolder(tmp_path / "run"), device="cpu", control=RunControl(events.append))
    (warning,) = [event.text for event in events if event.kind == "warning"]
    assert "not an open-set test: 6 tested classes" in warning
    assert metrics["data"]["open_set"] is False


def test_a_cpu_that_imitates_bf16_is_said(tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.train.experiments.execute.emulates_bf16", lambda device: device.type == "cpu")
    events = []

    def watch_until_it_trains(event):
        events.append(event)
        if event.kind in ("warning", "begin"):
            raise KeyboardInterrupt

    for precision in ("bf16", "fp32"):
        recipe, folder = quick(tiny_recipe, f"train.precision={precision}"), RunFolder(tmp_path / precision)
        with pytest.raises(KeyboardInterrupt):
            execute(recipe, folder, device="cpu", control=RunControl(watch_until_it_trains))
    (warning,) = [event.text for event in events if event.kind == "warning"]
    assert warning.endswith("many times slower than float32; train.precision=fp32 is faster")


def test_a_run_can_compare_the_feature_before_the_projection(tiny_recipe, tmp_path):
    """The same models, trained alike; only what is stored and compared differs."""
    folders = {readout: RunFolder(tmp_path / readout) for readout in ("simplex", "backbone")}
    for readout, folder in folders.items():
        execute(quick(tiny_recipe, f"evaluation.readout={readout}"), folder, device="cpu")
    simplex, backbone = (Encoder.from_pretrained(folder.model(2)) for folder in folders.values())
    assert (simplex.readout, backbone.readout) == ("simplex", "backbone")
    assert all(torch.equal(one, other) for one, other in zip(simplex.parameters(), backbone.parameters(), strict=True))
    sizes = [FeatureStore(folder.features).read_all()[1].gallery.shape[1] for folder in folders.values()]
    assert sizes == [simplex.dim, simplex.feature_dim]
    assert sizes[0] != sizes[1]


def test_going_on_with_other_threads_is_said(tiny_recipe, tmp_path):
    folder, events = RunFolder(tmp_path / "run"), []
    execute(quick(tiny_recipe), folder, device="cpu")
    environment = read_json(folder.environment)
    write_json(folder.environment, {**environment, "threads": environment["threads"] + 1})
    execute(quick(tiny_recipe), folder, device="cpu", resume=True, control=RunControl(events.append))
    assert any(event.kind == "warning" and "threads" in event.text for event in events)


@pytest.mark.parametrize(
    ("settings", "section", "expected"),
    [
        (["backbone.name=resnet32"], "backbone", {"name": "resnet32"}),
        (["scenario.increment=1"], "scenario", {"name": "cl2r", "initial": 2, "buffer_per_class": 2, "increment": 1}),
        (["method.name=er"], "method", {"name": "er"}),
        (["method.name=simplex_fd"], "method", {"name": "simplex_fd", "base": 2.0}),
        (["method.name=simplex_hoc", "method.rho=7.0"], "method", {"name": "simplex_hoc", "lambda": 0.3, "rho": 7.0}),
    ],
)
def test_another_name_brings_its_own_options(tiny_tables, settings, section, expected):
    assert with_overrides(tiny_tables, settings)[section] == expected

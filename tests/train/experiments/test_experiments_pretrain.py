"""Pre-training: what the folder holds, whose slots, and that a kill costs nothing."""

import contextlib
import itertools
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import FolderRefusedError, RunFolder
from holdfast.train.data import load_split
from holdfast.train.encoders import Encoder, VectorInput
from holdfast.train.engine import RunControl
from holdfast.train.engine.model_slots import grow_models
from holdfast.train.experiments.assemble import SharedData
from holdfast.train.experiments.load import read_recipe
from holdfast.train.experiments.pretrain import check_pretrain_recipe, pretrain
from papers.sweeps.pretraining import plan_models, pretrain_many


def checked(source, *settings):
    return check_pretrain_recipe(read_recipe(str(source), settings))


def test_the_folder_is_a_model(toy_models):
    encoder = Encoder.from_pretrained(toy_models / "four-simplex")
    assert encoder.dim == 19
    assert encoder.info["pretrained"]["head"] == "simplex"
    assert encoder.info["pretrained"]["classes"] == 4
    assert not encoder.info["pretrained"]["loss"] > 4
    names = load_split("glyphs", "train", size=16, train_classes=4, test_classes=3, per_class_train=8).class_names
    assert encoder.info["slots"]["owners"] == {f"letters/{name}": slot for slot, name in enumerate(names)}
    learnable = Encoder.from_pretrained(toy_models / "four-learnable")
    assert learnable.dim == learnable.feature_dim == 32
    assert "slots" not in learnable.info


def test_nested_sets_share_their_slots(toy_models):
    four, eight = (Encoder.from_pretrained(toy_models / f"{name}-simplex").info["slots"] for name in ("four", "eight"))
    assert four["owners"].items() <= eight["owners"].items()


def test_a_kill_costs_nothing(pretrain_recipe, tmp_path):
    class Killed(Exception):  # noqa: N818
        pass

    def dies(event):
        if event.kind == "epoch" and event.epoch == 2:
            raise Killed

    recipe = checked(pretrain_recipe, "train.epochs=3", "train.checkpoint_minutes=0")
    whole, killed = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "killed")
    pretrain(recipe, whole, device="cpu")
    with pytest.raises(Killed):
        pretrain(recipe, killed, device="cpu", control=RunControl(dies))
    with pytest.raises(HoldfastError, match="no model here"):
        Encoder.from_pretrained(killed.path)
    pretrain(recipe, killed, device="cpu")
    assert (killed.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()
    assert not killed.checkpoint.exists()
    before = (killed.path / "config.json").stat().st_mtime_ns
    record = pretrain(recipe, killed, device="cpu")
    assert (killed.path / "config.json").stat().st_mtime_ns == before
    assert record["steps"] == 12
    with pytest.raises(HoldfastError, match="another recipe"):
        pretrain(checked(pretrain_recipe), killed, device="cpu")


def test_a_model_that_another_process_has_finished_is_not_trained_again(pretrain_recipe, tmp_path):
    recipe, folder, events = checked(pretrain_recipe), RunFolder(tmp_path / "m"), []

    class Slow(SharedData):
        def one_set(self, section):  # another process trains the model meanwhile
            pretrain(recipe, folder, device="cpu")
            return super().one_set(section)

    record = pretrain(recipe, folder, shared=Slow(), device="cpu", control=RunControl(events.append))
    assert [event.kind for event in events] == ["done"]
    assert record["classes"] == 4
    other, folder = checked(pretrain_recipe, "train.lr=0.01"), RunFolder(tmp_path / "n")
    with pytest.raises(FolderRefusedError, match="another recipe"):
        pretrain(other, folder, shared=Slow(), device="cpu")


def test_slots_from_an_older_model(pretrain_recipe, toy_models, tmp_path):
    """Classes in another order keep the slots they had, and new ones take what is free."""
    shared = SharedData(models=toy_models)
    settings = ["data.seed=5", "data.train_classes=6", "slots_from='four-simplex'"]
    pretrain(checked(pretrain_recipe, *settings), RunFolder(tmp_path / "m"), shared=shared, device="cpu")
    old, new = (
        Encoder.from_pretrained(folder).info["slots"] for folder in (toy_models / "four-simplex", tmp_path / "m")
    )
    assert old["owners"].items() <= new["owners"].items()
    assert sorted(new["owners"].values()) == list(range(len(new["owners"])))
    with pytest.raises(HoldfastError, match="slots_from: one has 21 slots, the other 20"):
        pretrain(checked(pretrain_recipe, *settings, "method.slots=21"), RunFolder(tmp_path / "n"), shared=shared)


def test_many_side_by_side(pretrain_recipe, toy_models, tmp_path):
    planned = plan_models([str(pretrain_recipe)], backbones=["small", "resnet32"])
    assert list(planned) == ["glyphs/small-simplex", "glyphs/resnet32-simplex"]
    planned["too-few"] = checked(pretrain_recipe, "method.slots=3")
    found = pretrain_many(planned, tmp_path, shared=SharedData(), device=torch.device("cpu"), parallel=2)
    assert "no slot left" in str(found["too-few"])
    assert "no slot left" in (tmp_path / "too-few-error.txt").read_text()
    assert found["glyphs/resnet32-simplex"]["classes"] == 4
    wide = checked(pretrain_recipe, "backbone.name=small")
    pretrain(wide, RunFolder(tmp_path / "alone"), device="cpu")
    images = torch.ones(1, 1, 16, 16)
    together, alone = (Encoder.from_pretrained(tmp_path / name) for name in ("glyphs/small-simplex", "alone"))
    assert torch.equal(together.encode(images), alone.encode(images))
    with pytest.raises(HoldfastError, match="two models would be called"):
        plan_models([str(pretrain_recipe)] * 2)


def test_on_a_gpu_models_trained_at_once_never_share_a_stream(monkeypatch, tmp_path):
    """Of a make-believe torch that has four streams, as the real one has 32, and hands them out in turn."""
    numbers, current, seen = itertools.count(), threading.local(), []
    both_there = threading.Barrier(2, timeout=20)

    @contextlib.contextmanager
    def stream(one):
        current.stream = one.cuda_stream
        yield

    def note_the_stream(recipe, target, **_):
        both_there.wait()
        seen.append(current.stream)
        both_there.wait()

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: SimpleNamespace(cuda_stream=next(numbers) % 4))
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr("papers.sweeps.pretraining.pretrain", note_the_stream)
    planned = dict.fromkeys(map(str, range(12)))
    pretrain_many(planned, tmp_path, shared=SharedData(), device=torch.device("cuda"), parallel=2)
    assert sorted(seen) == [0] * 6 + [1] * 6
    assert all(set(seen[i : i + 2]) == {0, 1} for i in range(0, 12, 2))


def test_given_weights_and_frozen_parts_are_kept(pretrain_recipe, toy_models, tmp_path):
    """What stays frozen in pre-training is what was given, and the model still says so, also after it has grown."""
    given = Encoder.from_pretrained(toy_models / "eight-simplex").backbone
    torch.save(given.state_dict(), tmp_path / "w.pt")
    settings = [f"backbone.weights='{tmp_path / 'w.pt'}'", "backbone.freeze=['stages.0']"]
    recipe, folder = checked(pretrain_recipe, *settings), RunFolder(tmp_path / "m")
    pretrain(recipe, folder, device="cpu")
    assert checked(folder.recipe).tables == recipe.tables
    grow_models([folder.path], 30, tmp_path / "grown")
    for where in (folder.path, tmp_path / "grown" / "m"):
        encoder = Encoder.from_pretrained(where)
        for name, value in given.stages[0].state_dict().items():
            assert torch.equal(encoder.backbone.stages[0].state_dict()[name], value)
        assert not torch.equal(encoder.backbone.stages[2][0].weight, given.stages[2][0].weight)
        assert encoder.info["backbone_weights"]["file"].endswith("w.pt")
        assert encoder.frozen == ("stages.0",)


def test_vectors(tmp_path):
    rows = np.random.default_rng(0).normal(size=(24, 5))
    np.savez(tmp_path / "v.npz", features=rows, labels=np.arange(24) % 3)
    tables = {
        "data": {"name": "vectors", "split": "all", "path": str(tmp_path / "v.npz")},
        "backbone": {"name": "mlp", "hidden": 8, "width": 6},
        "method": {"name": "simplex_fd", "slots": 4},
        "train": {"epochs": 1, "batch_size": 8},
        "preprocess": {"unit": True},
    }
    pretrain(check_pretrain_recipe(tables), RunFolder(tmp_path / "m"), device="cpu")
    encoder = Encoder.from_pretrained(tmp_path / "m")
    assert encoder.preprocess == VectorInput(5, unit=True)
    assert torch.allclose(encoder.encode(rows), encoder.encode(7 * rows), atol=1e-6)
    with pytest.raises(HoldfastError, match=r"train\.flip is for images"):
        check_pretrain_recipe({**tables, "train": {"flip": True}})
    twice = {**tables, "method": {"name": "simplex_hoc_views", "slots": 4}}
    with pytest.raises(HoldfastError, match="reads a second view"):
        pretrain(check_pretrain_recipe(twice), RunFolder(tmp_path / "n"), device="cpu")


def test_what_killed_processes_leave_is_removed(pretrain_recipe, tmp_path):
    recipe, folder = checked(pretrain_recipe), RunFolder(tmp_path / "m")
    folder.path.mkdir()
    (folder.path / ".tmp-checkpoint.safetensors").touch()
    pretrain(recipe, folder, device="cpu")
    files = {file.name for file in folder.path.iterdir()}
    assert ".tmp-checkpoint.safetensors" not in files
    folder.checkpoint.touch()  # killed between the last write and this
    pretrain(recipe, folder, device="cpu")
    assert {file.name for file in folder.path.iterdir()} == files


def test_too_few_slots(pretrain_recipe, tmp_path):
    with pytest.raises(HoldfastError, match=r"no slot left for class .*: 3 slots, 4 classes; set slots to 4"):
        pretrain(checked(pretrain_recipe, "method.slots=3"), RunFolder(tmp_path / "m"), device="cpu")


def test_strict(pretrain_recipe):
    with pytest.raises(HoldfastError, match="which holdfast run trains"):
        checked(pretrain_recipe, "scenario.name=cl2r")
    with pytest.raises(HoldfastError, match=r"data\.train_class: unknown key"):
        checked(pretrain_recipe, "data.train_class=3")

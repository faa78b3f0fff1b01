"""``holdfast slots`` and ``holdfast pretrain`` on model folders, ``evaluate --mixed``, models that do not meet."""

import json
import shutil

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.geometry import embed_in_larger_simplex
from holdfast.train.scenarios import SlotRegistry

IMAGES = torch.randn(20, 1, 16, 16, generator=torch.Generator().manual_seed(1))


def save(folder, slots=40, registry=True, seed=0):
    torch.manual_seed(seed)
    owners = SlotRegistry(slots).take_left(["a", "b"]).take_right(["z"])
    info = {"slots": owners.to_json(), "task": 3} if registry else {}
    preprocess = Preprocess(size=16, mean=(0.2,), std=(0.3,), colour="grey")
    Encoder(build_backbone("small", width=8), slots - 1, preprocess=preprocess, info=info).save_pretrained(folder)
    (folder / "method.safetensors").write_bytes(b"kept")
    return folder


def test_show(tmp_path, holdfast, holdfast_json):
    folder = save(tmp_path / "m")
    text = holdfast("slots", "show", folder)
    assert "40 slots; 3 owned, 37 free" in text
    assert "39   z" in text
    assert holdfast_json("slots", "show", folder)["owners"] == {"a": 0, "b": 1, "z": 39}


@pytest.mark.parametrize("slots", [40, 33])  # 33: as many features as the backbone has, so no projection yet
def test_grow_keeps_every_cosine(slots, tmp_path, holdfast, holdfast_json):
    folders = [save(tmp_path / name, slots, seed=i) for i, name in enumerate("mn")]
    before = [Encoder.from_pretrained(folder).encode(IMAGES) for folder in folders]
    assert "50 slots" in holdfast("slots", "grow", *folders, "--to", 50)
    after = [Encoder.from_pretrained(folder) for folder in folders]
    z = [encoder.encode(IMAGES) for encoder in after]
    for i, j in ((0, 0), (0, 1), (1, 1)):
        torch.testing.assert_close(z[i] @ z[j].T, before[i] @ before[j].T, atol=1e-6, rtol=0)
    larger = torch.nn.functional.normalize(embed_in_larger_simplex(before[0], slots, 50))
    torch.testing.assert_close(z[0], larger, atol=1e-6, rtol=0)
    assert holdfast_json("slots", "show", folders[0])["grown"] == [slots]
    assert after[0].info["task"] == 3
    assert (folders[0] / "method.safetensors").read_bytes() == b"kept"
    assert f"grown from {slots}" in holdfast("slots", "show", folders[0])
    assert "Nothing to do" in holdfast("slots", "grow", *folders, "--to", 50)


def test_all_or_nothing(tmp_path, holdfast):
    good, bad = save(tmp_path / "good"), save(tmp_path / "bad", registry=False)
    files = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(HoldfastError, match="bad: has no slot record"):
        holdfast("slots", "grow", good, bad, "--to", 60)
    with pytest.raises(HoldfastError, match="40 slots can only grow to more, not to 30"):
        holdfast("slots", "grow", good, "--to", 30)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == files


def test_a_model_of_a_run_is_copied(tiny_run, tmp_path, holdfast):
    model = tiny_run / "models" / "02"
    with pytest.raises(HoldfastError, match="belongs to a run"):
        holdfast("slots", "grow", model, "--to", 30)
    holdfast("slots", "grow", model, "--to", 30, "--out", tmp_path)
    assert json.loads((tmp_path / "02" / "config.json").read_text())["info"]["slots"]["num_slots"] == 30
    assert Encoder.from_pretrained(model).dim == 5


def test_a_trained_classifier_has_no_slots(tmp_path, holdfast):
    preprocess = Preprocess(size=16, mean=(0.2,), std=(0.3,), colour="grey")
    info = {"slots": SlotRegistry(6).to_json()}
    Encoder(build_backbone("small", width=8), preprocess=preprocess, info=info).save_pretrained(tmp_path / "m")
    with pytest.raises(HoldfastError, match="simplex of 6 slots; it was trained with a classifier of its own"):
        holdfast("slots", "show", tmp_path / "m")


def test_pretrain_and_run(pretrain_recipe, iam_tables, tmp_path, holdfast, holdfast_json, monkeypatch):
    """From nothing to a run with a replacement, as a user types it."""
    from holdfast.train.experiments.schema import to_toml

    models = tmp_path / "models"
    monkeypatch.setenv("HOLDFAST_MODELS", str(models))
    row = holdfast_json("pretrain", pretrain_recipe)
    assert row["model"] == str(models / "glyphs" / "small-simplex")
    assert row["classes"] == 4
    eight = ["--set", "data.train_classes=8", "--out", models / "eight"]
    assert "eight" in holdfast("pretrain", pretrain_recipe, *eight)
    with pytest.raises(HoldfastError, match="no slot left"):
        holdfast("pretrain", pretrain_recipe, "--set", "method.slots=2", "--out", models / "x")
    iam_tables["scenario"] |= {"model": "glyphs/small-{head}", "replace_with": ["eight"]}
    iam_tables["evaluation"] = {"compact": True}
    (tmp_path / "iam.toml").write_text(to_toml(iam_tables))
    text = holdfast("run", tmp_path / "iam.toml", "--out", tmp_path / "run")
    assert "Galleries are stored 1.0 times smaller (19 numbers an item instead of 19" in text
    assert "metrics.json" in text


def test_evaluate_refuses_models_that_do_not_belong_together(tiny_run, tmp_path, holdfast):
    shutil.copytree(tiny_run, tmp_path / "run")
    config = tmp_path / "run" / "models" / "02" / "config.json"
    good = json.loads(config.read_text())
    strange = {**good, "info": {"slots": {"num_slots": 9, "owners": {"someone": 0}}}}
    config.write_text(json.dumps(strange))
    with pytest.raises(HoldfastError, match=r"02: its slots disagree .*: one has 6 slots, the other 9"):
        holdfast("evaluate", tmp_path / "run")
    config.write_text(json.dumps({**good, "info": {}}))
    with pytest.raises(HoldfastError, match=r"02: has no slot record, but other models .* have one"):
        holdfast("evaluate", tmp_path / "run")
    config.write_text(json.dumps(good))
    holdfast("evaluate", tmp_path / "run")

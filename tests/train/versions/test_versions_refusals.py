"""What cannot be done is refused in one line, before anything is written."""

import json
import os
import shutil
from functools import partial
from pathlib import Path

import pytest
from letters_on_disk import SIZE, rolled, write_folder

from holdfast.core.checksums import write_checksums
from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.engine.model_slots import grow_models
from holdfast.train.tensor_files import write_torch
from holdfast.train.versions import VersionSettings, start, update

OWN_NETWORK = """
import torch

class Tower(torch.nn.Module):
    def __init__(self, in_channels, width):
        super().__init__()
        self.feature_dim = width
        self.stem = torch.nn.Linear(in_channels * 256, width)
        self.top = torch.nn.Linear(width, width)

    def forward(self, x):
        return self.top(self.stem(x.flatten(1)).relu())

def tower(*, in_channels: int = 1, width: int = 12) -> torch.nn.Module:
    return Tower(in_channels, width)
"""


def everything_in(folder):
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def refused(words, model, data, out, **options):
    before = everything_in(model)
    with pytest.raises(HoldfastError, match=words) as caught:
        update(model, data, out, device="cpu", **options)
    assert "\n" not in str(caught.value)
    assert not out.exists()
    assert everything_in(model) == before


@pytest.fixture
def out(tmp_path):
    return tmp_path / "new" / "2"


@pytest.fixture
def copied(first, tmp_path):
    """A copy of version 1 that may be spoilt."""
    return shutil.copytree(first, tmp_path / "1")


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "method.safetensors", "buffer.json", "recipe.toml"]
)
def test_a_model_edited_by_hand(name, copied, photos, out):
    text = (copied / name).read_bytes()
    (copied / name).write_bytes(text.replace(b"12", b"13", 1) if name != "model.safetensors" else text[:-1] + b"x")
    if (copied / name).read_bytes() == text:
        (copied / name).write_bytes(text + b" ")
    refused(
        rf"{name}: changed since the model was written \(sha256 differs\)|does not fit|sha256",
        copied,
        photos / "2",
        out,
    )


def test_a_model_folder_cannot_name_a_method_to_import(first, second, photos, out, tmp_path, monkeypatch):
    copied = shutil.copytree(second, tmp_path / "2")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "unwanted.py").write_text("raise SystemExit('code of a model folder was run')")
    recipe = copied / "recipe.toml"
    recipe.write_text(recipe.read_text().replace('name = "simplex_hoc"', 'name = "unwanted:Method"'))
    write_checksums(copied)
    with pytest.raises(HoldfastError, match=r"unknown method 'unwanted:Method'"):
        update(copied, photos / "3", out, device="cpu")


def test_classes_that_were_renamed_are_another_job(photos, recipe, tmp_path):
    data = shutil.copytree(photos / "1", tmp_path / "data")
    start(data, tmp_path / "1", settings=recipe, device="cpu")
    (data / "01").rename(data / "01b")
    with pytest.raises(HoldfastError, match=r"holds another version \(different: classes\)"):
        start(data, tmp_path / "1", settings=recipe, device="cpu")


def test_an_edited_description_is_refused_wherever_the_model_is_read(copied):
    text = (copied / "config.json").read_text()
    (copied / "config.json").write_text(text.replace('"method": "simplex_hoc"', '"method": "simplex_fd"', 1))
    with pytest.raises(HoldfastError, match=r"config.json: changed since the model was written \(sha256 differs\)"):
        Encoder.from_pretrained(copied)


def test_nothing_to_train(photos, tmp_path, out, recipe):
    """As many slots as leave the encoder without a projection, and the network frozen."""
    still = ["method.slots=33", 'backbone.freeze=["*"]']
    with pytest.raises(HoldfastError, match="nothing trains: all of the encoder is frozen"):
        start(photos / "1", out, settings=recipe, changes=still, device="cpu")
    assert not out.exists()
    kept = [still[0], "buffer.per_class=1000"]
    start(photos / "1", tmp_path / "1", settings=recipe, changes=kept, device="cpu")
    refused("nothing to train on: .* give images that are new to the model", tmp_path / "1", photos / "1", out)
    frozen = ["backbone.name=small", "backbone.width=8", still[1]]
    refused("nothing trains", tmp_path / "1", photos / "2", out, settings=recipe, changes=[*still[:1], *frozen])


@pytest.mark.parametrize("how", ["gone", "changed"])
def test_buffered_files(how, letters, recipe, photos, tmp_path, out):
    here = write_folder(letters, (0, 1, 2), tmp_path / "here")
    model = tmp_path / "1"
    start(here, model, settings=recipe, device="cpu")
    for item in json.loads((model / "buffer.json").read_text())["images"][:2]:
        file = tmp_path / "here" / item["path"].split("/here/")[1]
        file.unlink() if how == "gone" else file.write_bytes(file.read_bytes() + b"\0")
    refused(f"buffered images: 2 of 9 are {how}.*--buffer-from FOLDER", model, photos / "2", out)


def test_held_out_files_that_are_gone_are_left_out(letters, recipe, photos, tmp_path, out):
    here = write_folder(letters, (0, 1, 2), tmp_path / "here")
    start(here, tmp_path / "1", settings=recipe, device="cpu")
    held = json.loads((tmp_path / "1" / "held_out.json").read_text())["images"]
    (tmp_path / "here" / held[0]["path"].split("/here/")[1]).unlink()
    told = []
    update(tmp_path / "1", photos / "2", out, device="cpu", on_event=told.append)
    assert any(f"1 of {len(held)} held-out images" in getattr(event, "text", "") for event in told)


def test_data(first, tmp_path, photos, out):
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "bad" / "one").mkdir(parents=True)
    (tmp_path / "bad" / "one" / "x.png").write_bytes(b"no image")
    refused("empty; expected one folder per class", first, tmp_path / "empty", out)
    refused("no such folder or CSV file", first, tmp_path / "nowhere", out)
    refused("not a folder with one folder per class or a CSV", first, tmp_path / "a.txt", out)
    refused("x.png: not readable as an image", first, tmp_path / "bad", out)
    with pytest.raises(HoldfastError, match=r"3 new classes, but 2 of 2 slots are free.*--set method.slots=3, or more"):
        start(photos / "1", out, device="cpu", changes=["backbone.name=small", "method.slots=2"])
    assert not out.exists()


def test_more_classes_than_slots(copied, letters, tmp_path, out):
    rolled(letters, 10, tmp_path / "ten")
    refused(f"10 new classes, but 9 of 12 slots are free; 13 slots would do: holdfast slots grow {copied} --to 13",
            copied, tmp_path / "ten", out)  # fmt: skip


def test_a_recipe_that_contradicts_the_model(first, recipe, photos, out):
    def contradicts(words, *overrides):
        refused(words, first, photos / "2", out, settings=recipe, changes=list(overrides))

    contradicts("method.name: er, but .* was trained with simplex_hoc", "method.name=er")
    contradicts("method.slots: 13, but .* has 12; .*slots grow", "method.slots=13")
    contradicts("backbone.name: resnet32, but the network of .* is small", "backbone.name=resnet32")
    contradicts("backbone: options other than those of", "backbone.width=9")
    contradicts("backbone.weights: .* brings its own", 'backbone.weights="w.safetensors"')
    contradicts(r"preprocess.mean: \[0.5\], but .* has \[0.4\]", "preprocess.mean=[0.5]")
    contradicts("data.colour: rgb, but .* takes grey", 'data.colour="rgb"')
    contradicts("data.size: training would see 32 pixels a side, but .* takes 16", "data.size=32")
    contradicts("train.epoch: unknown key", "train.epoch=3")
    contradicts(
        "train.lr_groups: the encoder has no parameters 'backbone.nothing'", "train.lr_groups={'backbone.nothing'=0.1}"
    )


def test_other_things(first, photos, tmp_path, out):
    refused("unknown backbone 'nothing'", first, photos / "2", out, backbone="nothing")
    refused("max-loss is a fraction", first, photos / "2", out, max_loss=3.0)
    refused("no image of a class", first, photos / "2", out, buffer_from=photos / "3")
    with pytest.raises(HoldfastError, match="--out must not be the model itself"):
        update(first, photos / "2", first, device="cpu")
    with pytest.raises(HoldfastError, match="no model here"):
        update(tmp_path, photos / "2", out, device="cpu")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    for call in (
        start,
        partial(update, first),
    ):  # before the data, which may take an hour, are read
        with pytest.raises(HoldfastError, match="not empty and not an unfinished version"):
            call(tmp_path / "no data", tmp_path / "mine", device="cpu")


def test_a_model_folder_among_the_classes(first, letters, recipe, tmp_path, monkeypatch):
    data = write_folder(letters, [3, 4], tmp_path / "data")
    before = everything_in(data)
    monkeypatch.chdir(data)
    for out in ("models/1", tmp_path / "data" / "03" / "1"):
        with pytest.raises(HoldfastError, match=r"inside .*, where it would be read as a class; choose another --out"):
            start(Path("."), Path(out), settings=recipe, device="cpu")
        with pytest.raises(HoldfastError, match=r"inside .*, where it would be read as a class; choose another --out"):
            update(first, data, Path(out), device="cpu")
    assert everything_in(data) == before
    start(Path("."), Path(".models/1"), settings=recipe, device="cpu")  # hidden folders are not read


def test_a_place_that_may_not_be_written_is_found_before_the_data_are_read(first, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    for call in (start, partial(update, first)):
        with pytest.raises(HoldfastError, match=f"{tmp_path} may not be written to; choose another folder"):
            call(tmp_path / "no data", tmp_path / "models" / "2", device="cpu")
    assert not any(tmp_path.iterdir())


def test_code_of_ones_own_is_named_by_a_recipe_and_never_by_a_folder(recipe, photos, tmp_path, out, monkeypatch):
    (tmp_path / "my_tower_of_tests.py").write_text(OWN_NETWORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = tmp_path / "own.toml"
    text = recipe.read_text().replace(
        'name = "small"\nwidth = 8', 'name = "my_tower_of_tests:tower"\nfreeze = ["stem"]'
    )
    own.write_text(text + "\n[train.lr_groups]\nprojection = 0.5\n")
    start(photos / "1", tmp_path / "1", settings=own, device="cpu")
    refused(
        "its network is code of your own, my_tower_of_tests:tower.*give --backbone .*, or --recipe",
        tmp_path / "1",
        photos / "2",
        out,
    )
    info = update(tmp_path / "1", photos / "2", out, settings=own, device="cpu")
    assert info["task"] == 2


def test_a_replacement_whose_slots_do_not_agree(first, recipe, photos, tmp_path, out):
    """Another K, other owners, and no record: refused by name before anything is trained."""

    def made(name, data, *overrides):
        start(data, tmp_path / name, settings=recipe, changes=["train.epochs=1", *overrides], device="cpu")
        return str(tmp_path / name)

    more = made("more", photos / "1", "method.slots=14")
    sizes = r"--backbone .*more: one has 12 slots, the other 14; grow the one with 12 to 14"
    refused(sizes, first, photos / "2", out, backbone=str(more))
    other = made("other", photos / "2")
    refused(r"--backbone .*other: slot 0 has two owners: '00' and '03'", first, photos / "2", out,
            backbone=str(other))  # fmt: skip
    without = made("without", photos / "1", "method={name = 'er'}")
    refused(r"--backbone .*without: .*was trained with a classifier of its own", first, photos / "2", out,
            backbone=str(without))  # fmt: skip


def test_a_network_or_weights_that_do_not_fit(photos, recipe, tmp_path, out):
    def refused_at_the_start(words, *overrides):
        with pytest.raises(HoldfastError, match=words) as caught:
            start(photos / "1", out, settings=recipe, changes=list(overrides), device="cpu")
        assert "\n" not in str(caught.value)
        assert not out.exists()

    refused_at_the_start(
        "backbone nowhere.at.all:net: nowhere.at.all does not import", 'backbone={name="nowhere.at.all:net"}'
    )
    weights = build_backbone("small", width=8, in_channels=1).state_dict()
    name = next(iter(weights))
    write_torch(tmp_path / "w.safetensors", {"mine" if key == name else key: t for key, t in weights.items()})
    refused_at_the_start(f"missing: {name}; unexpected: mine", f'backbone.weights="{tmp_path}/w.safetensors"')


def test_a_broken_image_is_refused_by_the_first_version_even_if_held_out(photos, recipe, tmp_path):
    shutil.copytree(photos / "1", tmp_path / "data")
    for number in range(6):  # about half of them are held out, by their hashes
        bad = tmp_path / "data" / "00" / "bad.png"
        bad.write_bytes(bytes([number]))
        with pytest.raises(HoldfastError, match=r"bad.png: not readable as an image"):
            start(tmp_path / "data", tmp_path / str(number), settings=recipe, device="cpu")
        assert not (tmp_path / str(number)).exists()


def test_what_differs_from_the_work_begun_is_named(first, second, photos):
    with pytest.raises(HoldfastError, match=r"holds another version \(different: train.lr\)"):
        update(first, photos / "2", second, device="cpu", changes=["train.lr=0.5"])
    with pytest.raises(HoldfastError, match=r"\(different: images, "):
        update(first, photos / "3", second, device="cpu")


def test_a_model_that_scales_images_otherwise_than_training_does(photos, tmp_path, out):
    """It would be trained and checked on other pixels than it embeds."""
    preprocess = Preprocess(size=SIZE, mean=(0.4,), std=(0.3,), colour="grey", interpolation="bicubic")
    Encoder(build_backbone("small", width=8), preprocess=preprocess).save_pretrained(tmp_path / "own")
    settings = VersionSettings(method={"name": "er"}, train={"epochs": 1})
    with pytest.raises(HoldfastError, match="own: scales images by bicubic; training from files is bilinear only"):
        update(tmp_path / "own", photos / "1", out, settings=settings, device="cpu")


def test_options_of_scenarios_are_refused():
    """A first version has nothing to be compared with, and an update is compared with the version before."""
    with pytest.raises(HoldfastError, match=r"train\.random_reference is for scenarios"):
        VersionSettings(method={"name": "er"}, train={"random_reference": True})


def test_another_size_before_the_crop(first, photos, out):
    refused(r"preprocess\.resize: 20, but .* has none", first, photos / "2", out, changes=["preprocess.resize=20"])


def test_more_slots_do_not_mend_a_broken_seal(copied):
    (copied / "recipe.toml").write_text((copied / "recipe.toml").read_text().replace("0.05", "0.5", 1))
    before = everything_in(copied)
    with pytest.raises(HoldfastError, match=r"recipe\.toml: changed since the model was written"):
        grow_models([copied], 20)
    assert everything_in(copied) == before


def test_a_verdict_edited_by_hand_is_not_told_again(first, second, photos, tmp_path):
    out = shutil.copytree(second, tmp_path / "2")
    record = json.loads((out / "check.json").read_text())
    (out / "check.json").write_text(json.dumps({**record, "verdict": "better", "exit_code": 0}))
    with pytest.raises(HoldfastError, match=r"check\.json: changed since the model was written"):
        update(first, photos / "2", out, device="cpu")


def test_a_file_of_the_model_is_gone(copied, photos, out):
    (copied / "held_out.json").unlink()
    refused("held_out.json: missing since the model was written", copied, photos / "2", out)

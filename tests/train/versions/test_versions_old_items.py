"""What an update says about items of older versions: bridge and expected exposure."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.bridges import Bridge
from holdfast.cli.start import print_version
from holdfast.train.data import ImageSet
from holdfast.train.encoders import Encoder, Preprocess, build_backbone, extract
from holdfast.train.experiments.update_recipes import update_from_recipe as update
from holdfast.train.versions.comparison import measure_old_items
from holdfast.train.versions.parent import Parent, SampleSet, read_parent

CPU = torch.device("cpu")


def made_encoder(seed, dim=None, like=None):
    """A network with random weights; ``like``: one that gives turned features of the same images."""
    torch.manual_seed(seed)
    if like is None:
        preprocess = Preprocess(size=16, mean=(0.4,), std=(0.3,), colour="grey")
        return Encoder(build_backbone("small", width=8), dim, preprocess=preprocess).eval()
    turned = Encoder(like.backbone, like.dim, preprocess=like.preprocess).eval()
    turned.projection.load_state_dict(like.projection.state_dict())
    turn = torch.linalg.qr(torch.randn(like.dim, like.dim))[0]
    with torch.no_grad():
        turned.projection.weight.copy_(turn @ turned.projection.weight)
    return turned


def parent_of(encoder, folder="models/1"):
    return Parent(Path(folder), encoder, "ab" * 32, 1, ("a",), None, SampleSet())


def made_images(count, classes=8):
    rng = np.random.default_rng(0)
    labels = np.arange(count) % classes
    prototypes = rng.integers(0, 256, (classes, 16, 16, 1))
    pixels = 0.6 * prototypes[labels] + 0.4 * rng.integers(0, 256, (count, 16, 16, 1))
    return ImageSet(pixels.astype(np.uint8), labels, tuple("abcdefgh"[:classes]), "")


def test_a_turned_space_needs_a_bridge():
    old = made_encoder(0, dim=12)
    new, images = made_encoder(1, like=old), made_images(300)
    (found,) = measure_old_items(parent_of(old), new, images, CPU)
    assert (found["name"], found["version"], found["weights_sha256"]) == ("1", 1, "ab" * 32)
    assert found["kind"] == "rotation"
    assert found["pairs"] == 300
    assert found["value"] > found["without"] + 0.3
    for places in ("1", "10"):
        assert 0.8 < found["exposure"][places] < 1.25
    features = [extract(model, images) for model in (new, old)]
    labels = [images.class_names[label] for label in images.labels]
    assert {**found, **Bridge.fit(new=features[0], old=features[1], labels=labels).summary()} == found


def test_the_same_space_needs_none():
    old = made_encoder(0, dim=12)
    (found,) = measure_old_items(parent_of(old), old, made_images(300), CPU)
    assert (found["kind"], found["value"]) == ("none", found["without"])
    assert found["exposure"] == {"1": 1, "10": 1}


def test_features_of_another_size():
    (found,) = measure_old_items(parent_of(made_encoder(0, dim=12)), made_encoder(1, dim=9), made_images(300), CPU)
    assert found["kind"] != "none"
    assert found["without"] is None
    assert found["exposure_without"] is None


def test_compact_features_are_measured_in_one_space():
    """Features of 40 numbers from a network of 16 are stored compact, in a basis of each model's own."""
    old = made_encoder(0, dim=40)
    new = made_encoder(1, like=old)
    for model, kind in ((old, "none"), (new, "rotation")):
        (found,) = measure_old_items(parent_of(old), model, made_images(300), CPU)
        assert found["kind"] == kind


def test_few_images_are_not_measured():
    old = made_encoder(0)
    (found,) = measure_old_items(parent_of(old), old, made_images(19), CPU)
    assert found["not_measured"] == "19 images held out or kept, at least 20 are needed"
    (found,) = measure_old_items(parent_of(old), old, made_images(60), CPU)
    assert found["pairs"] == 60
    assert found["exposure"] == {}


def test_broken_features_do_not_lose_the_training():
    old, new = made_encoder(0, dim=12), made_encoder(1, dim=12)
    with torch.no_grad():
        new.projection.weight.fill_(float("nan"))
    (found,) = measure_old_items(parent_of(old), new, made_images(60), CPU)
    assert "NaN" in found["not_measured"] or "finite" in found["not_measured"]


def test_zero_vectors_are_left_out(monkeypatch):
    old, new, images = made_encoder(0, dim=12), made_encoder(1, dim=12), made_images(60)
    made = {model: extract(model, images) for model in (old, new)}
    made[new][:3], made[old][5] = 0.0, 0.0
    monkeypatch.setattr("holdfast.train.versions.comparison.extract", lambda encoder, *given, **options: made[encoder])
    (found,) = measure_old_items(parent_of(old), new, images, CPU)
    assert found["pairs"] == 56
    made[new][:41] = 0.0
    (found,) = measure_old_items(parent_of(old), new, images, CPU)
    assert found["not_measured"] == "41 of 60 vectors are zero, at least 20 others are needed"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate"), "CUDA out of memory."),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_a_device_without_memory_does_not_lose_the_training(monkeypatch, error, reason):
    def extract(*given, **options):
        raise error

    monkeypatch.setattr("holdfast.train.versions.comparison.extract", extract)
    old = made_encoder(0, dim=12)
    (found,) = measure_old_items(parent_of(old), old, made_images(60), CPU)
    assert found["not_measured"] == reason


@pytest.fixture(scope="module")
def third(second, photos, tmp_path_factory):
    folder = second.parent / "3"
    update(second, photos / "3", folder, device="cpu")
    return folder


def test_an_update_records_it(first, second):
    info = Encoder.from_pretrained(second).info
    (entry,) = info["old_items"]
    assert entry["name"] == first.name
    assert entry["weights_sha256"] == json.loads((first / "config.json").read_text())["weights_sha256"]
    images = [len(json.loads((second / f"{stem}.json").read_text())["images"]) for stem in ("buffer", "held_out")]
    assert entry["pairs"] == sum(images)
    card = (second / "README.md").read_text()
    assert "## Items of older versions in one gallery" in card
    assert f"| {entry['kind']} | – | – | {sum(images)} images, {entry['held_out']} held out: too few" in card
    assert "old_items" not in Encoder.from_pretrained(first).info
    assert "Items of older versions" not in (first / "README.md").read_text()


def test_versions_before_the_parent_are_found_beside_it(first, second, third, tmp_path):
    info = Encoder.from_pretrained(third).info
    assert [(one["name"], one["version"]) for one in info["old_items"]] == [("2", 2), ("1", 1)]
    assert all("kind" in one for one in info["old_items"])
    shutil.copytree(second, tmp_path / "2")
    new, images = Encoder.from_pretrained(third), made_images(30)
    parent = read_parent(tmp_path / "2")
    alone = measure_old_items(parent, new, images, CPU)
    assert "kind" in alone[0]
    assert alone[1]["not_measured"] == "no folder of this name and with these weights is beside 2"
    shutil.copytree(second, tmp_path / "1")  # the right name, other weights
    assert "not_measured" in measure_old_items(parent, new, images, CPU)[1]
    parent.encoder.info["parent"]["name"] = "../1"
    assert "not_measured" in measure_old_items(replace(parent), new, images, CPU)[1]


def test_what_an_update_prints(second, third, capsys):
    info = Encoder.from_pretrained(third).info
    print_version(third, info, json=False)
    text = capsys.readouterr().out
    assert "version 2: " in text
    assert "exposure not measured: that takes about 170 pairs" in text
    assert "gallery register" in text
    few = {"name": "1", "version": 1, "not_measured": "7 images held out or kept, at least 20 are needed"}
    measured = {**info["old_items"][0], "exposure": {"1": 0.97, "10": None}, "exposure_without": {"1": 0.01, "10": 0.2}}
    print_version(third, {**info, "old_items": [{**measured, "kind": "rotation"}, few]}, json=False)
    text = capsys.readouterr().out
    assert "0.97 at 1, unknown at 10 (0.01, 0.20 without)" in text
    assert "version 1: not measured: 7 images held out or kept, at least 20 are needed" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80 or str(third) in text
    print_version(third, info, json=True)
    assert json.loads(capsys.readouterr().out)["old_items"] == info["old_items"]

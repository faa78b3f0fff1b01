"""The bench of feature lengths measures raw features of the models that a run left."""

import json
import sys
from pathlib import Path

import pytest
import torch

from holdfast import Encoder, Preprocess, build_backbone
from holdfast.train.data import ImageSet

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def feature_length(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import feature_length

    return feature_length


@pytest.fixture
def encoder():
    backbone = build_backbone("small", in_channels=3, width=8)
    return Encoder(backbone, dim=99, preprocess=Preprocess(size=32, mean=(0.5,) * 3, std=(0.25,) * 3)).eval()


def some_images(count):
    random = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 32, 32, 3), dtype=torch.uint8, generator=random).numpy()
    return ImageSet(pixels, torch.arange(count).numpy() % 2, ("a", "b"), "made up")


def test_longer_features_are_found_longer(feature_length, encoder):
    images = some_images(7)
    before = feature_length.mean_length(encoder, images, 7)
    with torch.no_grad():
        pixels = torch.from_numpy(images.images).permute(0, 3, 1, 2)
        raw = encoder(encoder.preprocess.normalise(pixels)).norm(dim=1)
        assert before == pytest.approx(raw.mean().item(), rel=1e-5)
        assert feature_length.mean_length(encoder, images, 2) == pytest.approx(raw[[0, 6]].mean().item(), rel=1e-5)
        encoder.projection.weight.mul_(3)
    assert feature_length.mean_length(encoder, images, 7) == pytest.approx(3 * before, rel=1e-5)


def test_the_projections_largest_singular_value(feature_length, encoder):
    with torch.no_grad():
        encoder.projection.weight.zero_()
        encoder.projection.weight[3, 5] = -4
    assert feature_length.largest_singular_value(encoder) == pytest.approx(4)
    assert feature_length.largest_singular_value(Encoder(build_backbone("small", in_channels=3, width=8))) == 1


def test_a_whole_run(feature_length, monkeypatch, tmp_path, tiny_run, capsys):
    words = [str(tiny_run), "--images", "5", "--device", "cpu", "--json", str(tmp_path / "x.json")]
    monkeypatch.setattr(sys, "argv", ["feature_length.py", *words])
    feature_length.main()
    rows = json.loads((tmp_path / "x.json").read_text())["rows"]
    assert [(row["run"], row["model"]) for row in rows] == [("tiny", 1), ("tiny", 2), ("tiny", 3)]
    assert len({row["length"] for row in rows}) == 3
    assert len(capsys.readouterr().out.splitlines()) == 3

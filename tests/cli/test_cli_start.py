"""``holdfast start`` on images prints how good its model is."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from holdfast.cli import app

QUICK = ("backbone.name=small", "backbone.width=4", "train.epochs=1", "data.size=16", "held_out.share=0.4")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    top = tmp_path_factory.mktemp("photos")
    draw = np.random.default_rng(0)
    for name, base in (("dark", 40), ("bright", 180)):
        (top / name).mkdir()
        for number in range(12):
            pixels = draw.integers(base, base + 60, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(top / name / f"{number}.png")
    return top


def typed(*words):
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*map(str, words), "--device", "cpu"])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_accuracy_is_printed_and_in_the_json(data, tmp_path):
    settings = [word for setting in QUICK for word in ("--set", setting)]
    words = ("start", "--data", data, "--out", tmp_path / "1", *settings)
    text = typed(*words)
    said = " ".join(text.split())
    assert "Accuracy, trained classes: the nearest neighbour is right for" in said
    assert "by raw pixels" in said
    assert "replayed" not in said  # there is nothing to replay before the first version
    found = json.loads(typed(*words, "--json"))["accuracy"]["known classes"]
    assert found["queries"] > 0
    assert f"of {found['queries']} held-out images" in said


def test_a_network_by_name(data, tmp_path):
    settings = [word for setting in QUICK[1:] for word in ("--set", setting)]
    typed("start", "--data", data, "--out", tmp_path / "1", "--backbone", "small", *settings)
    recipe = (tmp_path / "1" / "recipe.toml").read_text(encoding="utf-8")
    assert 'name = "small"' in recipe
    assert 'optimizer = "adamw"' in recipe


def test_without_held_out_images_nothing_is_claimed(data, tmp_path):
    settings = [word for setting in (*QUICK[:4], "held_out.share=0") for word in ("--set", setting)]
    text = typed("start", "--data", data, "--out", tmp_path / "model 1", *settings)
    assert "Accuracy: not measured" in text
    assert f"Next: holdfast update --from '{tmp_path / 'model 1'}' --data NEW_IMAGES --out NEXT\n" in text

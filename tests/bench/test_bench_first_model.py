"""The bench of the default model: its classes never overlap, and its hand-made features are what it says they are."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holdfast.train.versions import version_defaults

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    sys.modules.pop("first_model", None)
    import first_model

    return first_model


def test_no_class_is_both_tuned_on_and_measured(bench):
    sets = [bench.classes_of("validation", seed) for seed in (0, 1)]
    sets += [bench.classes_of("measured", seed) for seed in (0, 1, 2)]
    assert sorted(np.concatenate(sets).tolist()) == list(range(100))
    for part, seed in (("validation", 2), ("measured", 3), ("measured", -1)):
        with pytest.raises(SystemExit):
            bench.classes_of(part, seed)


def test_colours_are_counted_in_their_bins_and_cells(bench):
    pixels = np.zeros((2, 32, 32, 3), np.uint8)
    pixels[0, :16, :16] = (255, 0, 0)  # hue 0, full saturation and value, in the first of four cells
    pixels[1, :, :] = (0, 255, 0)  # hue 1/3
    found = bench.colour_histograms(pixels) ** 2
    table = found.reshape(2, 4, 8, 3, 3)
    assert table.sum() == pytest.approx(2 * 32 * 32)
    assert table[0, 0, 0, 2, 2] == pytest.approx(256)
    assert table[0, 1:, 0, 0, 0] == pytest.approx(np.full(3, 256))  # black
    assert table[1, :, 2, 2, 2] == pytest.approx(np.full(4, 256))


def test_gradients_have_the_direction_of_the_edge(bench):
    pixels = np.zeros((2, 32, 32, 3), np.uint8)
    pixels[0, :, 16:] = 255  # brighter to the right: direction 0
    pixels[1, 16:, :] = 255  # brighter downwards: a quarter turn
    found = bench.gradient_histograms(pixels, directions=4).reshape(2, -1, 4).sum(axis=1)
    assert found.argmax(axis=1).tolist() == [0, 1]
    np.testing.assert_allclose(np.sort(found, axis=1)[:, :-1], 0, atol=1e-5)


def test_the_whole_measurement(bench, monkeypatch):
    monkeypatch.setattr(version_defaults, "FEWEST_EPOCHS", 1)
    monkeypatch.setattr(version_defaults, "MOST_EPOCHS", 1)
    draw = np.random.default_rng(0)
    labels = np.repeat([3, 5], 30)
    bright = np.where(labels == 3, 40, 150)[:, None, None, None]
    pixels = (draw.integers(0, 60, (60, 32, 32, 3)) + bright).astype(np.uint8)
    found = bench.measure(pixels, labels, np.array([3, 5]), 0, 20, 10)
    assert (found["images"], found["queries"], found["epochs"]) == (40, 20, 1)
    assert set(found["accuracy"]) == {"model", "hand-made", "raw pixels"}
    assert found["accuracy"]["hand-made"] > 0.8
    above = 100 * (found["accuracy"]["model"] - found["accuracy"]["hand-made"])
    assert found["points above hand-made"] == pytest.approx(above, abs=0.01)
    assert found["printed by start"]["known classes"]["raw_is"] == "pixels"


def test_an_update_after_a_share_of_the_steps(bench, monkeypatch):
    import update_steps

    monkeypatch.setattr(version_defaults, "FEWEST_EPOCHS", 2)
    monkeypatch.setattr(version_defaults, "MOST_EPOCHS", 2)
    for name, images in (("FIRST", 4), ("MORE", 2), ("QUERIES", 2)):
        monkeypatch.setattr(update_steps, name, images)
    labels = np.repeat(np.arange(100), 8)
    pixels = np.random.default_rng(0).integers(0, 256, (800, 32, 32, 3)).astype(np.uint8)
    whole, half = update_steps.measure(pixels, labels, 0, [1.0, 0.5])
    assert [row["epochs"] for row in (whole, half)] == [2, 1]
    assert whole["steps"] == 2 * half["steps"]
    old = "known classes, old queries and gallery"
    assert whole[old] == half[old]
    assert update_steps.accuracy(np.eye(2), np.array([0, 1]), np.eye(2), np.array([0, 0])) == 0.5


def test_methods_for_a_network_without_trained_weights(bench, monkeypatch):
    import scratch_method

    monkeypatch.setattr(version_defaults, "FEWEST_EPOCHS", 1)
    monkeypatch.setattr(version_defaults, "MOST_EPOCHS", 1)
    for name, images in (("FIRST", 4), ("MORE", 2), ("QUERIES", 2), ("OTHERS", 4), ("PAIRS", 60)):
        monkeypatch.setattr(scratch_method, name, images)
    labels = np.repeat(np.arange(100), 8)
    pixels = np.random.default_rng(0).integers(0, 256, (800, 32, 32, 3)).astype(np.uint8)
    simplex, distilled, plain = scratch_method.measure(pixels, labels, 0)
    assert [row["training"] for row in (simplex, distilled, plain)] == list(scratch_method.METHODS)
    assert plain["settings"] == {"method": "distillation", "features_weight": 0.0, "logits_weight": 0.0}
    for group in ("known", "others"):
        # Both begin with the same version 1, d-Simplex-HOC with its own.
        assert distilled[f"{group}: version 1"] == plain[f"{group}: version 1"]
    scores = [name for name in plain if ": " in name]
    assert any(distilled[name] != plain[name] for name in scores)
    assert "new: version 1" not in simplex


def test_photographs_after_fewer_steps(bench, monkeypatch, tmp_path):
    import photograph_steps

    for name, number in (("DRAWN_FROM", 6), ("CLASSES", 3), ("KNOWN", 2)):
        monkeypatch.setattr(photograph_steps, name, number)
    monkeypatch.setattr(version_defaults, "FEWEST_EPOCHS", 1)
    draw = np.random.default_rng(0)
    for part in ("train", "test"):
        for one in range(6):
            folder = tmp_path / part / f"class {one}"
            folder.mkdir(parents=True)
            for number in range(10):
                pixels = (draw.integers(0, 20, (80, 80, 3)) + 40 * one).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.jpg")
    found = photograph_steps.measure(tmp_path, 2, 1, 4)
    assert (found["seed"], found["steps"], found["epochs"]) == (1, 4, 4)
    assert found["queries"] == [10, 10]
    for name in ("known classes, old queries and index", "new classes, new queries and index"):
        assert 0 <= found[name] <= 1
    assert found["known classes, new queries and index"] > 0.6

"""The bench of compact features says what it compared, and counts the basis that a compact gallery needs."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from holdfast import Encoder, Preprocess, build_backbone

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def compact(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import compact

    return compact


@pytest.fixture
def found(compact, monkeypatch, tmp_path, capsys):
    """Runs the script; gives the text of its JSON file and what it printed."""

    def run(*words):
        words = [*words, "--repeats", "1", "--device", "cpu", "--json", str(tmp_path / "x.json")]
        monkeypatch.setattr(sys, "argv", ["compact.py", *words])
        compact.main()
        return (tmp_path / "x.json").read_text(), capsys.readouterr().out

    return run


def test_the_basis_is_counted(found):
    sizes = ["--slots", "401", "--backbone-dim", "10", "--items", "50", "--queries", "5"]
    text, printed = found(*sizes)
    bytes_of = json.loads(text)["found"]
    assert (bytes_of["full_bytes"], bytes_of["stored_bytes"], bytes_of["basis_bytes"]) == (80_000, 2_000, 16_000)
    assert bytes_of["times_smaller"] == 40
    assert bytes_of["times_smaller_with_basis"] == pytest.approx(80 / 18)
    assert bytes_of["items_for_times"] == 667  # 25 x 400 x 10 / (400 - 250) = 666.7
    assert "times_smaller_with_basis 4.444" in printed
    assert json.loads(text)["options"]["models"] is None


@pytest.mark.parametrize(("full", "stored", "times"), [(21_999, 768, 25.0), (1023, 512, 1.9), (400, 10, 25.0)])
def test_so_many_items_and_not_one_less(compact, full, stored, times):
    items = compact.items_for(times, full, stored)
    factor = [n * full / (n * stored + full * stored) for n in (items - 1, items)]
    assert factor[0] < times <= factor[1]
    assert compact.items_for(full / stored, full, stored) is None


def test_models_are_named_and_places_are_not(found, tmp_path):
    random = np.random.default_rng(0)
    images = {f"{split}_x": random.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8) for split in ("train", "test")}
    labels = {f"{split}_y": np.arange(20) % 10 for split in ("train", "test")}
    np.savez(tmp_path / "cifar10.npz", **images, **labels, class_names=np.array(list("abcdefghij")))
    preprocess = Preprocess(size=32, mean=(0.5,) * 3, std=(0.5,) * 3)
    for name, backbone in (("old-model", "resnet32"), ("new-model", "resnet18")):
        folder = tmp_path / "somewhere" / name
        Encoder(build_backbone(backbone), 599, preprocess=preprocess).save_pretrained(folder)
    folders = [str(tmp_path / "somewhere" / name) for name in ("old-model", "new-model")]
    text, printed = found("--data", str(tmp_path), "--models", *folders, "--items", "20", "--queries", "20")
    record = json.loads(text)
    assert record["options"]["models"] == ["old-model", "new-model"]
    assert record["sides"] == {
        "gallery": {"backbone": "resnet32", "feature_dim": 64, "dim": 599},
        "queries": {"backbone": "resnet18", "feature_dim": 512, "dim": 599},
    }
    assert record["found"]["score_error"] < 1e-5
    assert str(tmp_path) not in text
    assert "queries            backbone resnet18, feature_dim 512, dim 599" in printed

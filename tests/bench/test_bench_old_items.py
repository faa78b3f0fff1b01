"""The bench of old items agrees with a search of all vectors one by one, and works on copies."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast import Encoder, Gallery, Preprocess, build_backbone
from holdfast.gallery import Item
from holdfast.train.scenarios import SlotRegistry

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def old_items(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import old_items

    return old_items


def make_model(folder, seed):
    torch.manual_seed(seed)
    preprocess = Preprocess(size=16, mean=(0.2,), std=(0.3,), colour="grey")
    info = {"slots": SlotRegistry(60).take_left(["a", "b"]).to_json()}
    Encoder(build_backbone("small", width=8), 59, preprocess=preprocess, info=info).save_pretrained(folder)
    return folder


@pytest.fixture
def made(tmp_path):
    """A gallery of 30 items by each of two models, a folder of 12 queries, and the second model."""
    random = np.random.default_rng(0)
    files = []
    for n in range(72):
        file = tmp_path / ("items" if n < 60 else "queries") / f"class{n % 3}" / f"{n}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        # Stripes, so that the features of these untrained models differ.
        stripes = 128 + 100 * np.sin(np.arange(16) * (1 + n % 3 + random.random()))
        Image.fromarray((stripes[None] + random.normal(0, 20, (16, 16))).clip(0, 255).astype(np.uint8)).save(file)
        files.append(file)
    models = [make_model(tmp_path / f"m{seed}", seed) for seed in (1, 2)]
    items = [Item(file.name, path=file, label=file.parent.name) for file in files[:60]]
    with Gallery.create(tmp_path / "g", models[0], device="cpu") as gallery:
        gallery.add(items[:30])
        gallery.register(models[1], force=True, bridge="none")
        gallery.add(items[30:])
    return tmp_path / "g", tmp_path / "queries", models[1]


def test_shares_by_hand(old_items, made):
    gallery, queries, model = made
    found = old_items.measure(gallery, queries, resamples=20)
    encoder = Encoder.from_pretrained(model)
    assert encoder.preprocess is not None
    with Gallery.open(gallery, device="cpu") as left:
        stats = left.stats()["versions"]
        assert [row["items"] for row in stats] == [30, 30]  # only copies were backfilled
    items = sorted((queries.parent / "items").glob("*/*"), key=lambda file: int(file.stem))
    asked = sorted(queries.glob("*/*"))
    z, q = (encoder.encode(torch.cat([encoder.preprocess(file) for file in part])) for part in (items, asked))
    best = (q @ z.T).topk(10).indices
    for row, is_own in zip(found["versions"], (best < 30, best >= 30), strict=True):
        assert row["share"] == 0.5
        assert row["fair@10"] == pytest.approx(float(is_own.double().mean()))
        assert row["fair@1"] == pytest.approx(float(is_own[:, 0].double().mean()))
        assert row["bridged@10"] == row["plain@10"]  # registered without a bridge
        assert row["bridged@10"]["low"] <= row["bridged@10"]["ratio"] <= row["bridged@10"]["high"]
    right = [items[first].parent.name == file.parent.name for first, file in zip(best[:, 0], asked, strict=True)]
    assert found["ways"]["re-embedded"] == {"accuracy": pytest.approx(np.mean(right)), "overlap@10": 1}
    places = [row["fair@10"] * row["bridged@10"]["ratio"] for row in found["versions"]]
    assert sum(places) == pytest.approx(1)


def test_what_is_printed_and_written(old_items, made, monkeypatch, tmp_path, capsys):
    gallery, queries, _ = made
    words = [str(gallery), str(queries), "--resamples", "5", "--threads", "1", "--json", str(tmp_path / "x.json")]
    monkeypatch.setattr(sys, "argv", ["old_items.py", *words])
    old_items.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "60 items, 12 queries"
    assert [line.split()[0] for line in lines[1:4]] == ["bridged", "plain", "re-embedded"]
    text = (tmp_path / "x.json").read_text()
    assert str(tmp_path) not in text
    assert [row["version"] for row in json.loads(text)["versions"]] == [1, 2]

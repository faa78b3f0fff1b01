"""``holdfast gallery register`` with bridges: what it prints, and what search, versions and stats show afterwards."""

import re

import numpy as np
import pytest
import torch

from holdfast.bridges import ScoreScale
from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder, Preprocess, build_backbone

pytest.importorskip("qdrant_edge")


@pytest.fixture
def two_models(tmp_path):
    """A gallery of 400 items by a model with 16 numbers, a model with 24, and its vectors of all items in a file."""
    rng = np.random.default_rng(0)
    seen = rng.standard_normal((400, 10))
    for name, width in (("old", 4), ("new", 6)):
        torch.manual_seed(width)
        preprocess = Preprocess(size=16, mean=(0.5,), std=(0.5,), colour="grey")
        Encoder(build_backbone("small", width=width), preprocess=preprocess).save_pretrained(tmp_path / name)
        vectors = seen @ rng.standard_normal((10, 4 * width)) + 0.2 * rng.standard_normal((400, 4 * width))
        np.savez(tmp_path / f"{name}.npz", features=vectors.astype(np.float32), ids=np.arange(400))
    return tmp_path


@pytest.fixture
def filled(two_models, holdfast):
    folder = two_models / "g"
    holdfast("gallery", "create", folder, "--model", two_models / "old")
    holdfast("gallery", "add", folder, two_models / "old.npz", "--version", "1")
    return folder


def fits(text):
    assert max(len(line) for line in text.splitlines() if "/" not in line) <= 80  # lines with paths may be longer
    return text


def test_register_search_versions_and_stats(filled, two_models, holdfast, holdfast_json):
    new = two_models / "new.npz"
    with pytest.raises(HoldfastError, match=r"features of 24 numbers, the gallery's have 16\); 0 items of version 1"):
        holdfast("gallery", "register", filled, two_models / "new")
    printed = fits(holdfast("gallery", "register", filled, two_models / "new", "--new-vectors", new))
    assert re.search(r"version 1: (rotation|local) from 400 pairs; overlap@10 0\.", printed)
    assert re.search(
        r"expected exposure of its items: [01]\.\d\d at 1, [01]\.\d\d at 10 \(not found without\)", printed
    )
    assert "1 = shown as often as after re-embedding" in printed
    holdfast("gallery", "add", filled, new, "--version", "2", "--meta", "n=1")
    holdfast("gallery", "add", filled, two_models / "old.npz", "--version", "1", "--meta", "n=2")
    np.savez(two_models / "some.npz", features=np.load(new)["features"][:200], ids=np.arange(200))
    holdfast("gallery", "add", filled, two_models / "some.npz", "--version", "2")

    (record,) = holdfast_json("gallery", "versions", filled)[1]["bridges"]
    assert (record["version"], record["pairs"]) == (1, 400)
    assert holdfast_json("gallery", "stats", filled)["versions"][1]["bridges"] == [record]
    hits = holdfast_json("gallery", "search", filled, "--id", "5", "--k", "50")
    assert {hit["version"] for hit in hits} == {1, 2}
    scale = ScoreScale.from_json(record["scale"])
    for hit in hits:
        expected = hit["cosine"] if hit["version"] == 2 else scale.score(hit["cosine"])
        assert hit["score"] == pytest.approx(expected, abs=1e-6)
    assert "cosine" in holdfast("gallery", "search", filled, "--id", "5")
    assert "cosine" not in holdfast("gallery", "search", filled, "--id", "5", "--indexed-by", "2")
    kind = record["kind"]
    assert f"bridges of version 2:\nversion 1: {kind} from 400 pairs" in fits(holdfast("gallery", "versions", filled))
    shown = fits(holdfast("gallery", "stats", filled))
    assert f"queries of version 2 on items of older versions:\nversion 1: {kind} from 400 pairs" in shown

"""Killed at random moments of a registration with bridges, the gallery is in its old state or in the new one."""

import os
import random
from collections import Counter

import numpy as np
import pytest

from holdfast import Gallery
from holdfast.bridges import Bridge
from holdfast.gallery import Item
from holdfast.train.encoders import Encoder

pytest.importorskip("qdrant_edge")

KILLS = int(os.environ.get("HOLDFAST_KILLS", "20"))

REGISTER = """
torch.set_num_threads(1)
with Gallery.open(folder, device="cpu") as gallery:
    note("open")
    gallery.register(model, bridge="rotation", force=True, progress=lambda *figures: note(*figures))
    note("registered")
    import time
    time.sleep(60)
"""
NOTES = 9  # one of embedding, three of the bridges, three of the check, then "registered", then it waits


@pytest.mark.parametrize("trials", [2, pytest.param(KILLS, marks=pytest.mark.slow)])
def test_killed_while_a_model_is_registered(model_folders, picture_files, pictures, nursery, tmp_path, trials):
    folder = tmp_path / "g"
    (query,) = Encoder.from_pretrained(model_folders[0]).encode(pictures[100]).numpy()
    ids = [f"{copy}/{n}" for copy in range(3) for n in range(40)]
    with Gallery.create(folder, model_folders[0]) as gallery:
        gallery.add(
            Item(one, path=picture_files[int(one.split("/")[1])], label=f"c{int(one.split('/')[1]) % 4}") for one in ids
        )
        before = [(hit.id, hit.score) for hit in gallery.search(vector=query, version=1, k=200)]
    moments, states = random.Random(0), Counter()
    for _ in range(trials):
        words = {"folder": str(folder), "model": str(model_folders[1])}
        lines = nursery.run_and_kill(REGISTER, moments, NOTES, **words)
        assert not any(line.startswith("raised") for line in lines), lines
        with Gallery.open(folder) as gallery:
            numbers = [one.number for one in gallery.versions()]
            assert sorted(path.name for path in (folder / "versions").iterdir()) == [f"{one:04d}" for one in numbers]
            assert gallery._state.engine.collections() == [one.collection for one in gallery.versions()]
            assert [(hit.id, hit.score) for hit in gallery.search(vector=query, version=1, k=200)] == before
            states[len(numbers)] += 1
            if "registered" in lines:
                assert len(numbers) == 2
            if len(numbers) == 2:
                check_new_state(gallery, folder, numbers[1], ids)
                assert gallery.rollback()["finished"]
            assert gallery.stats()["items"] == len(ids)
    assert sum(states.values()) == trials
    if trials >= 20:
        assert states[1] >= 1
        assert states[2] >= 1


def check_new_state(gallery, folder, number, ids):
    """Both bridges are whole, and queries of the new version use them."""
    version = gallery.newest()
    assert version.number == number
    assert [record["version"] for record in version.bridges] == [1]
    bridges = folder / "versions" / f"{number:04d}" / "bridges"
    assert sorted(path.name for path in bridges.iterdir()) == ["from-0001", "to-0001"]
    bridge = Bridge.load(bridges / "to-0001")
    query = np.ones(version.stored_dim, dtype=np.float32)
    hits = gallery.search(vector=query, k=200)
    assert sorted(hit.id for hit in hits) == sorted(ids)
    best = gallery.search(vector=bridge.transform(query[None])[0], version=1, k=200)
    assert [hit.cosine for hit in hits] == pytest.approx([hit.cosine for hit in best], abs=1e-5)
    assert [hit.score for hit in hits] == pytest.approx([bridge.scale.score(hit.cosine) for hit in hits], abs=1e-5)

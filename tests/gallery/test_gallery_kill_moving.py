"""Killed at random moments of backfill, rollback and registration, every item is there once, whole, in one version."""

import os
import random
from collections import Counter

import numpy as np
import pytest

from holdfast import Gallery
from holdfast.gallery import Item
from holdfast.train.encoders import Encoder

pytest.importorskip("qdrant_edge")

KILLS = int(os.environ.get("HOLDFAST_KILLS", "8"))
COPIES = 5

ROUND = """
torch.set_num_threads(1)
with Gallery.open(folder, device="cpu") as gallery:
    note("open")
    while True:
        if len(gallery.versions()) == 1:
            gallery.register(model, bridge="none")  # so that scores are plain cosines
            note("registered")
        done = gallery.backfill(progress=lambda state: note("moved", state.progress.moved))
        if gallery.models.rollback_version is None:
            note("backfilled", done.progress.moved)
        gallery.rollback(progress=lambda state: note("back", state.moved))
        note("rolled back")
"""


@pytest.mark.parametrize("trials", [2, pytest.param(KILLS, marks=pytest.mark.slow)])
def test_killed_while_items_move(model_folders, picture_files, pictures, nursery, tmp_path, trials):
    """Rounds of register, backfill, rollback; killed until both backfill and rollback were hit often enough."""
    folder = tmp_path / "g"
    encoders = [Encoder.from_pretrained(model) for model in model_folders[:2]]
    old, new = (encoder.encode(pictures[:40]).numpy() for encoder in encoders)
    (query,) = encoders[0].encode(pictures[100]).numpy()
    items = [
        Item(f"{copy}/{n}", path=file, metadata={"copy": copy})
        for copy in range(COPIES)
        for n, file in enumerate(picture_files)
    ]
    with Gallery.create(folder, model_folders[0]) as gallery:
        gallery.add(items)
    moments, hit = random.Random(1), Counter()
    while min(hit["backfill"], hit["rollback"]) < trials:
        assert sum(hit.values()) < 20 * trials, hit
        lines = nursery.run_and_kill(ROUND, moments, 12, folder=str(folder), model=str(model_folders[1]))
        assert not any(line.startswith("raised") for line in lines), lines
        with Gallery.open(folder) as gallery:
            hit[stage(gallery)] += 1
            there = gallery.get([item.id for item in items])
            assert len(there) == len(items)
            assert all(there[item.id]["metadata"] == item.metadata for item in items)
            hits = gallery.search(vector=query, version=1, k=1000, exact=True)
            assert sorted(one.id for one in hits) == sorted(there)
            assert all(one.version == there[one.id]["version"] for one in hits)
            places = [int(one.id.split("/")[1]) for one in hits]
            first = min(one.number for one in gallery.versions())
            rows = [old[n] if one.version == first else new[n] for n, one in zip(places, hits, strict=True)]
            np.testing.assert_allclose([one.score for one in hits], np.stack(rows) @ query, atol=1e-5)
            rows = gallery.stats()["versions"]
            assert [row["vectors"] for row in rows] == [row["items"] for row in rows]
            assert gallery._state.catalogue.unsettled() == {}
            assert gallery._state.engine.collections() == [one.collection for one in gallery.versions()]


def stage(gallery: Gallery) -> str:
    """What the process was doing when it was killed, as far as the gallery can tell."""
    if gallery.models.rollback_version is not None:
        return "rollback"
    counts = [row["items"] for row in gallery.stats()["versions"]]
    return "backfill" if len(counts) == 2 and all(counts) else "between"

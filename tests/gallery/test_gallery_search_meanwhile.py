"""Searches while an index is built and while versions are registered."""

import threading
import time

import numpy as np
import pytest

from holdfast import Gallery
from holdfast.gallery import Item

pytest.importorskip("qdrant_edge")


def test_hnsw_finds_what_exact_search_finds(model_folders, tmp_path):
    """6,000 vectors in clusters; recall@10 of the index against exact search."""
    folder = model_folders[0]
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((200, 32)).astype(np.float32)
    some = centres[rng.integers(0, 200, 6_100)] + 0.6 * rng.standard_normal((6_100, 32)).astype(np.float32)
    with Gallery.create(tmp_path / "g", folder) as gallery:
        asked = threading.Event()
        longest = []

        def ask():
            while not asked.is_set():
                started = time.monotonic()
                assert len(gallery.search(vector=some[0])) == 10
                longest.append(time.monotonic() - started)

        gallery.add((Item(str(i), vector=v) for i, v in enumerate(some[:4_900])), batch_size=2000)
        assert gallery.stats()["versions"][0]["unindexed"] == 4900
        thread = threading.Thread(target=ask)
        thread.start()
        started = time.monotonic()
        gallery.add((Item(str(i), vector=v) for i, v in enumerate(some[4_900:6_000], 4_900)), batch_size=2000)
        built = time.monotonic() - started
        asked.set()
        thread.join()
        assert max(longest) < built / 2  # searches go on while the index is built
        assert gallery.stats()["versions"][0]["unindexed"] == 0
        shares = []
        for query in some[6_000:]:
            near, truth = gallery.search(vector=query), gallery.search(vector=query, exact=True)
            shares.append(len({hit.id for hit in near} & {hit.id for hit in truth}) / 10)
        assert np.mean(shares) >= 0.98
        gallery.add([Item("late", vector=some[0])])
        gallery.delete(["0"])
    with Gallery.open(tmp_path / "g") as again:
        assert again.stats()["versions"][0]["unindexed"] == 1
        assert again.search(vector=some[0], k=1)[0].id == "late"


def test_searches_do_not_wait_for_a_query_of_all_items(model_folders, tmp_path):
    """As a backfill and a rollback have them; this one takes a second or two and reads no item."""
    slow = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 5000000) SELECT count(*) FROM n"
    with Gallery.create(tmp_path / "g", model_folders[0]) as gallery:
        gallery.add([Item("a", vector=np.ones(32))])
        reading = threading.Thread(target=gallery._state.catalogue.read, args=(slow,))
        reading.start()
        time.sleep(0.1)
        assert [hit.id for hit in gallery.search(vector=np.ones(32))] == ["a"]
        gallery.add([Item("b", vector=np.ones(32))])
        assert reading.is_alive()
        reading.join()

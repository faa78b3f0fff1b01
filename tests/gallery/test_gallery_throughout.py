"""Searches while versions come, items move and versions go: never an error, every item once, scores by brute force."""

import threading
import time

import numpy as np
import pytest

from holdfast import Gallery
from holdfast.encoders import Encoder
from holdfast.errors import HoldfastError
from holdfast.gallery import Item

pytest.importorskip("qdrant_edge")


class Watch:
    """Threads that search until they are told to stop and hold every answer against all features by all versions."""

    def __init__(self, gallery, full, ids, pictures):
        self.gallery, self.full, self.ids = gallery, full, ids
        self.stop, self.wrong, self.answers, self.seen = threading.Event(), [], 0, set()
        asks = (self.by_vector, lambda: self.by_image(pictures[140]), lambda: self.by_id(ids[3]))
        self.threads = [threading.Thread(target=self.go_on, args=(ask,)) for ask in asks]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def go_on(self, ask):
        while not self.stop.is_set():
            try:
                ask()
                self.answers += 1
            except Exception as error:
                self.wrong.append(repr(error))

    def by_vector(self):
        query = self.full[1][140]
        self.judge(self.gallery.search(vector=query, version=1, k=500, exact=True), [query], self.ids)

    def by_image(self, picture):
        self.judge(self.gallery.search(picture, k=500, exact=True), [z[140] for z in self.full.values()], self.ids)

    def by_id(self, name):
        rest = [one for one in self.ids if one != name]
        queries = [z[int(name)] for z in self.full.values()]
        self.judge(self.gallery.search(id=name, k=500, exact=True), queries, rest)

    def judge(self, hits, queries, ids):
        """Every id once, best first, each score the cosine with that item's feature by the version the hit names.

        queries: what the newest version at that moment, whichever it was, may have made of what was asked.
        """
        self.seen |= {frozenset(hit.version for hit in hits)}
        if sorted(hit.id for hit in hits) != sorted(ids):
            self.wrong.append(f"{len(hits)} hits, {len({hit.id for hit in hits})} ids")
        scores = np.array([hit.score for hit in hits])
        if (np.diff(scores) > 0).any():
            self.wrong.append("not in order")
        features = np.stack([self.full[hit.version][int(hit.id)] for hit in hits])
        if min(np.abs(features @ query - scores).max() for query in queries) > 1e-5:
            self.wrong.append("other scores than brute force")


@pytest.mark.parametrize("mode", ["exact", pytest.param("hnsw", marks=pytest.mark.slow)])
def test_register_backfill_and_rollback_under_searches(
    model_folders, picture_files, pictures, tmp_path, mode, monkeypatch
):
    if mode == "hnsw":
        monkeypatch.setattr("holdfast.gallery.state.INDEX_FROM", 35)  # so that indexes are built on the way
    full = {n: Encoder.from_pretrained(folder).encode(pictures).numpy() for n, folder in enumerate(model_folders, 1)}
    ids = [str(n) for n in range(40)]
    with Gallery.create(tmp_path / "g", model_folders[0], mode=mode) as gallery:
        gallery.add(Item(name, path=file) for name, file in zip(ids, picture_files, strict=True))
        with Watch(gallery, full, ids, pictures) as watch:
            for folder in model_folders[1:]:
                gallery.register(folder)
                gallery.backfill(rate=100, limit=15, probes=0)
                gallery.backfill(rate=200, probes=0)
            assert gallery.rollback(rate=100)["newest"] == 2
            assert gallery.rollback()["newest"] == 1
        assert watch.wrong == []
        assert watch.answers > 20
        assert {1, 2} in watch.seen
        assert [(row["items"], row["vectors"]) for row in gallery.stats()["versions"]] == [(40, 40)]


def test_a_search_that_a_whole_rollback_falls_into(model_folders, picture_files, pictures, tmp_path, monkeypatch):
    """It has looked into version 1, then all items move there from version 2, which is taken out: none is missed."""
    with Gallery.create(tmp_path / "g", model_folders[0]) as gallery:
        gallery.register(model_folders[1])
        gallery.add(Item(file.stem, path=file) for file in picture_files)
        search, roll_back = gallery._state.engine.search, threading.Thread(target=gallery.rollback)

        def interrupted(collection, *words, **options):
            found = search(collection, *words, **options)
            if not roll_back.ident:
                assert (collection, found) == ("v0001", [])
                roll_back.start()
                while [one.number for one in gallery.versions()] != [1]:
                    time.sleep(0.01)
                roll_back.join(timeout=0.2)
                assert roll_back.is_alive()  # it waits for this search, for which version 2 is still there
            return found

        monkeypatch.setattr(gallery._state.engine, "search", interrupted)
        hits = gallery.search(pictures[0], k=100)
        assert sorted(hit.id for hit in hits) == sorted(file.stem for file in picture_files)
        assert {hit.version for hit in hits} == {1}
        roll_back.join()
        assert gallery._state.engine.collections() == ["v0001"]


def test_a_version_can_be_named_while_it_is_read(model_folders, picture_files, pictures, tmp_path):
    """Whoever embeds first and searches later, as a server does, is not left with a version that is gone."""
    query = Encoder.from_pretrained(model_folders[1]).encode(pictures[140])[0].numpy()
    with Gallery.create(tmp_path / "g", model_folders[0]) as gallery:
        gallery.add(Item(file.stem, path=file) for file in picture_files)
        gallery.register(model_folders[1])
        roll_back = threading.Thread(target=gallery.rollback)
        with gallery.reading():
            expected = gallery.search(vector=query, version=2)
            roll_back.start()
            while [one.number for one in gallery.versions()] != [1]:
                time.sleep(0.01)
            assert gallery.search(vector=query, version=2) == expected
        roll_back.join()
        with pytest.raises(HoldfastError, match="unknown version '2'; known: 1"):
            gallery.search(vector=query, version=2)

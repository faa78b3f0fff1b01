"""Searches while versions come, items move and versions go: never an error, every item once, scores by brute force."""

import threading
import time

import numpy as np
import pytest

from holdfast import Gallery
from holdfast.core.errors import HoldfastError
from holdfast.gallery import Item, registration
from holdfast.gallery.gallery_versions import read_candidate
from holdfast.train.encoders import Encoder

pytest.importorskip("qdrant_edge")


class Watch:
    """Threads that search until they are told to stop and hold every answer against all features by all versions.

    bridges: by the versions of query and item; see ``KeptBridges``.
    """

    def __init__(self, gallery, full, ids, pictures, bridges=None):
        self.gallery, self.full, self.ids = gallery, full, ids
        self.bridges = {} if bridges is None else bridges
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
        self.judge(self.gallery.search(vector=query, version=1, k=500, exact=True), {1: query}, self.ids)

    def by_image(self, picture):
        queries = {number: z[140] for number, z in self.full.items()}
        self.judge(self.gallery.search(picture, k=500, exact=True), queries, self.ids)

    def by_id(self, name):
        rest = [one for one in self.ids if one != name]
        queries = {number: z[int(name)] for number, z in self.full.items()}
        self.judge(self.gallery.search(id=name, k=500, exact=True), queries, rest)

    def judge(self, hits, queries, ids):
        """Every id once, best first, each score that of that item's feature by the version the hit names.

        queries: what the newest version at that moment, whichever it was, may have made of what was asked, by version.
        """
        self.seen |= {frozenset(hit.version for hit in hits)}
        if sorted(hit.id for hit in hits) != sorted(ids):
            self.wrong.append(f"{len(hits)} hits, {len({hit.id for hit in hits})} ids")
        scores = np.array([hit.score for hit in hits])
        if (np.diff(scores) > 0).any():
            self.wrong.append("not in order")
        if min(np.abs(self.scores(hits, *query) - scores).max() for query in queries.items()) > 1e-5:
            self.wrong.append("other scores than brute force")

    def scores(self, hits, source, query):
        """Of the hits' features for a query of version ``source``: cosines, or scores by the bridge."""
        found = []
        for hit in hits:
            feature, bridge = self.full[hit.version][int(hit.id)], self.bridges.get((source, hit.version))
            if bridge is None:
                found.append(feature @ query)
            else:
                found.append(bridge(source, hit.version, query, feature))
        return np.array(found)


class KeptBridges(dict):
    """The bridges that ``register`` saves, by the versions of query and item, as functions of two full features."""

    def __init__(self, monkeypatch, model_folders):
        super().__init__()
        self.bases = {n: read_candidate(folder, None).basis for n, folder in enumerate(model_folders, 1)}
        save = registration.Finding.save

        def kept(finding, folder):
            new, old = int(folder.name), finding.old.number
            if finding.to is not None:  # a version without items has no bridge
                self[new, old], self[old, new] = self._score(finding.to), self._score(finding.back)
            save(finding, folder)

        monkeypatch.setattr(registration.Finding, "save", kept)

    def _score(self, bridge):
        asked = {}

        def score(source, target, query, feature):
            key = (source, target, query.tobytes())
            if key not in asked:
                z = query[None]
                own, other = self.bases[source], self.bases[target]
                if bridge.kind == "none":
                    bridged = z
                else:
                    bridged = bridge.transform(z if own is None else z @ own)
                    bridged = bridged if other is None else bridged @ other.T
                asked[key] = bridged[0]
            return bridge.scale.score(float(feature @ asked[key]))

        return score


@pytest.mark.parametrize("bridge", ["none", "rotation"])
@pytest.mark.parametrize("indexed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_register_backfill_and_rollback_under_searches(
    model_folders, picture_files, pictures, tmp_path, indexed, bridge, monkeypatch
):
    bridges = KeptBridges(monkeypatch, model_folders) if bridge != "none" else None
    if indexed:
        monkeypatch.setattr("holdfast.gallery.state.INDEX_FROM", 35)  # so that indexes are built on the way
    full = {n: Encoder.from_pretrained(folder).encode(pictures).numpy() for n, folder in enumerate(model_folders, 1)}
    ids = [str(n) for n in range(40)]
    with Gallery.create(tmp_path / "g", model_folders[0]) as gallery:
        gallery.add(Item(name, path=file) for name, file in zip(ids, picture_files, strict=True))
        with Watch(gallery, full, ids, pictures, bridges) as watch:
            for folder in model_folders[1:]:
                gallery.register(folder, bridge=bridge)
                gallery.backfill(rate=100, limit=15)
                gallery.backfill(rate=200)
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

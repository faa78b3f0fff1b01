"""Items embedded again by a newer version: which, in what order, how fast, and what they are afterwards."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from holdfast import Gallery
from holdfast.core.errors import HoldfastError
from holdfast.gallery import Item, backfill, reembed
from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.version_models import batch_sizes
from holdfast.train.encoders import Encoder

pytest.importorskip("qdrant_edge")


@pytest.fixture
def upgraded(model_folders, picture_files, tmp_path):
    """40 images with labels and one item without a path, all by version 1; version 2 is registered and holds none."""
    # On the CPU, where a batch is 32 items: tests count batches.
    with Gallery.create(tmp_path / "g", model_folders[0], device="cpu") as gallery:
        gallery.add(
            Item(file.stem, path=file, label=file.parent.name, metadata={"n": n})
            for n, file in enumerate(picture_files)
        )
        gallery.add([Item("bare", vector=np.ones(32))])
        gallery.register(model_folders[1], force=True, bridge="none")
        yield gallery


def test_no_list_of_all_items_is_made(upgraded, monkeypatch):
    """At ten million items such a list takes gigabytes, and sorting it stops searches for half a minute."""
    read = Catalogue.read

    def few(self, query, values=()):
        rows = read(self, query, values)
        assert len(rows) < 10, query
        return rows

    monkeypatch.setattr(Catalogue, "read", few)
    assert upgraded.backfill().progress.moved == 40
    upgraded.delete(["bare"])
    assert upgraded.rollback()["moved"] == 40


def versions_of(gallery, ids):
    return {name: item["version"] for name, item in gallery.get(list(ids)).items()}


def test_every_image_moves_and_keeps_what_it_had(upgraded, model_folders, picture_files, pictures):
    names = [file.stem for file in picture_files]
    before = upgraded.get(names)
    told = []
    done = upgraded.backfill(
        progress=lambda state: told.append((state.progress.moved, state.progress.left, state.share))
    )
    assert (done.to, done.progress.moved, done.progress.left, done.without_image) == (2, 40, 0, 1)
    assert done.share == pytest.approx(40 / 41)
    assert told == [(0, 40, 0.0), (32, 8, pytest.approx(32 / 41)), (40, 0, pytest.approx(40 / 41))]
    assert upgraded.get(names) == {name: {**item, "version": 2} for name, item in before.items()}
    assert versions_of(upgraded, ["bare"]) == {"bare": 1}
    assert [(row["items"], row["vectors"]) for row in upgraded.stats()["versions"]] == [(1, 1), (40, 40)]
    full = Encoder.from_pretrained(model_folders[1]).encode(pictures[:40]).numpy()
    query = Encoder.from_pretrained(model_folders[1]).encode(pictures[100])[0].numpy()
    hits = {hit.id: hit.score for hit in upgraded.search(pictures[100], k=100)}
    assert len(hits) == 41
    np.testing.assert_allclose([hits[name] for name in names], full @ query, atol=1e-5)
    assert [hit.id for hit in upgraded.search(pictures[7], k=1, filter={"n": 7, "label": "class3"})] == ["007"]
    again = upgraded.backfill()
    assert (again.progress.moved, again.progress.total) == (0, 0)


def test_all_items_are_counted_at_every_tenth_only(upgraded, monkeypatch):
    upgraded.backfill(limit=1)
    monkeypatch.setattr(reembed, "batch_sizes", lambda encoder: replace(batch_sizes(None), reembed=1))
    counts, batches = [], []
    count = backfill._count
    monkeypatch.setattr(backfill, "_count", lambda *words: counts.append(0) or count(*words))
    done = upgraded.backfill(progress=batches.append)
    assert (done.progress.moved, len(batches)) == (39, 40)
    assert 10 <= len(counts) <= 13


def test_each_version_is_searched_by_the_share_of_items_it_holds(upgraded, picture_files, pictures, monkeypatch):
    """An empty version takes no candidates from the others. The shares follow every change without a new count."""
    asked = []
    engine = upgraded._state.engine
    search = type(engine).search

    def watch(self, collection, *words, share, **options):
        asked.append((collection, round(share, 3)))
        return search(self, collection, *words, share=share, **options)

    monkeypatch.setattr(type(engine), "search", watch)

    def shares():
        asked.clear()
        upgraded.search(pictures[100], k=3)
        return [share for _, share in sorted(asked)]

    assert shares() == [1.0, 0.0]
    upgraded.backfill(limit=32)
    assert shares() == [round(9 / 41, 3), round(32 / 41, 3)]
    upgraded.delete(["bare"])
    upgraded.add([Item("034", path=picture_files[34]), Item("new", path=picture_files[0])])  # one is replaced
    counts = upgraded._state.catalogue.counts()
    assert shares() == [round(counts[version] / sum(counts.values()), 3) for version in (1, 2)]
    upgraded.rollback()
    assert shares() == [1.0]


def test_oldest_first_without_bridges(upgraded, model_folders, picture_files):
    upgraded.add([Item("second", path=picture_files[0])])
    upgraded.register(model_folders[2], force=True, bridge="none")
    upgraded.add([Item("late", path=picture_files[0])], version=1)
    assert upgraded.backfill(limit=3).progress.moved == 3
    found = versions_of(upgraded, [file.stem for file in picture_files])
    assert [name for name, version in found.items() if version == 3] == ["000", "001", "002"]
    done = upgraded.backfill(2, limit=100)
    assert (done.to, done.progress.moved) == (2, 38)  # version 3's three stay there: a backfill leads forward
    assert versions_of(upgraded, ["000", "003", "late", "second"]) == {"000": 3, "003": 2, "late": 2, "second": 2}


def by_errors(gallery, among):
    """Ids of items of these versions with an image, the most expected errors first; one by one."""
    rows = gallery._state.catalogue.read("SELECT id, key, version FROM items WHERE path IS NOT NULL ORDER BY key")
    values = {}
    for name, key, number in rows:
        if number in among:
            version = gallery.models.version(number)
            vector = gallery._state.engine.fetch(version.collection, [key])[key]
            bridge = gallery.models.bridge(gallery.newest(), version)
            values[name] = float(bridge.expected_errors(vector[None])[0])
    return sorted(values, key=lambda name: -values[name])


def moved_order(gallery, **options):
    """The ids in the order in which a backfill moves them, one batch of one item after the other."""
    seen = []

    def note(state):
        rows = gallery._state.catalogue.read("SELECT id FROM items WHERE version = ?", (state.to,))
        seen.extend(sorted({name for (name,) in rows} - set(seen)))

    gallery.backfill(rate=1.5, progress=note, **options)
    return seen


def test_what_the_bridges_serve_worst_comes_first(upgraded, model_folders, picture_files, pictures, monkeypatch):
    """Over two older versions with a bridge each."""
    upgraded.add([Item(f"b{n}", image=pictures[50 + n], path=picture_files[n]) for n in range(12)], version=2)
    upgraded.register(model_folders[2], force=True, bridge="rotation")
    expected = by_errors(upgraded, (1, 2))
    assert len(expected) == 52
    assert len({name[0] for name in expected[:30]}) == 2  # both versions are among the first
    monkeypatch.setattr("holdfast.gallery.reembed.RateLimit.wait", lambda self, done: None)
    assert moved_order(upgraded, limit=12) == expected[:12]
    # A second call computes the order of what is left anew.
    assert moved_order(upgraded, limit=5) == sorted(expected[:12]) + expected[12:17]
    assert upgraded.backfill().progress.left == 0


def test_versions_without_a_bridge_come_last(upgraded, model_folders, picture_files, pictures, monkeypatch):
    upgraded.register(model_folders[2], force=True, bridge="rotation")
    # Added to version 2 after the registration, so that there is no bridge to it.
    upgraded.add([Item(f"b{n}", image=pictures[50 + n], path=picture_files[n]) for n in (3, 1, 2)], version=2)
    assert [record["version"] for record in upgraded.newest().bridges] == [1]
    monkeypatch.setattr("holdfast.gallery.reembed.RateLimit.wait", lambda self, done: None)
    expected = [*by_errors(upgraded, (1,)), "b3", "b1", "b2"]
    assert moved_order(upgraded, limit=41) == expected[:41]
    # Only items without a bridge are left, and the same call continues.
    assert moved_order(upgraded) == [*sorted(expected[:41]), "b1", "b2"]


def test_a_rate_is_kept(upgraded):
    started, times = time.monotonic(), []
    done = upgraded.backfill(rate=20, limit=20, progress=lambda s: times.append(s.progress.seconds_left))
    assert done.progress.moved == 20
    assert time.monotonic() - started >= 0.95
    assert times[0] is None
    assert done.progress.seconds_left == 0


def test_it_goes_on_where_it_was_stopped(upgraded):
    stop = threading.Event()
    first = upgraded.backfill(rate=8, stop=stop, progress=lambda state: stop.set() if state.progress.moved else None)
    assert (first.progress.moved, first.progress.left) == (8, 32)
    second = upgraded.backfill()
    assert (second.progress.moved, second.progress.left) == (32, 0)


def test_what_others_changed_meanwhile_is_left_alone(upgraded, monkeypatch, pictures):
    embed, turned = upgraded.models.image_vectors, []

    def meanwhile(*given):
        if not turned:
            turned.append(True)
            upgraded.delete(["000"])
            upgraded.add([Item("001", vector=np.ones(32), label="other")], version=1)
        return embed(*given)

    monkeypatch.setattr(upgraded.models, "image_vectors", meanwhile)
    done = upgraded.backfill()
    assert (done.progress.moved, done.progress.changed, done.progress.left) == (38, 2, 0)
    assert upgraded.get(["000", "001"]) == {"001": {"version": 1, "label": "other", "metadata": {}, "path": None}}
    assert sorted(hit.id for hit in upgraded.search(pictures[0], k=100)).count("001") == 1
    assert [(row["items"], row["vectors"]) for row in upgraded.stats()["versions"]] == [(2, 2), (38, 38)]


def test_images_that_cannot_be_read_stay(upgraded, tmp_path):
    for name, content in (("gone", None), ("broken", b"not an image")):
        file = tmp_path / f"{name}.png"
        Image.new("L", (16, 16), 77).save(file)
        upgraded.add([Item(name, path=file)], version=1)
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
    done = upgraded.backfill()
    assert (done.progress.moved, done.progress.unreadable, done.progress.left) == (40, 2, 0)
    assert [bad["id"] for bad in done.progress.reasons] == ["gone", "broken"]
    assert versions_of(upgraded, ["gone", "broken"]) == {"gone": 1, "broken": 1}
    assert upgraded.backfill(limit=1).progress.unreadable == 2  # they do not use up the limit


def test_refusals(upgraded):
    for options, reason in (
        ({"to": 7}, "unknown version '7'"),
        ({"rate": 0}, "above 0"),
        ({"rate": float("nan")}, "above 0"),
        ({"limit": 0}, "at least 1"),
    ):
        with pytest.raises(HoldfastError, match=reason):
            upgraded.backfill(**options)
    seen = []

    def second(state):
        with pytest.raises(HoldfastError, match="of this gallery is running"):
            upgraded.backfill()
        with pytest.raises(HoldfastError, match="of this gallery is running"):
            upgraded.rollback()
        seen.append(state.progress.moved)

    upgraded.backfill(limit=1, progress=second)
    assert seen == [0, 1]

"""Search over several versions against brute force over full features."""

import contextlib
import threading

import numpy as np
import pytest
import torch

from holdfast import Gallery
from holdfast.core.errors import HoldfastError, UnavailableError
from holdfast.gallery import Item
from holdfast.train.encoders import Encoder

pytest.importorskip("qdrant_edge")
ENGINES = ("embedded", "postgresql")


def features(folder, count, seed):
    """Full unit features that a model could give, from random numbers of its backbone: they scatter, as images do."""
    encoder = Encoder.from_pretrained(folder)
    h = torch.randn(count, encoder.feature_dim, generator=torch.Generator().manual_seed(seed))
    z = h @ encoder.projection.weight.detach().T
    return torch.nn.functional.normalize(z, dim=1).numpy()


def brute_force(query, ids, full, k):
    scores = full.astype(np.float64) @ query.astype(np.float64)
    order = np.argsort(-scores, kind="stable")[:k]
    return [(ids[place], scores[place]) for place in order], dict(zip(ids, scores, strict=True))


def assert_same(hits, query, ids, full, k):
    """Scores to 1e-5, ids up to swaps between scores closer than that."""
    expected, score_of = brute_force(query, ids, full, k)
    assert len(hits) == len(expected)
    assert len({hit.id for hit in hits}) == len(hits)
    for hit, (_, score) in zip(hits, expected, strict=True):
        assert abs(hit.score - score) < 1e-5
        assert abs(hit.score - score_of[hit.id]) < 1e-5


def three_versions(folder, model_folders, engine="embedded"):
    """A gallery of three versions with 200 items each, its ids and their full features."""
    gallery = Gallery.create(folder, model_folders[0], engine=engine)
    ids, full = [], []
    for number, folder in enumerate(model_folders, 1):
        if number > 1:
            gallery.register(folder)
        z = features(folder, 200, seed=number)
        names = [f"{number}/{i}" for i in range(len(z))]
        items = [
            Item(name, vector=v, metadata={"n": i, "even": i % 2 == 0}, label=f"c{i % 3}")
            for i, (name, v) in enumerate(zip(names, z, strict=True))
        ]
        gallery.add(items)
        ids += names
        full.append(z)
    return gallery, ids, np.concatenate(full)


@pytest.fixture(scope="module", params=ENGINES)
def read_only(model_folders, address_of, tmp_path_factory, request):
    made = three_versions(tmp_path_factory.mktemp("gallery") / "g", model_folders, address_of(request.param))
    yield made
    made[0].close()


@pytest.fixture
def mixed(model_folders, tmp_path):
    made = three_versions(tmp_path / "g", model_folders)
    yield made
    made[0].close()


def test_three_versions_and_two_architectures_equal_brute_force(read_only, model_folders):
    gallery, ids, full = read_only
    assert [version.stored_dim for version in gallery.versions()] == [32, 32, 59]
    for version, folder in enumerate(model_folders, 1):
        for query in features(folder, 8, seed=10 + version):
            hits = gallery.search(vector=query, k=50, version=version)
            assert_same(hits, query, ids, full, 50)
            assert {hit.version for hit in hits} == {1, 2, 3}
    assert all(hit.id.startswith(f"{hit.version}/") for hit in hits)


def test_versions_are_searched_at_once_where_the_engine_can(mixed, monkeypatch):
    """The first of three searches ends only when the others have begun."""
    gallery, _, full = mixed
    engine, all_begun = gallery._state.engine, threading.Barrier(len(gallery.versions()), timeout=10)
    search = engine.search

    def wait_and_search(*arguments, **options):
        all_begun.wait()
        return search(*arguments, **options)

    monkeypatch.setattr(type(engine), "parallel", property(lambda self: True))
    before = gallery.search(vector=full[-1], exact=True)
    monkeypatch.setattr(engine, "search", wait_and_search)
    assert gallery.search(vector=full[-1], exact=True) == before


def test_images_equal_brute_force(model_folders, pictures, tmp_path):
    encoders = [Encoder.from_pretrained(folder) for folder in model_folders]
    ids, full = [], []
    with Gallery.create(tmp_path / "g", model_folders[0]) as gallery:
        for number, (folder, encoder) in enumerate(zip(model_folders, encoders, strict=True)):
            if number:
                gallery.register(folder)
            some = pictures[40 * number : 40 * number + 40]
            names = [f"p{40 * number + i}" for i in range(40)]
            assert gallery.add((Item(n, image=p) for n, p in zip(names, some, strict=True)), batch_size=16) == 40
            ids += names
            full.append(encoder.encode(some).numpy())
        for picture in pictures[120:126]:
            query = encoders[-1].encode(picture)[0].numpy()
            assert_same(gallery.search(picture, k=120), query, ids, np.concatenate(full), 120)


def test_full_and_compact_vectors_of_any_length_are_one_query(read_only, model_folders):
    gallery, ids, full = read_only
    (query,) = features(model_folders[0], 1, seed=99)
    from holdfast.train.encoders.compact import compact_basis

    small = torch.from_numpy(query) @ compact_basis(Encoder.from_pretrained(model_folders[0]))
    hits = gallery.search(vector=7 * query, k=30, version=1)
    assert_same(hits, query, ids, full, 30)
    assert_same(gallery.search(vector=0.01 * small, k=30, version=1), query, ids, full, 30)


def test_by_id_leaves_the_item_out(read_only):
    gallery, ids, full = read_only
    for name in ("1/5", "3/7"):
        place = ids.index(name)
        rest = [one for one in ids if one != name]
        hits = gallery.search(id=name, k=20)
        assert_same(hits, full[place], rest, np.delete(full, place, axis=0), 20)


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ({"label": "c1"}, lambda i: i % 3 == 1),
        ({"label": ["c1", "c2"], "even": True}, lambda i: i % 3 and i % 2 == 0),
        ({"n": 17}, lambda i: i == 17),
        ({"n": [17.0, 3]}, lambda i: i in (3, 17)),
        ({"n": {"gte": 10, "lt": 13.5}}, lambda i: 10 <= i < 13.5),
        ({"n": "17"}, lambda i: False),
    ],
)
def test_filters(read_only, model_folders, where, wanted):
    gallery, ids, full = read_only
    keep = [place for place, name in enumerate(ids) if wanted(int(name.split("/")[1]))]
    (query,) = features(model_folders[2], 1, seed=5)
    hits = gallery.search(vector=query, k=500, filter=where)
    assert len(hits) == len(keep)
    if keep:
        assert_same(hits, query, [ids[place] for place in keep], full[keep], 500)


@pytest.mark.parametrize("indexed_by", [1, [2], (1, 3), np.array([3]), [1, 2, 3]])
def test_items_of_some_versions_only(read_only, model_folders, indexed_by):
    """The newest model asks; the others' items are as if they were not there, whatever the engine."""
    gallery, ids, full = read_only
    wanted = {str(number) for number in np.atleast_1d(indexed_by)}
    keep = [place for place, name in enumerate(ids) if name.split("/")[0] in wanted]
    (query,) = features(model_folders[2], 1, seed=6)
    hits = gallery.search(vector=query, k=500, indexed_by=indexed_by)
    assert {str(hit.version) for hit in hits} == wanted
    assert_same(hits, query, [ids[place] for place in keep], full[keep], 500)
    some = gallery.search(vector=query, k=500, indexed_by=indexed_by, filter={"n": {"lt": 10}})
    assert len(some) == 10 * len(wanted)


def test_an_item_asks_among_another_versions_items(read_only):
    gallery, ids, full = read_only
    first = [place for place, name in enumerate(ids) if name.startswith("1/")]
    for name in ("1/5", "3/7"):
        keep = [place for place in first if ids[place] != name]
        hits = gallery.search(id=name, k=200, indexed_by=1)
        assert_same(hits, full[ids.index(name)], [ids[place] for place in keep], full[keep], 200)


@pytest.mark.parametrize(
    ("indexed_by", "reason"),
    [
        ([], "an empty list matches nothing"),
        (4, "unknown version '4'; known: 1, 2, 3"),
        ([1, 4], "unknown version '4'"),
        (True, "numbers of versions, got True"),
        ("1", "numbers of versions, got '1'"),
        ([1.0], "numbers of versions, got 1.0"),
    ],
)
def test_versions_that_cannot_be_asked_for(mixed, indexed_by, reason):
    with pytest.raises(HoldfastError, match=reason):
        mixed[0].search(vector=np.ones(59), indexed_by=indexed_by)


def test_a_filter_on_the_version_says_how_it_is_done(mixed):
    with pytest.raises(HoldfastError, match=r"indexed_by \(gallery search --indexed-by\)"):
        mixed[0].search(vector=np.ones(59), filter={"version": 1})


def test_moved_items_are_found_by_the_version_they_moved_to(mixed, model_folders, make_model, tmp_path):
    gallery, _, _ = mixed
    (moved,) = features(model_folders[2], 1, seed=7)
    gallery.add([Item("1/0", vector=moved)])
    gallery.register(make_model(tmp_path / "04", 4, width=8))
    assert "1/0" not in {hit.id for hit in gallery.search(vector=moved, version=3, k=300, indexed_by=1)}
    assert gallery.search(vector=moved, version=3, k=1, indexed_by=3)[0].id == "1/0"
    assert gallery.search(vector=moved, version=3, indexed_by=4) == []  # no items yet, and no error


def test_replaced_deleted_and_moved_items(mixed, model_folders):
    gallery, ids, full = mixed
    moved, changed = features(model_folders[2], 1, seed=7)[0], features(model_folders[0], 1, seed=8)[0]
    gallery.add([Item("1/0", vector=moved, label="new")])
    gallery.add([Item("1/1", vector=changed)], version=1)
    assert gallery.delete(["2/0", "no such item"]) == ["2/0"]
    full = full.copy()
    full[ids.index("1/0")], full[ids.index("1/1")] = moved, changed
    gone = ids.index("2/0")
    ids, full = [name for name in ids if name != "2/0"], np.delete(full, gone, axis=0)
    for query in features(model_folders[2], 4, seed=9):
        assert_same(gallery.search(vector=query, k=599), query, ids, full, 599)
    assert gallery.get(["1/0", "2/0"]) == {"1/0": {"version": 3, "label": "new", "metadata": {}, "path": None}}
    found = gallery.stats()
    assert (
        [row["items"] for row in found["versions"]] == [row["vectors"] for row in found["versions"]] == [199, 199, 201]
    )


def test_items_are_counted_without_reading_the_catalogue_again(mixed, model_folders, monkeypatch):
    """At ten million items a count of the file takes three seconds, and metrics and readiness ask for it."""
    gallery, catalogue = mixed[0], mixed[0]._state.catalogue

    def counted():
        rows = catalogue.read("SELECT version, count(*) FROM items GROUP BY version")
        ((labelled, with_path),) = catalogue.read("SELECT count(label), count(path) FROM items")
        return dict(rows), {"labelled": labelled, "with_path": with_path}

    def full(*words):
        raise UnavailableError("the disk is full")

    first, second, third = (features(folder, 1, seed=7)[0] for folder in model_folders)
    for change in (
        lambda: None,
        lambda: gallery.add([Item("x", vector=third, label="a", path="x.png"), Item("y", vector=third)]),
        lambda: gallery.add([Item("y", vector=first, label="b"), Item("z", vector=first)], version=1),  # y moves
        lambda: gallery.add([Item("x", vector=second)], version=2),  # without label and path now
        lambda: gallery.delete(["z", "z", "nobody"]),
        lambda: gallery.delete(["1/0"], receipt=full),
        lambda: gallery.add([Item("y", vector=first)], version=1),
    ):
        with contextlib.suppress(UnavailableError):
            change()
        assert catalogue.totals() == counted()
    with monkeypatch.context() as patch:
        patch.setattr(catalogue, "read", full)
        gallery.delete(["x"])
        stats = gallery.stats()
    by_version, totals = counted()
    assert {name: stats[name] for name in totals} == totals
    assert [row["items"] for row in stats["versions"]] == list(by_version.values())


def test_open_again(mixed, model_folders):
    gallery, ids, full = mixed
    folder = gallery._state.folder.path
    (query,) = features(model_folders[2], 1, seed=5)
    gallery.close()
    with Gallery.open(folder) as again:
        assert_same(again.search(vector=query, k=600), query, ids, full, 600)
        with pytest.raises(HoldfastError, match="open elsewhere"):
            Gallery.open(folder)


def test_searches_miss_nothing_while_items_move(mixed, model_folders):
    """An item goes back and forth between versions while others search for it; it is always found, and once."""
    gallery, *_ = mixed
    (query,) = features(model_folders[2], 1, seed=3)
    (other,) = features(model_folders[0], 1, seed=4)
    gallery.add([Item("moving", vector=query)])
    stop, wrong = threading.Event(), []

    def ask():
        while not stop.is_set():
            found = [hit.id for hit in gallery.search(vector=query, k=700)]
            if found.count("moving") != 1 or len(found) != 601:
                wrong.append(len(found))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for turn in range(12):
        gallery.add([Item("moving", vector=(other, query)[turn % 2])], version=(1, 3)[turn % 2])
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_item_whose_vector_is_missing_is_named(mixed):
    """As after a server was restored from an older backup. The search must end."""
    gallery = mixed[0]
    state, name = gallery._state, gallery.search(vector=np.ones(59), k=1)[0].id
    item = state.catalogue.by_id([name])[name]
    collection = next(one.collection for one in gallery.versions() if one.number == item.version)
    state.engine.delete(collection, [item.key])
    with pytest.raises(HoldfastError, match=f"item '{name}': its vector is missing in the store"):
        gallery.search(id=name)


def test_a_stored_item_has_its_own_version(mixed):
    gallery = mixed[0]
    name = gallery.search(vector=np.ones(59), k=1)[0].id
    with pytest.raises(HoldfastError, match="a stored item has its own version"):
        gallery.search(id=name, version=1)


def test_numbers_of_numpy_are_metadata(mixed):
    gallery = mixed[0]
    vector = np.ones(59, dtype=np.float32)
    fields = {"count": np.int64(3), "price": np.float32(0.5), "new": np.bool_(True), "shop": np.str_("north")}
    gallery.add([Item("numpy", vector=vector, metadata=fields)])
    assert gallery.get(["numpy"])["numpy"]["metadata"] == {"count": 3, "price": 0.5, "new": True, "shop": "north"}
    refused = []
    gallery.add(
        [Item("none", vector=vector, metadata=None), Item("good", vector=vector)],
        refused=lambda item, error: refused.append(str(error)),
    )
    assert refused == ["item 'none': metadata must be a dict of fields, got NoneType"]
    assert set(gallery.get(["none", "good"])) == {"good"}

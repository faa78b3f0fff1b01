"""Two foreign models of other sizes, no labels: the old one's vectors are searched by the new one's, the whole way.

Both models are known by their vectors only, and ``register`` fits the bridge on 300 items. What is found is compared
with brute force in the new model's own space, as if everything had been re-embedded, and with what the old model's own
vectors of the same queries find.
"""

from pathlib import Path

import numpy as np
import pytest

from holdfast import Bridge
from holdfast.core.errors import HoldfastError
from holdfast.gallery import Address, AttachedGallery, Gallery, Item, open_gallery
from holdfast.vectors import feature_set

ITEMS, PAIRS, QUERIES = 600, 300, 60


@pytest.fixture(scope="module")
def vectors() -> dict[str, np.ndarray]:
    """Items in groups, as an old model of 20 numbers and a new one of 32 see them; and new vectors of other items."""
    draw = np.random.default_rng(0)
    groups = draw.normal(size=(60, 12))
    seen = groups[np.arange(ITEMS + QUERIES) % 60] + 0.5 * draw.normal(size=(ITEMS + QUERIES, 12))
    old, new = np.tanh(seen @ draw.normal(size=(12, 20)) / 4), np.tanh(seen @ draw.normal(size=(12, 32)) / 4)
    return {"old": old[:ITEMS], "new": new[:ITEMS], "old queries": old[ITEMS:], "queries": new[ITEMS:]}


@pytest.fixture(scope="module")
def files(vectors: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """``old.npz`` has all items, ``new.npz`` those of the pairs. There are no labels."""
    root = tmp_path_factory.mktemp("vectors")
    ids = np.arange(ITEMS)
    np.savez(root / "old.npz", features=vectors["old"], ids=ids)
    chosen = np.random.default_rng(1).permutation(ITEMS)[:PAIRS]
    np.savez(root / "new.npz", features=vectors["new"][chosen], ids=ids[chosen])
    return {"old": root / "old.npz", "new": root / "new.npz"}


@pytest.fixture(scope="module")
def store(vectors: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody's collection of the old vectors."""
    qdrant = pytest.importorskip("qdrant_client")
    models, folder = qdrant.models, tmp_path_factory.mktemp("store") / "qdrant"
    client = qdrant.QdrantClient(path=str(folder))
    client.create_collection("items", models.VectorParams(size=20, distance=models.Distance.COSINE))
    client.upsert("items", [models.PointStruct(id=i, vector=row) for i, row in enumerate(vectors["old"].tolist())])
    client.close()
    return folder


def assert_found(folder: Path, version: int, vectors: dict[str, np.ndarray]) -> None:
    """Compare searches by the new model's vectors with brute force in its own space."""
    wanted, by_old = (nearest(vectors[queries], vectors[items]) for queries, items in
                      (("queries", "new"), ("old queries", "old")))  # fmt: skip
    with open_gallery(folder) as gallery:
        (record,) = gallery.newest().bridges
        assert (gallery.newest().number, record["agrees_beyond_chance"], record["without"]) == (version, True, None)
        found = [gallery.search(vector=query, k=10, exact=True) for query in vectors["queries"]]
        assert {hit.version for hits in found for hit in hits} == {version - 1}
        like = gallery.search(id="7", k=5, exact=True)
        assert [hit.id for hit in like] == nearest(vectors["old"][[7]], vectors["old"])[0][1:6]
    shown = [[hit.id for hit in hits] for hits in found]
    assert overlap(shown, wanted) > max(0.7, overlap(by_old, wanted) - 0.05)  # random hits: 0.02
    assert np.mean([hits[0] in right for hits, right in zip(shown, wanted, strict=True)]) > 0.95


def nearest(queries: np.ndarray, items: np.ndarray) -> list[list[str]]:
    """Ids of the ten items with the largest cosine, by brute force."""
    scores = queries @ (items / np.linalg.norm(items, axis=1, keepdims=True)).T
    return np.argsort(-scores, axis=1)[:, :10].astype(str).tolist()


def overlap(found: list[list[str]], wanted: list[list[str]]) -> float:
    return float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, wanted, strict=True)]))


def test_a_gallery_in_python(vectors, files, tmp_path):
    with Gallery.create(tmp_path / "gallery", vectors=files["old"]) as gallery:
        gallery.add(Item(str(i), vector=row) for i, row in enumerate(vectors["old"]))
        version = gallery.register(new_vectors=files["new"])
        assert version.bridges[0]["pairs"] == PAIRS
    assert_found(tmp_path / "gallery", 2, vectors)


def test_an_attached_store_in_python(vectors, files, store, tmp_path):
    address = Address(f"qdrant:{store}", "items", "id", "")
    with AttachedGallery.attach(tmp_path / "gallery", address) as gallery:
        assert gallery.register(new_vectors=files["new"]).bridges[0]["pairs"] == PAIRS
    assert_found(tmp_path / "gallery", 1, vectors)


@pytest.mark.parametrize("kind", ["gallery", "attached"])
def test_by_commands(kind, vectors, files, request, holdfast, holdfast_json, tmp_path):
    gallery = tmp_path / "gallery"
    if kind == "gallery":
        holdfast("gallery", "create", gallery, "--vectors", files["old"])
        holdfast("gallery", "add", gallery, files["old"], "--version", "1")
    else:
        url = f"qdrant:{request.getfixturevalue('store')}"
        holdfast("gallery", "attach", url, "--table", "items", "--out", gallery)
    words = ["gallery", "register", gallery, "--new-vectors", files["new"], "--bridge-pairs", "250"]
    record = holdfast_json(*words)["bridges"][0]
    assert (record["pairs"], record["agrees_beyond_chance"]) == (250, True)
    hits = holdfast_json("gallery", "search", gallery, "--id", "7", "--k", "3")
    assert len(hits) == 3
    assert {"id", "score", "cosine", "version"} <= set(hits[0])
    assert_found(gallery, 2 if kind == "gallery" else 1, vectors)


def test_pairs_that_are_not_items(vectors, files, holdfast, holdfast_json, tmp_path):
    """Queries of a log are pairs, too; without their old vectors they are counted, not dropped without a word."""
    with np.load(files["new"]) as held:
        items, ids = held["features"][:40], held["ids"][:40]
    names = [f"q{n}" for n in range(QUERIES)]
    np.savez(tmp_path / "new.npz", features=np.concatenate([items, vectors["queries"]]), ids=[*ids.astype(str), *names])
    np.savez(tmp_path / "old.npz", features=vectors["old queries"], ids=names)
    for place in ("a", "b"):
        holdfast("gallery", "create", tmp_path / place, "--vectors", files["old"])
        holdfast("gallery", "add", tmp_path / place, files["old"], "--version", "1")
    words = ("--new-vectors", tmp_path / "new.npz")
    said = holdfast("gallery", "register", tmp_path / "a", *words)
    assert f"{QUERIES} of {QUERIES + 40} new vectors" in " ".join(said.split())
    record = holdfast_json("gallery", "register", tmp_path / "b", *words, "--old-vectors", tmp_path / "old.npz")
    assert (record["bridges"][0]["pairs"], record["notes"]) == (QUERIES + 40, [])
    with pytest.raises(HoldfastError, match="give both"):
        holdfast("gallery", "register", tmp_path / "a", "--old-vectors", tmp_path / "old.npz", files["new"])
    words = ("--new-vectors", tmp_path / "old.npz", "--old-vectors", files["old"])
    with pytest.raises(HoldfastError, match=r"old\.npz: none of its .* ids is in "):
        holdfast("gallery", "register", tmp_path / "a", *words)


def test_pairs_that_an_attached_store_does_not_hold(vectors, files, store, tmp_path):
    names = [f"q{n}" for n in range(QUERIES)]
    new, old = (
        feature_set(name, vectors[key], None, names) for name, key in (("new", "queries"), ("old", "old queries"))
    )
    with AttachedGallery.attach(tmp_path / "g", Address(f"qdrant:{store}", "items", "id", "")) as gallery:
        with pytest.raises(HoldfastError, match="has ids of 0 stored vectors"):
            gallery.register(new_vectors=new)
        assert gallery.register(new_vectors=new, old_vectors=old).bridges[0]["pairs"] == QUERIES


@pytest.mark.parametrize("kind", ["affine", "local"])
def test_a_ready_bridge(kind, vectors, files, store, tmp_path):
    """Fitted before, without the gallery: for a gallery, and for an attached store."""
    Bridge.fit(new=vectors["new"][:PAIRS], old=vectors["old"][:PAIRS], kind=kind).save(tmp_path / "b")
    few = feature_set("few", vectors["new"][:3], None, ["0", "1", "2"])
    with Gallery.create(tmp_path / "gallery", vectors=files["old"]) as gallery:
        gallery.add(Item(str(i), vector=row) for i, row in enumerate(vectors["old"]))
        (record,) = gallery.register(new_vectors=few, bridge=str(tmp_path / "b")).bridges
        assert record["kind"] == kind
        # The way back carries a stored old vector near its own new one.
        back = gallery.models.bridge(*gallery.versions())
        carried = back.transform(vectors["old"])
        unit = vectors["new"] / np.linalg.norm(vectors["new"], axis=1, keepdims=True)
        assert (carried * unit).sum(1).mean() > 0.8
        with pytest.raises(HoldfastError, match="a bridge from 32 to 20 numbers, and these versions store 7 and"):
            gallery.register(new_vectors=feature_set("seven", np.ones((1, 7)), None, ["0"]), bridge=str(tmp_path / "b"))
    with AttachedGallery.attach(tmp_path / "attached", Address(f"qdrant:{store}", "items", "id", "")) as attached:
        attached.register(new_vectors=few, bridge=str(tmp_path / "b"))
    asked = vectors["queries"][:5].astype(np.float32)
    expected = nearest(Bridge.load(tmp_path / "b").transform(asked), vectors["old"])
    for folder in ("gallery", "attached"):
        with open_gallery(tmp_path / folder) as opened:
            hits = [opened.search(vector=query, exact=True) for query in asked]
        assert [[hit.id for hit in some] for some in hits] == expected

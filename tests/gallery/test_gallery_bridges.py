"""Bridges between the versions of a gallery: fitted by ``register``, used by searches, removed with their version."""

import functools
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from holdfast import Gallery
from holdfast.bridges import Bridge
from holdfast.bridges.score_scale import SAME
from holdfast.core.errors import HoldfastError
from holdfast.gallery import Item, registration
from holdfast.gallery.version_bridges import VersionBridges
from holdfast.train.encoders import Encoder, build_backbone
from holdfast.train.encoders.compact import change_basis, compact_basis
from holdfast.vectors import feature_set

pytest.importorskip("qdrant_edge")
ENGINES = ("embedded", "postgresql")
ITEMS, PAIRS = 160, 120


@pytest.fixture(scope="module")
def bridged_models(tmp_path_factory, model_folders, make_model):
    """1 and 2 share 60 slots, 3 has 81, 4 has none and 24 numbers; all project the same 32 numbers of an item."""
    root = tmp_path_factory.mktemp("bridged")
    large = make_model(root / "large", 4, width=8, slots=81)
    torch.manual_seed(5)
    preprocess = Encoder.from_pretrained(model_folders[0]).preprocess
    small = Encoder(build_backbone("small", width=8), 24, preprocess=preprocess)
    small.save_pretrained(root / "small")
    return [model_folders[0], model_folders[1], large, root / "small"]


def full_features(folder, h):
    """Full unit features of items with the backbone's features ``h``, N x 32."""
    weight = Encoder.from_pretrained(folder).projection.weight.detach()
    return torch.nn.functional.normalize(torch.as_tensor(h).float() @ weight.T, dim=1).numpy()


def stored_rows(folder, full):
    basis = compact_basis(Encoder.from_pretrained(folder))
    return full if basis is None else full @ basis.numpy()


class Mixed:
    """A gallery of four versions with ``ITEMS`` items each, and what a reference search needs."""

    def __init__(self, folder, models, engine="embedded"):
        self.models, self.ids, self.version_of = models, [], []
        self.stored = {}
        rng = np.random.default_rng(0)
        seen = np.zeros((0, 32))
        self.gallery = Gallery.create(folder, models[0], engine=engine)
        for number, model in enumerate(models, 1):
            if number > 1:
                self.gallery.register(model, new_vectors=self.new_vectors(model, seen), bridge_pairs=PAIRS)
            h = rng.standard_normal((ITEMS, 32))
            names = [f"{number}/{i}" for i in range(ITEMS)]
            full = full_features(model, h)
            self.gallery.add(
                Item(name, vector=row, label=f"c{i % 3}", metadata={"n": i})
                for i, (name, row) in enumerate(zip(names, full, strict=True))
            )
            self.stored[number] = stored_rows(model, full)
            self.ids += names
            seen = np.concatenate([seen, h])
        self.seen = seen

    def new_vectors(self, model, seen):
        return feature_set("new", full_features(model, seen), ids=np.array(self.ids))

    def reference(self, stored_query, source):
        """Scores and cosines of all items, by id, for a query as version ``source`` stores it."""
        folder = self.gallery._state.folder
        found = {}
        for target, rows in self.stored.items():
            newer, older = max(source, target), min(source, target)
            name = f"to-{older:04d}" if newer == source else f"from-{older:04d}"
            place = folder.version(newer) / "bridges" / name
            query, scale = stored_query.astype(np.float64), SAME
            if source != target:
                bridge = Bridge.load(place)
                scale = bridge.scale
                if bridge.kind == "none":
                    bases = [compact_basis(Encoder.from_pretrained(self.models[one - 1])) for one in (source, target)]
                    query = change_basis(torch.from_numpy(stored_query)[None], *bases)[0].numpy()
                else:
                    query = bridge.transform(stored_query[None])[0]
            for i, cosine in enumerate(rows.astype(np.float64) @ query):
                found[f"{target}/{i}"] = (scale.score(cosine), cosine)
        return found


def assert_same(hits, expected, k):
    """Scores and cosines to 1e-5, ids up to swaps between scores closer than that."""
    best = sorted((score for score, _ in expected.values()), reverse=True)[:k]
    assert len(hits) == len(best)
    assert len({hit.id for hit in hits}) == len(hits)
    for hit, score in zip(hits, best, strict=True):
        assert abs(hit.score - score) < 1e-5
        assert np.allclose((hit.score, hit.cosine), expected[hit.id], atol=1e-5)


@pytest.fixture(scope="module", params=ENGINES)
def mixed(bridged_models, address_of, tmp_path_factory, request):
    made = Mixed(tmp_path_factory.mktemp("gallery") / "g", bridged_models, address_of(request.param))
    yield made
    made.gallery.close()


def test_queries_of_every_version_equal_brute_force(mixed):
    gallery = mixed.gallery
    assert [version.dim for version in gallery.versions()] == [59, 59, 80, 24]
    assert [len(version.bridges) for version in gallery.versions()] == [0, 1, 2, 3]
    rng = np.random.default_rng(1)
    for version, model in enumerate(mixed.models, 1):
        for full in full_features(model, rng.standard_normal((4, 32))):
            (stored,) = stored_rows(model, full[None])
            hits = gallery.search(vector=full, k=60, version=version)
            assert_same(hits, mixed.reference(stored, version), 60)
            assert {hit.version for hit in hits} == {1, 2, 3, 4}


def test_items_as_queries_filters_and_single_versions_equal_brute_force(mixed):
    gallery = mixed.gallery
    for name in ("1/5", "2/7", "4/9"):
        number, row = map(int, name.split("/"))
        expected = mixed.reference(mixed.stored[number][row], number)
        del expected[name]
        assert_same(gallery.search(id=name, k=40), expected, 40)
        some = {one: value for one, value in expected.items() if int(one.split("/")[1]) % 3 == 1}
        assert_same(gallery.search(id=name, k=40, filter={"label": "c1"}), some, 40)
        first = {one: value for one, value in expected.items() if one.startswith("1/")}
        assert_same(gallery.search(id=name, k=500, indexed_by=1), first, 500)


def test_bridged_queries_find_what_they_should(mixed):
    """The items of every version that a re-embedding would show: most of them are found among that version's items."""
    gallery = mixed.gallery
    new = full_features(mixed.models[3], mixed.seen)
    rng = np.random.default_rng(2)
    found = []
    for full in full_features(mixed.models[3], rng.standard_normal((10, 32))):
        for number in (1, 2, 3):
            rows = slice((number - 1) * ITEMS, number * ITEMS)
            wanted = np.argsort(-(new[rows] @ full))[:10]
            hits = gallery.search(vector=full, k=10, indexed_by=number)
            found.append(len({f"{number}/{i}" for i in wanted} & {hit.id for hit in hits}) / 10)
    assert np.mean(found) > 0.4  # by chance 0.06
    for record in gallery.newest().bridges:
        assert record["agrees_beyond_chance"]
        assert record["pairs"] == PAIRS
        assert record["exposure_without"] is None


def test_records_stats_and_rollback(bridged_models, tmp_path):
    made = Mixed(tmp_path / "g", bridged_models[:3])
    gallery = made.gallery
    to, back = (tmp_path / "g" / "versions" / "0003" / "bridges" / name for name in ("to-0001", "from-0002"))
    assert to.is_dir()
    assert back.is_dir()
    records = gallery.newest().bridges
    assert [record["version"] for record in records] == [1, 2]
    assert json.loads(json.dumps(records)) == records
    assert set(records[0]) >= {
        "version", "kind", "measure", "value", "without", "pairs", "held_out", "exposure", "exposure_without", "scale",
        "agrees_beyond_chance",
    }  # fmt: skip
    assert gallery.stats()["versions"][2]["bridges"] == records
    comparable = gallery.versions()[1].bridges[0]
    assert comparable["without"] is not None
    assert set(comparable["exposure"]) == set(comparable["exposure_without"]) == set()  # fewer than 50 held-out pairs
    gallery.close()
    with Gallery.open(tmp_path / "g") as again:
        assert again.newest().bridges == records
        query = full_features(bridged_models[2], np.ones((1, 32)))[0]
        (stored,) = stored_rows(bridged_models[2], query[None])
        assert_same(again.search(vector=query, k=20), made.reference(stored, 3), 20)
        assert again.rollback(drop=True)["finished"]
        assert not to.exists()
        assert again._state.models._bridges._loaded == {}
        assert [len(version.bridges) for version in again.versions()] == [0, 1]


def test_a_bridge_is_read_once_by_many_threads(bridged_models, tmp_path, monkeypatch):
    import threading

    made = Mixed(tmp_path / "g", bridged_models[:2])
    made.gallery.close()
    reads, load = [], Bridge.load.__func__
    monkeypatch.setattr(Bridge, "load", classmethod(lambda cls, folder: reads.append(folder) or load(cls, folder)))
    with Gallery.open(tmp_path / "g") as gallery:
        source, target = gallery.versions()[1], gallery.versions()[0]
        bridges = VersionBridges(gallery._state.folder)
        threads = [threading.Thread(target=bridges.between, args=(source, target)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(reads) == 1
        bridges.forget(2)
        bridges.between(source, target)
        assert len(reads) == 2


@pytest.fixture
def filled(bridged_models, tmp_path):
    """A gallery with 40 items of version 1 without images, their backbone features, and the folder."""
    with Gallery.create(tmp_path / "g", bridged_models[0]) as gallery:
        h = np.random.default_rng(3).standard_normal((40, 32))
        gallery.add(Item(str(i), vector=row) for i, row in enumerate(full_features(bridged_models[0], h)))
        yield gallery, h, tmp_path


def changed(features, row, value):
    features = features.copy()
    features[row] = value
    return features


@pytest.mark.parametrize(
    ("change", "ids", "reason"),
    [
        (lambda z: changed(z, 3, np.nan), range(40), "new.npz: 3: NaN or infinity in the vector"),
        (lambda z: changed(z, 3, 0), range(40), "new.npz: 3: a zero vector has no direction"),
        (lambda z: changed(z, 3, np.arange(80)), range(40), "new.npz: 3: .*another model's"),
        (lambda z: z[:, :70], range(40), "new.npz: vectors of 70 numbers, but the new model's have 32 or 80"),
        (lambda z: z, range(100, 140), r"new.npz: none of its 40 ids is in the gallery \(100, 101, 102, ...\)"),
        (lambda z: z[:9], range(9), "vectors of 9 items of version 1, and a bridge needs 10"),
        (lambda z: z, None, "new.npz: has no ids"),
        (lambda z: z, [0] * 40, "occur more than once"),
    ],
)
def test_bad_new_vectors_change_nothing(filled, bridged_models, change, ids, reason):
    gallery, h, folder = filled
    arrays = {"features": change(full_features(bridged_models[2], h))}
    np.savez(folder / "new.npz", **arrays, **({} if ids is None else {"ids": np.array(list(ids))}))
    with pytest.raises(HoldfastError, match=reason) as caught:
        gallery.register(bridged_models[2], new_vectors=folder / "new.npz")
    assert "\n" not in str(caught.value)
    assert [version.number for version in gallery.versions()] == [1]
    assert [path.name for path in (folder / "g" / "versions").iterdir()] == ["0001"]
    assert gallery._state.engine.collections() == ["v0001"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"bridge": "tunnel"}, r"unknown kind of bridge 'tunnel'; known: affine, auto, .*none"),
        ({"bridge_pairs": 9}, "at least 10 pairs, got bridge_pairs 9"),
        ({"bridge": "none", "new_vectors": "x.npz"}, "or bridge 'none', not both"),
        ({"bridge": "none"}, r"cannot be compared with those of version 1 \(one has 60 slots.*leave out --bridge none"),
        ({}, r"version 1 \(one has 60 slots.*0 items of version 1 have an image at hand, and a bridge needs 10"),
        ({"new_vectors": "none.npz"}, "none.npz: no such file"),
    ],
)
def test_options_that_cannot_be(filled, bridged_models, options, reason):
    gallery, _, _ = filled
    with pytest.raises(HoldfastError, match=reason) as caught:
        gallery.register(bridged_models[2], **options)
    assert "\n" not in str(caught.value)
    assert [version.number for version in gallery.versions()] == [1]


def test_unrelated_spaces_are_refused_even_by_force(bridged_models, tmp_path):
    rng = np.random.default_rng(8)
    with Gallery.create(tmp_path / "g", bridged_models[0]) as gallery:
        rows = full_features(bridged_models[0], rng.standard_normal((400, 32)))
        gallery.add(Item(str(i), vector=row) for i, row in enumerate(rows))
        other = full_features(bridged_models[2], rng.standard_normal((400, 32)))
        given = feature_set("new", other, ids=np.arange(400))
        with pytest.raises(
            HoldfastError, match=r"version 1 \(one has 60 .*; no bridge connects the models, judged on 120 of 400"
        ):
            gallery.register(bridged_models[2], new_vectors=given, force=True)
        assert len(gallery.versions()) == 1


def test_a_named_kind_without_enough_pairs_is_refused_and_auto_goes_without(filled, bridged_models):
    gallery, _, _ = filled
    with pytest.raises(HoldfastError, match="0 items of version 1 have an image at hand, and a bridge needs 10"):
        gallery.register(bridged_models[1], bridge="rotation")
    assert gallery.register(bridged_models[1]).bridges == []


def turned_model(folder, source, seed, **info):
    """A model with the same backbone and a projection that is turned by a random rotation: no cosine of its changes."""
    encoder = Encoder.from_pretrained(source)
    rotation = torch.linalg.qr(torch.randn(59, 59, generator=torch.Generator().manual_seed(seed)))[0]
    with torch.no_grad():
        encoder.projection.weight.copy_(rotation @ encoder.projection.weight)
    encoder.info.update(info)
    encoder.save_pretrained(folder)
    return folder


@pytest.fixture
def pictured(model_folders, pictures, tmp_path):
    """150 noisy pictures of ten classes, as files, by version 1."""
    from PIL import Image

    items = []
    rng = np.random.default_rng(6)
    for number in range(150):
        mixed = 0.7 * pictures[number % 10] + 0.3 * rng.integers(0, 256, pictures[0].shape)
        file = tmp_path / "pictures" / f"{number:03d}.png"
        file.parent.mkdir(exist_ok=True)
        Image.fromarray(mixed[..., 0].astype(np.uint8)).save(file)
        items.append(Item(file.stem, path=file, label=f"class {number % 10}"))
    with Gallery.create(tmp_path / "g", model_folders[0], device="cpu") as gallery:
        gallery.add(items)
        yield gallery


def test_images_are_embedded_and_checked_with_and_without(pictured, model_folders, tmp_path, monkeypatch):
    """A turned space: without the bridge the check finds nothing, with it the model is accepted."""
    used = {"pairs": set(), "queries": set()}
    embed, check = registration.embed_images, registration.check_on_sample
    monkeypatch.setattr(
        registration,
        "embed_images",
        lambda chosen, *rest: used["pairs"].update(i.key for i in chosen) or embed(chosen, *rest),
    )
    monkeypatch.setattr(
        registration,
        "check_on_sample",
        lambda n, sample, *rest: used["queries"].update(i.key for i in sample.queries) or check(n, sample, *rest),
    )
    stages = []
    model = turned_model(tmp_path / "turned", model_folders[0], 7)
    with pytest.raises(HoldfastError, match="finds less on version 1"):
        pictured.register(model, bridge="none")
    version = pictured.register(model, progress=lambda *figures: stages.append(figures))
    assert len(used["queries"]) >= 50
    assert len(used["pairs"]) >= 50
    assert not used["pairs"] & used["queries"]
    (record,), (check,) = version.bridges, version.checks
    assert record["kind"] != "none"
    assert record["value"] > record["without"] + 0.3
    assert check["verdict"] != "worse"
    assert check["without"]["verdict"] == "worse"
    assert check["cross_test"]["value"] > check["without"]["cross_test"]["value"] + 0.3
    assert stages[-1] == ("checking on version 1", 75, 75)
    assert ("embedding items of version 1", 75, 75) in stages


def test_slots_that_clash_are_bridged(pictured, model_folders, tmp_path):
    slots = {**Encoder.from_pretrained(model_folders[0]).info["slots"]}
    owners = {"b": slots["owners"]["a"], "a": slots["owners"]["b"]}
    model = turned_model(tmp_path / "clash", model_folders[0], 8, slots={**slots, "owners": owners})
    with pytest.raises(HoldfastError, match=r"owns slot .* in one model"):
        pictured.register(model, bridge="none")
    version = pictured.register(model)
    assert version.bridges[0]["without"] is None
    assert "without" not in version.checks[0]
    picture = tmp_path / "pictures" / "003.png"
    assert pictured.search(picture, k=1)[0].id == "003"


def test_a_shared_space_keeps_its_scores(pictured, model_folders, tmp_path):
    """The same features: ``none`` wins, and scores are the cosines."""
    encoder = Encoder.from_pretrained(model_folders[0])
    with torch.no_grad():
        encoder.projection.weight.mul_(2)  # other weights, the same directions
    encoder.save_pretrained(tmp_path / "twin")
    (record,) = pictured.register(tmp_path / "twin").bridges
    assert record["kind"] == "none"
    assert (record["scale"]["slope"], record["scale"]["offset"]) == (1, 0)
    hits = pictured.search(tmp_path / "pictures" / "003.png", k=5)
    assert hits[0].score == pytest.approx(1, abs=1e-5)
    assert [hit.score for hit in hits] == pytest.approx([hit.cosine for hit in hits], abs=1e-6)


def test_a_changed_bridge_serves_nothing(bridged_models, tmp_path):
    """Every number of the forged bridges is possible: only the catalogue knows that they are not the fitted ones."""
    made = Mixed(tmp_path / "g", bridged_models[:2])
    ((record,),) = [version.bridges for version in made.gallery.versions()[1:]]
    assert sorted(record["sha256"]) == ["from-0001", "to-0001"]
    made.gallery.close()
    queries = [full_features(model, np.ones((1, 32)))[0] for model in bridged_models[:2]]
    for name, version, file in (("to-0001", 2, "bridge.safetensors"), ("from-0001", 1, "bridge.json")):
        path = tmp_path / "g" / "versions" / "0002" / "bridges" / name / file
        content = path.read_bytes()
        bridge = Bridge.load(path.parent)
        forged = replace(bridge, error_weights=bridge.error_weights + 1, models={"new": "x", "old": "y"})
        forged.save(tmp_path / "forged")
        shutil.copy(tmp_path / "forged" / file, path)
        with Gallery.open(tmp_path / "g") as gallery:
            search = functools.partial(gallery.search, vector=queries[version - 1], version=version)
            with pytest.raises(
                HoldfastError, match=rf"{name}: changed since it was fitted \(sha256 differs\); restore"
            ):
                search()
            assert len(search(indexed_by=version)) == 10  # no bridge is needed
        path.write_bytes(content)
    with Gallery.open(tmp_path / "g") as gallery:
        assert len(gallery.search(vector=queries[1])) == 10


def test_a_version_without_items_needs_no_bridge(filled, bridged_models):
    """Without images there is nothing to fit one on. All items are moved to the second of three sizes."""
    gallery, h, _ = filled
    one, other, third = bridged_models[0], bridged_models[2], bridged_models[3]

    def given(model):
        return feature_set("new", full_features(model, h), ids=np.arange(40))

    gallery.register(other, new_vectors=given(other), force=True)
    gallery.backfill(vectors=replace(given(other), model=gallery.newest().weights_sha256))
    assert [row["items"] for row in gallery.stats()["versions"]] == [0, 40]
    version = gallery.register(third, new_vectors=given(third), force=True)
    assert [record["version"] for record in version.bridges] == [2]
    assert version.unreachable == [1]
    query = full_features(third, h[:1])[0]
    assert len(gallery.search(vector=query, k=40)) == 40
    assert gallery.search(vector=query, k=40, indexed_by=1) == []
    first = full_features(one, h[:1])[0]
    with pytest.raises(
        HoldfastError, match="queries of version 1 cannot search items of version 3; query with version 3"
    ):
        gallery.search(vector=first, version=1)
    with pytest.raises(
        HoldfastError, match="version 1 cannot take items: version 3 has no bridge to it; use version 3"
    ):
        gallery.add([Item("late", vector=first)], version=1)
    with pytest.raises(HoldfastError, match="version 1 cannot take items"):
        gallery.backfill(to=1)
    assert gallery.rollback(drop=True)["finished"]
    assert len(gallery.search(vector=first, version=1, k=40)) == 40  # version 2 has a bridge to version 1
    gallery.add([Item("late", vector=first)], version=1)


def test_the_version_before_the_newest_always_needs_a_bridge(filled, bridged_models):
    """A rollback would give it items again."""
    gallery, h, _ = filled
    other, third = bridged_models[2], bridged_models[3]
    given = feature_set("new", full_features(other, h), ids=np.arange(40))
    gallery.register(other, new_vectors=given, force=True)
    given = feature_set("new", full_features(third, h), ids=np.arange(40))
    with pytest.raises(HoldfastError, match="0 items of version 2, and a bridge needs 10"):
        gallery.register(third, new_vectors=given, force=True)


def test_vectors_of_another_model_are_refused(filled, bridged_models):
    gallery, h, _ = filled
    features = full_features(bridged_models[2], h)
    given = replace(feature_set("new", features, ids=np.arange(40)), model="f" * 64)
    with pytest.raises(HoldfastError, match="new: these vectors were made by the model ffffffffffff, but version 2 is"):
        gallery.register(bridged_models[2], new_vectors=given)
    assert len(gallery.versions()) == 1
    named = replace(given, model="a name")  # which says nothing about the weights
    gallery.register(bridged_models[2], new_vectors=named, force=True)
    with pytest.raises(HoldfastError, match="new: these vectors were made by the model ffffffffffff, but version 2 is"):
        gallery.backfill(vectors=given)
    assert gallery.backfill(vectors=named).progress.moved == 40

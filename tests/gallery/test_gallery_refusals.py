"""What a gallery refuses, and that nothing of it is stored."""

import io
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast import Gallery
from holdfast.core.errors import HoldfastError, UnavailableError
from holdfast.gallery import Item
from holdfast.train.encoders import Encoder, build_backbone

pytest.importorskip("qdrant_edge")


@pytest.fixture
def gallery(model_folders, tmp_path):
    with Gallery.create(tmp_path / "g", model_folders[0]) as made:
        yield made


def png(width, height):
    """A grey PNG of zeros, which packs well: 100 megapixels in some 50 kB."""

    def chunk(name, data):
        body = name + data
        return len(data).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([1, 0, 0, 0, 0])
    packed = zlib.compress(bytes((width // 8 + 1) * height), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def jpeg_cut_short(pictures):
    file = io.BytesIO()
    Image.fromarray(np.repeat(pictures[:1, ..., 0], 40, axis=0).reshape(-1, 16)).save(file, "JPEG")
    return file.getvalue()[: len(file.getvalue()) // 2]


@pytest.mark.parametrize("kind", ["text", "empty", "huge", "cut short", "missing file", "wrong array"])
def test_bad_images_leave_nothing(gallery, pictures, kind, tmp_path):
    bad = {
        "text": b"this is no image",
        "empty": b"",
        "huge": png(10_000, 10_000),
        "cut short": jpeg_cut_short(pictures),
        "missing file": tmp_path / "none.png",
        "wrong array": np.zeros((4, 4), dtype=np.float32),
    }[kind]
    good = [Item(f"good{i}", image=picture) for i, picture in enumerate(pictures[:3])]
    with pytest.raises(HoldfastError, match="item 'bad': "):
        gallery.add([*good, Item("bad", image=bad)])
    with pytest.raises(HoldfastError):
        gallery.search(bad)
    found = gallery.stats()
    assert found["items"] == found["versions"][0]["vectors"] == 0
    refused = []
    assert gallery.add([Item("bad", image=bad), *good], refused=lambda item, error: refused.append(item.id)) == 3
    assert refused == ["bad"]
    assert gallery.stats()["items"] == gallery.stats()["versions"][0]["vectors"] == 3


@pytest.mark.parametrize(("weight", "reason"), [(0.0, "a zero feature"), (float("nan"), "NaN or infinity")])
def test_features_without_a_direction_are_refused_item_by_item(model_folders, pictures, tmp_path, weight, reason):
    encoder = Encoder.from_pretrained(model_folders[0])
    with torch.no_grad():
        encoder.backbone.stages[-1][1].weight.fill_(weight)  # the last batch norm
    encoder.save_pretrained(tmp_path / "dead")
    refused = []
    with Gallery.create(tmp_path / "g", tmp_path / "dead") as gallery:
        items = [Item("dead", image=pictures[0]), Item("alive", vector=np.ones(32))]
        with pytest.raises(HoldfastError, match=f"item 'dead': version 1 gives {reason}"):
            gallery.add(items)
        assert gallery.stats()["items"] == 0
        assert gallery.add(items, refused=lambda item, error: refused.append(item.id)) == 1
        assert refused == ["dead"]


def test_of_an_id_given_twice_the_last_good_one_counts(gallery):
    first, second = np.eye(32)[:2]
    items = [Item("x", vector=first), Item("x", vector=second), Item("x", vector=np.zeros(32))]
    assert gallery.add(items, refused=lambda item, error: None) == 1
    assert gallery.search(vector=second)[0].score == pytest.approx(1)


def test_ids_of_earlier_releases_are_found_and_deleted(gallery, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.gallery.gallery_items.checked_new_id", lambda given: given)
        gallery.add([Item(name, vector=np.ones(32)) for name in (" ", "a\u202eb")])
    assert [hit.id for hit in gallery.search(id=" ")] == ["a\u202eb"]
    assert len(gallery.get([" ", "a\u202eb"])) == 2
    assert gallery.delete([" ", "a\u202eb"]) == [" ", "a\u202eb"]


def test_the_huge_image_is_small_on_the_wire():
    assert len(png(10_000, 10_000)) < 50_000


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (Item("v", vector=np.ones(31)), "31, but a vector of version 1 has 32 or 59"),
        (Item("v", vector=np.ones((2, 32))), "2 x 32, but a vector"),
        (Item("v", vector=[np.nan] * 32), "NaN or infinity"),
        (Item("v", vector=np.zeros(32)), "no direction"),
        (Item("v", vector=["x"] * 32), "list of numbers"),
        (Item("v", vector=[10**400] * 32), "list of numbers"),
        (Item("v", vector=np.arange(59.0)), "another model's"),
        (Item("v", vector=np.ones(32), image=b""), "not both"),
        (Item("v"), "neither image nor vector nor path"),
        (Item("", vector=np.ones(32)), "1 to 512 characters"),
        (Item("x" * 513, vector=np.ones(32)), "1 to 512 characters"),
        (Item("a\x00b", vector=np.ones(32)), "control characters"),
        (Item("\ud800", vector=np.ones(32)), "broken Unicode"),
        *(
            (Item(blank, vector=np.ones(32)), "no visible character")
            for blank in (" ", "\u00a0\u3000", "\u200b \ufeff", "\u2800\u3164", "\ufe0f", "\u0378")
        ),
        *(
            (Item(f"a{mark}b", vector=np.ones(32)), "line separators or marks")
            for mark in "\u2028\u2029\u202e\u2066\u200f"
        ),
        (Item("v", vector=np.ones(32), metadata={"a b": 1}), "letters, digits and underscores"),
        (Item("v", vector=np.ones(32), metadata={"label": "x"}), "given as its label"),
        (Item("v", vector=np.ones(32), metadata={"x": [1]}), "is not text"),
        (Item("v", vector=np.ones(32), metadata={"x": float("inf")}), "is not text"),
        (Item("v", vector=np.ones(32), metadata={"x": 2**60}), "is not text"),
    ],
)
def test_bad_items(gallery, item, reason):
    with pytest.raises(HoldfastError, match=reason) as caught:
        gallery.add([Item("good", vector=np.ones(32)), item])
    assert "\n" not in str(caught.value)
    assert gallery.stats()["items"] == gallery.stats()["versions"][0]["vectors"] == 0


@pytest.mark.parametrize("number", [3e38, 1e300, 1e-29])
def test_vectors_whose_length_float32_cannot_hold_are_stored_as_directions(gallery, number):
    """Divided in float32 by its infinite length, such a vector was acknowledged and stored as zero."""
    direction = np.where(np.arange(32) % 3, 1.0, -1.0)
    gallery.add([Item("v", vector=direction * number), Item("other", vector=np.ones(32))])
    (hit,) = gallery.search(vector=direction * number, k=1)
    assert (hit.id, hit.cosine) == ("v", pytest.approx(1))
    assert gallery.search(vector=direction, k=1)[0].cosine == pytest.approx(1)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({}, "one of image, vector and id, not none"),
        ({"vector": np.ones(32), "id": "x"}, "not vector and id"),
        ({"id": "nobody"}, "no item 'nobody'"),
        ({"vector": np.ones(32), "k": 0}, "k must be a whole number from 1"),
        ({"vector": np.ones(32), "k": 10**9}, "k must be a whole number from 1"),
        ({"vector": np.ones(32), "k": True}, "k must be a whole number from 1"),
        ({"vector": np.ones(32), "version": 9}, "unknown version '9'; known: 1"),
        ({"vector": np.ones(7)}, "7, but a vector"),
        ({"vector": np.ones(32), "filter": {"colour": "red"}}, "unknown filter field 'colour'; known: shop"),
        ({"vector": np.ones(32), "filter": {"shop": []}}, "empty list"),
        ({"vector": np.ones(32), "filter": {"shop": None}}, "is not text"),
        ({"vector": np.ones(32), "filter": {"shop": {"about": 3}}}, "unknown bound on shop 'about'"),
        ({"vector": np.ones(32), "filter": {"shop": {"lt": "x"}}}, "must be a number"),
        ({"vector": np.ones(32), "filter": "shop"}, "an object of field and value"),
    ],
)
def test_bad_questions(gallery, asked, reason):
    gallery.add([Item("../../etc/passwd", vector=np.ones(32), metadata={"shop": "north"})])
    with pytest.raises(HoldfastError, match=reason):
        gallery.search(**asked)
    assert [hit.id for hit in gallery.search(vector=np.ones(32))] == ["../../etc/passwd"]


def test_models_that_do_not_fit(gallery, model_folders, make_model, tmp_path):
    def refused(folder, reason):
        with pytest.raises(HoldfastError, match=reason):
            gallery.register(folder)

    refused(model_folders[0], "version 1 already")
    refused(
        make_model(tmp_path / "k", 5, width=8, slots=61), "one has 60 slots, the other 61; grow the one with 60 to 61"
    )
    refused(make_model(tmp_path / "s", 5, width=8, owners=["b"]), "class 'b' owns slot 1 in one model and slot 0 in")
    refused(make_model(tmp_path / "t", 5, width=8, owners=["other"]), "slot 0 has two owners")
    refused(tmp_path / "nothing", "no model here")
    plain = Encoder(
        build_backbone("small", width=8), 59, preprocess=Encoder.from_pretrained(model_folders[0]).preprocess
    )
    plain.save_pretrained(tmp_path / "plain")
    refused(tmp_path / "plain", "has no class slots")
    Encoder(build_backbone("small", width=8)).save_pretrained(tmp_path / "blind")
    refused(tmp_path / "blind", "no preprocess")
    assert [version.number for version in gallery.versions()] == [1]
    assert gallery.register(model_folders[1]).number == 2
    # The gallery remembers everybody's slots: version 2 brought class c on slot 2.
    refused(make_model(tmp_path / "u", 5, width=8, owners=["a", "b", "x"]), "slot 2 has two owners")


def test_folders_that_do_not_fit(model_folders, tmp_path):
    with pytest.raises(HoldfastError, match="no gallery here"):
        Gallery.open(tmp_path)
    with pytest.raises(HoldfastError, match="unknown gallery engine 'nosuch'; known: embedded"):
        Gallery.create(tmp_path / "g", model_folders[0], engine="nosuch:x")
    assert not (tmp_path / "g").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(HoldfastError, match="already there"):
        Gallery.create(tmp_path / "full", model_folders[0])


def test_an_incompatible_model_needs_force(gallery, pictures, make_model, tmp_path):
    """Every class is nearly one picture many times over: the first model finds it always, another never."""
    folder = tmp_path / "shown"
    folder.mkdir()
    items = []
    for number in range(80):
        picture = pictures[number % 20, :, :, 0].copy()
        picture[0, number // 20] ^= 1  # queries with the same vector would count once
        file = folder / f"{number}.png"
        Image.fromarray(picture).save(file)
        items.append(Item(str(number), path=file, label=f"class {number % 20}"))
    gallery.add(items)
    other = make_model(tmp_path / "other", 17, width=8)
    refusal = r"finds less on version 1: at most 1 point lost: no \(.*40 items.*\); --force registers it all the same"
    with pytest.raises(HoldfastError, match=refusal):
        gallery.register(other, bridge="none")
    assert len(gallery.versions()) == 1
    version = gallery.register(other, force=True, bridge="none")
    (check,) = version.checks
    assert (version.number, check["version"], check["verdict"]) == (2, 1, "worse")
    assert check["self_test"]["value"] == 1.0
    assert gallery.versions()[1].checks == [check]


def test_a_model_that_sees_the_same_is_not_refused(gallery, picture_files, model_folders, tmp_path):
    gallery.add([Item(str(i), path=file, label=file.parent.name) for i, file in enumerate(picture_files)])
    encoder = Encoder.from_pretrained(model_folders[0])
    with torch.no_grad():
        encoder.projection.weight.mul_(2)  # other weights, the same directions
    encoder.save_pretrained(tmp_path / "twin")
    (check,) = gallery.register(tmp_path / "twin").checks
    assert check["verdict"] == "not shown"
    assert check["gain"]["value"] == 0


def test_a_full_disk_is_one_line_and_changes_nothing(model_folders, tmp_path):
    """SQLite is given no further page: what was acknowledged stays, and with room again all goes on."""
    with Gallery.create(tmp_path / "g", model_folders[0]) as gallery:
        gallery.add([Item("a", vector=np.ones(32))])
        catalogue = gallery._state.catalogue
        (pages,) = catalogue.read("PRAGMA page_count")[0]
        writer = catalogue._connection
        writer.execute(f"PRAGMA max_page_count = {pages}")
        many = [Item(str(n), vector=np.ones(32), metadata={"text": "x" * 8000}) for n in range(50)]
        with pytest.raises(
            UnavailableError, match=r"catalogue\.sqlite: cannot be written \(database or disk is full\)$"
        ):
            gallery.add(many)
        assert [hit.id for hit in gallery.search(vector=np.ones(32), k=100)] == ["a"]
        writer.execute("PRAGMA max_page_count = 1000000")
        assert gallery.add(many) == 50
        assert len(gallery.search(vector=np.ones(32), k=100)) == 51
        assert gallery.stats()["versions"][0]["vectors"] == 51


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * 8193], ids=["zero", "surrogate", "long"])
def test_text_that_no_store_holds(model_folders, tmp_path, text):
    """Refused alike wherever it comes, before an engine with rules of its own sees it."""
    with Gallery.create(tmp_path / "g", model_folders[0]) as gallery:
        gallery.add([Item("a", vector=np.ones(32), metadata={"shop": "north"})])
        for wanted in (text, ["north", text]):
            with pytest.raises(HoldfastError, match=r"^filter on shop: .*$"):
                gallery.search(vector=np.ones(32), filter={"shop": wanted})
        with pytest.raises(HoldfastError, match=r"^id "):
            gallery.get([text])


def test_a_path_that_is_no_text(model_folders, tmp_path):
    with Gallery.create(tmp_path / "g", model_folders[0]) as gallery:
        with pytest.raises(HoldfastError, match="item 'a': the path of its image is not valid Unicode"):
            gallery.add([Item("a", vector=np.ones(32), path="/pictures/\udcff/a.png")])
        assert gallery.stats()["items"] == 0

"""The newest version taken out again: where its items go, what is refused, and what a half-done one leaves."""

import os
import threading

import numpy as np
import pytest
from typer.testing import CliRunner

from holdfast import Gallery
from holdfast.cli import app
from holdfast.core.errors import HoldfastError
from holdfast.gallery import Item, rollback
from holdfast.train.encoders import Encoder

pytest.importorskip("qdrant_edge")


@pytest.fixture
def gallery(model_folders, picture_files, tmp_path):
    """20 images by version 1, 20 by version 2."""
    with Gallery.create(tmp_path / "g", model_folders[0]) as made:
        made.add(Item(file.stem, path=file) for file in picture_files[:20])
        made.register(model_folders[1])
        made.add(Item(file.stem, path=file, metadata={"late": True}) for file in picture_files[20:])
        yield made


def items_of(gallery):
    return [(row["version"], row["items"], row["vectors"]) for row in gallery.stats()["versions"]]


def test_items_go_back_and_nothing_of_the_version_is_left(gallery, model_folders, make_model, pictures, tmp_path):
    told = []
    found = gallery.rollback(progress=lambda state: told.append((state.moved, state.left)))
    assert found == {"version": 2, "newest": 1, "moved": 20, "dropped": 0, "finished": True}
    assert told == [(20, 0)]
    assert items_of(gallery) == [(1, 40, 40)]
    assert gallery._state.engine.collections() == ["v0001"]
    assert [path.name for path in (tmp_path / "g" / "versions").iterdir()] == ["0001"]
    full = Encoder.from_pretrained(model_folders[0]).encode(pictures[:41]).numpy()
    hits = gallery.search(pictures[40], k=100)
    assert [hit.score for hit in hits] == pytest.approx(sorted(full[:40] @ full[40], reverse=True), abs=1e-5)
    assert gallery.get(["030"])["030"]["metadata"] == {"late": True}
    # Its slots are free again: class c was version 2's alone. Its number is not: hits that named it stay true.
    assert gallery.register(make_model(tmp_path / "m", 9, width=8, owners=["a", "b", "x"])).number == 3
    gallery.close()
    with Gallery.open(tmp_path / "g") as again:
        assert [one.number for one in again.versions()] == [1, 3]
        assert again.rollback()["newest"] == 1


def test_items_can_be_added_while_a_rollback_looks_for_images(gallery, monkeypatch):
    """There may be millions of files, on a slow disk. An item that is added meanwhile is looked at, too."""
    looking, go_on, is_file = threading.Event(), threading.Event(), os.path.isfile

    def look(path):
        looking.set()
        assert go_on.wait(20)
        return is_file(path)

    monkeypatch.setattr(rollback.os.path, "isfile", look)
    refused = []

    def roll_back():
        try:
            gallery.rollback()
        except HoldfastError as error:
            refused.append(str(error))

    thread = threading.Thread(target=roll_back)
    adding = threading.Thread(target=gallery.add, args=([Item("bare", vector=np.ones(32))],))
    thread.start()
    assert looking.wait(20)
    adding.start()
    adding.join(10)
    added = not adding.is_alive()
    go_on.set()
    thread.join()
    adding.join()
    assert added
    assert refused[0].startswith("1 of version 2's 21 items have no image at hand")


def test_what_would_be_lost_is_refused_and_said(gallery, tmp_path, pictures):
    gallery.add([Item(f"bare{n}", vector=vector) for n, vector in enumerate(np.eye(32)[:3])])
    with pytest.raises(HoldfastError, match="3 of version 2's 23 items have no image at hand"):
        gallery.rollback()
    assert items_of(gallery) == [(1, 20, 20), (2, 23, 23)]
    assert gallery.models.newest().number == 2
    assert gallery.rollback(drop=True) == {"version": 2, "newest": 1, "moved": 20, "dropped": 3, "finished": True}
    assert items_of(gallery) == [(1, 40, 40)]
    with pytest.raises(HoldfastError, match="there is none before it"):
        gallery.rollback()


@pytest.mark.parametrize("then", ["drop", "mend", "cancel"])
def test_images_that_turn_out_broken(gallery, model_folders, picture_files, tmp_path, then):
    broken = tmp_path / "broken.png"
    broken.write_bytes(picture_files[0].read_bytes())
    gallery.add([Item("broken", path=broken)])
    broken.write_bytes(b"no image")
    with pytest.raises(HoldfastError, match=r"1 of version 2's items could not be embedded again .*or cancel"):
        gallery.rollback()
    assert items_of(gallery) == [(1, 40, 40), (2, 1, 1)]
    assert gallery.models.newest().number == 1
    for refused, reason in (
        (lambda: gallery.register(model_folders[2]), "finish or cancel"),
        (lambda: gallery.add([Item("x", vector=np.ones(32))], version=2), "version 2 is being rolled back; add"),
        (lambda: gallery.backfill(2), "being rolled back"),
    ):
        with pytest.raises(HoldfastError, match=reason):
            refused()
    gallery.add([Item("x", path=picture_files[0])])
    assert gallery.get(["x"])["x"]["version"] == 1
    gallery.close()
    with Gallery.open(tmp_path / "g") as again:
        assert again.models.newest().number == 1
        if then == "drop":
            assert again.rollback(drop=True)["dropped"] == 1
        elif then == "mend":
            broken.write_bytes(picture_files[0].read_bytes())
            assert again.rollback()["moved"] == 1
        else:
            assert again.rollback(cancel=True) == {"cancelled": 2}
            with pytest.raises(HoldfastError, match="nothing to cancel"):
                again.rollback(cancel=True)
            again.add([Item("y", path=picture_files[0])])
            assert again.get(["y"])["y"]["version"] == 2
            return
        assert items_of(again) == [(1, 41 if then == "drop" else 42, 41 if then == "drop" else 42)]


def test_it_goes_on_where_it_was_stopped(gallery, tmp_path):
    stop = threading.Event()
    half = gallery.rollback(rate=5, stop=stop, progress=lambda state: stop.set())
    assert half == {"version": 2, "newest": 1, "moved": 5, "dropped": 0, "finished": False}
    gallery.close()
    with Gallery.open(tmp_path / "g") as again:
        assert items_of(again) == [(1, 25, 25), (2, 15, 15)]
        assert (again.stats()["newest"], again.stats()["rolling_back"]) == (1, 2)
    for command in ("stats", "versions"):
        said = CliRunner().invoke(app, ["gallery", command, str(tmp_path / "g")]).output
        assert "version 2 is being removed" in said
        assert "queries of version 2" not in said
    with Gallery.open(tmp_path / "g") as again:
        assert again.rollback()["moved"] == 15
        assert items_of(again) == [(1, 40, 40)]
        assert again.stats()["rolling_back"] is None


def test_killed_just_before_the_vectors_are_removed(gallery, tmp_path, monkeypatch):
    """The version is out of the catalogue, its collection and its model are still there."""
    monkeypatch.setattr(gallery._state.searches, "wait", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gallery.rollback()
    assert gallery._state.engine.collections() == ["v0001", "v0002"]
    gallery.close()
    with Gallery.open(tmp_path / "g") as again:
        assert again._state.engine.collections() == ["v0001"]
        assert not (tmp_path / "g" / "versions" / "0002").exists()
        assert items_of(again) == [(1, 40, 40)]

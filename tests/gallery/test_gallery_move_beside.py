"""A move to another engine beside everything else that changes a gallery, and what moves items on a server."""

import threading

import pytest
from test_gallery_throughout import Watch

from holdfast import Gallery
from holdfast.core.errors import HoldfastError
from holdfast.gallery import Item, engine_migration
from holdfast.train.encoders import Encoder


@pytest.fixture
def full(model_folders, pictures):
    """All features of all pictures, by version."""
    return {n: Encoder.from_pretrained(folder).encode(pictures).numpy() for n, folder in enumerate(model_folders, 1)}


@pytest.mark.parametrize("mode", ["exact", pytest.param("hnsw", marks=pytest.mark.slow)])
def test_register_and_add_while_it_moves_then_backfill_and_rollback_there(
    model_folders, picture_files, pictures, full, address_of, tmp_path, monkeypatch, mode
):
    monkeypatch.setattr(engine_migration, "BLOCK", 7)
    monkeypatch.setattr("holdfast.gallery.state.INDEX_FROM", 20)
    ids = [str(n) for n in range(40)]
    items = [Item(name, path=file) for name, file in zip(ids, picture_files, strict=True)]
    beside = []

    def change(copied):
        if not beside:
            for verb in (gallery.backfill, gallery.rollback, lambda: gallery.move("embedded")):
                with pytest.raises(HoldfastError, match="a move of this gallery is running; wait for it, or stop"):
                    verb()
            assert not gallery.backfill_record()["running"]
            beside.append(gallery.register(model_folders[2], bridge="none").number)
            gallery.add(items[:10])

    with Gallery.create(tmp_path / "g", model_folders[0], engine=address_of("embedded"), mode=mode) as gallery:
        gallery.add(items[:20])
        gallery.register(model_folders[1], bridge="none")
        gallery.add(items[20:])
        gallery.backfill(to=1, probes=0)  # leaves a record
        with Watch(gallery, full, ids, pictures) as watch:
            found = gallery.move(address_of("postgresql"), progress=change)
            assert [row["count"] for row in found["collections"].values()] == [10, 20, 10]

            def refuse_move(state):
                with pytest.raises(HoldfastError, match="a backfill of this gallery is running"):
                    gallery.move("embedded")
                assert gallery.backfill_record()["running"]

            gallery.backfill(limit=15, probes=0, progress=refuse_move)
            gallery.backfill(probes=0)
            assert [row["vectors"] for row in gallery.stats()["versions"]] == [0, 0, 40]
            assert gallery.rollback() == {"version": 3, "newest": 2, "moved": 40, "dropped": 0, "finished": True}
            assert gallery.rollback()["newest"] == 1
            gallery.move("embedded")
        assert watch.wrong == []
        assert watch.answers > 10
        assert {1, 2, 3} in watch.seen
        assert [(row["items"], row["vectors"]) for row in gallery.stats()["versions"]] == [(40, 40)]


def test_a_move_that_ends_while_a_model_is_registered(model_folders, picture_files, address_of, tmp_path, monkeypatch):
    """The new version's collection was created on the old engine: it is created again on the new one."""
    with Gallery.create(tmp_path / "g", model_folders[0], engine=address_of("embedded"), mode="exact") as gallery:
        gallery.add(Item(file.stem, path=file) for file in picture_files)
        create = gallery._state.engine.create

        def created_then_moved(collection, dim):
            create(collection, dim)
            monkeypatch.undo()
            gallery.move(address_of("postgresql"))

        monkeypatch.setattr(gallery._state.engine, "create", created_then_moved)
        assert gallery.register(model_folders[1]).number == 2
        assert gallery.engine != "embedded"
        assert gallery._state.engine.collections() == ["v0001", "v0002"]
        gallery.add([Item("new", path=picture_files[0])])
        assert {hit.version for hit in gallery.search(picture_files[0], k=100)} == {1, 2}


def test_stopped_and_gone_on_and_to_where_it_is(model_folders, picture_files, address_of, tmp_path, monkeypatch):
    monkeypatch.setattr(engine_migration, "BLOCK", 10)
    stop, copied = threading.Event(), []

    def tell(more):
        copied.append(more)
        stop.set()

    with Gallery.create(tmp_path / "g", model_folders[0], engine=address_of("embedded")) as gallery:
        gallery.add(Item(file.stem, path=file) for file in picture_files)
        with pytest.raises(
            HoldfastError, match="the move was stopped; copied vectors are kept: the same move continues"
        ):
            gallery.move(address_of("postgresql"), namespace="stopped", stop=stop, progress=tell)
        assert gallery.engine == "embedded"
        gallery.move(address_of("postgresql"), progress=copied.append)
        assert copied == [10, 10, 10, 10]
        with pytest.raises(HoldfastError, match="in the namespace stopped already"):
            gallery.move(address_of("postgresql"), namespace="stopped")
        gallery.move("embedded")


def test_a_server_that_goes_away_after_the_switch(model_folders, picture_files, address_of, tmp_path, monkeypatch):
    """The move is done; what was left behind is dropped when the gallery is opened again."""

    def gone(engine):
        raise HoldfastError("no answer")

    with Gallery.create(tmp_path / "g", model_folders[0], engine=address_of("postgresql")) as gallery:
        gallery.add(Item(file.stem, path=file) for file in picture_files)
        left = gallery._state.engine._engine
        monkeypatch.setattr(engine_migration, "_drop_all", gone)
        assert gallery.move(address_of("embedded"))["engine"] == gallery.engine == "embedded"
        left.close()
        monkeypatch.undo()
    with Gallery.open(tmp_path / "g") as gallery:
        assert gallery._state.catalogue.setting("retired") is None
        assert len(gallery.search(picture_files[0], k=100)) == 40

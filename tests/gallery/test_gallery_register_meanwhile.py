"""A model that embeds before it is registered: nobody waits for it, and nothing that others do meanwhile is lost."""

import gc
import random
import shutil
import threading

import pytest

from holdfast import Gallery
from holdfast.core.errors import HoldfastError
from holdfast.gallery import Item, registration
from holdfast.train.encoders import Encoder

pytest.importorskip("qdrant_edge")

SECONDS = 30


class Held:
    """Makes the new model's ``call``-th forward pass wait until it is let go; ``reached``: the pass has begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: int = 1) -> None:
        self.reached, self.let_go, self._calls = threading.Event(), threading.Event(), 0
        embed = registration.full_features

        def waiting(*arguments):
            self._calls += 1
            if self._calls == call:
                self.reached.set()
                assert self.let_go.wait(SECONDS)
            return embed(*arguments)

        monkeypatch.setattr(registration, "full_features", waiting)


class Call(threading.Thread):
    """A call in a thread of its own: what it returned or raised."""

    def __init__(self, function, *arguments, **options) -> None:
        super().__init__(daemon=True)
        self._call = lambda: function(*arguments, **options)
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.found = self._call()
        except BaseException as error:
            self.error = error

    def result(self):
        self.join(SECONDS)
        assert not self.is_alive(), "the call waits for something"
        if self.error is not None:
            raise self.error
        return self.found


@pytest.fixture
def labelled(model_folders, picture_files, tmp_path):
    """40 images of four classes by version 1."""
    with Gallery.create(tmp_path / "g", model_folders[0]) as gallery:
        gallery.add(Item(file.stem, path=file, label=file.parent.name) for file in picture_files)
        yield gallery


def numbers(gallery):
    return [one.number for one in gallery.versions()]


def model_folders_of(gallery):
    return sorted(path.name for path in gallery._state.folder.versions.iterdir())


def check_whole(gallery, count):
    """Every item has one vector, and a search finds each once."""
    rows = gallery.stats()["versions"]
    assert [row["vectors"] for row in rows] == [row["items"] for row in rows]
    assert sum(row["items"] for row in rows) == count
    found = [hit.id for hit in gallery.search(vector=[1.0] * 32, version=1, k=1000)]
    assert len(found) == len(set(found)) == count


def test_others_add_delete_and_search_while_a_model_embeds(
    labelled, model_folders, picture_files, pictures, tmp_path, monkeypatch
):
    held = Held(monkeypatch)
    registering = Call(labelled.register, model_folders[2], force=True)
    assert held.reached.wait(SECONDS)

    assert Call(labelled.add, [Item("new", image=pictures[100], label="class0")]).result() == 1
    assert Call(labelled.add, [Item("000", image=pictures[101])]).result() == 1  # one that the check may have drawn
    assert Call(labelled.delete, ["001", "002", "003"]).result() == ["001", "002", "003"]
    hits = Call(labelled.search, pictures[100], k=100).result()
    assert hits[0].id == "new"
    assert len(hits) == 38
    assert [hit.id for hit in Call(labelled.search, id="new", k=100).result()] == [hit.id for hit in hits[1:]]
    assert registering.is_alive()
    assert numbers(labelled) == [1]

    held.let_go.set()
    assert registering.result().number == 2
    assert [check["version"] for check in labelled.newest().checks] == [1]
    assert numbers(labelled) == [1, 2]
    assert labelled.get(["new", "000", "001"]) == {
        "new": {"version": 1, "label": "class0", "metadata": {}, "path": None},
        "000": {"version": 1, "label": None, "metadata": {}, "path": None},
    }
    labelled.add([Item("late", image=pictures[102])])
    assert labelled.get(["late"])["late"]["version"] == 2
    check_whole(labelled, 39)
    labelled.close()
    with Gallery.open(tmp_path / "g") as again:
        assert numbers(again) == [1, 2]
        check_whole(again, 39)


@pytest.mark.parametrize("frozen_before", [False, True])
def test_garbage_collections_are_short_while_a_model_embeds(labelled, model_folders, monkeypatch, frozen_before):
    """Objects that existed before are left out, and collected again afterwards; a choice of the caller is kept."""
    if frozen_before:
        gc.freeze()
    before, held = gc.get_freeze_count(), Held(monkeypatch)
    try:
        registering = Call(labelled.register, model_folders[2], force=True)
        assert held.reached.wait(SECONDS)
        assert gc.get_freeze_count() > 10_000
        held.let_go.set()
        registering.result()
        assert (gc.get_freeze_count() > 0) == (before > 0)
    finally:
        gc.unfreeze()


def test_the_verdict_is_the_one_without_others(model_folders, picture_files, pictures, tmp_path, monkeypatch):
    """Stored vectors are read before the model embeds: what changes after that does not change the verdict."""
    verdicts = []
    for name, calls in (("alone", 0), ("beside", 1)):
        with Gallery.create(tmp_path / name, model_folders[0]) as gallery, monkeypatch.context() as patch:
            gallery.add(Item(file.stem, path=file, label=file.parent.name) for file in picture_files)
            held = Held(patch, call=calls)
            registering = Call(gallery.register, model_folders[1], force=True)
            if calls:
                assert held.reached.wait(SECONDS)
                gallery.delete([file.stem for file in picture_files[:20]])
                held.let_go.set()
            verdicts.append(registering.result().checks)
    assert verdicts[0] == verdicts[1]
    assert verdicts[0][0]["queries"] >= 10


def test_a_folder_that_changes_while_its_model_embeds(
    labelled, model_folders, pictures, tmp_path, make_model, monkeypatch
):
    """What is registered is the model that was judged."""
    shutil.copytree(model_folders[1], tmp_path / "model")
    expected = Encoder.from_pretrained(tmp_path / "model").encode(pictures[100])[0].numpy()
    held = Held(monkeypatch)
    registering = Call(labelled.register, tmp_path / "model", force=True)
    assert held.reached.wait(SECONDS)
    make_model(tmp_path / "model", 7, width=8)
    held.let_go.set()
    registering.result()
    labelled.close()
    with Gallery.open(tmp_path / "g") as again:
        again.add([Item("new", image=pictures[100])])
        assert again.search(vector=expected, version=2, k=1)[0].score == pytest.approx(1, abs=1e-5)


def test_items_that_go_between_listing_and_reading(labelled, model_folders, monkeypatch):
    """A class that lost all its gallery items has no queries any more; the rest is judged."""
    listed = labelled._state.catalogue.items_with_path
    queries, gallery = registration.split(listed(1))
    items = labelled._state.catalogue.by_key(list(gallery))[0]
    gone = [item.id for item in items.values() if item.label == "class0"]

    def listed_then_deleted(version):
        items = listed(version)
        labelled.delete(gone)
        return items

    monkeypatch.setattr(labelled._state.catalogue, "items_with_path", listed_then_deleted)
    (check,) = labelled.register(model_folders[2], force=True).checks
    assert check["gallery"] == len(gallery) - len(gone)
    assert check["queries"] == sum(label != "class0" for label in queries.values()) < len(queries)
    check_whole(labelled, 40 - len(gone))


def test_an_error_while_it_embeds_changes_nothing(labelled, model_folders, picture_files, pictures, monkeypatch):
    def broken(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(registration, "full_features", broken)
        with pytest.raises(KeyboardInterrupt):
            labelled.register(model_folders[1], force=True)
    assert numbers(labelled) == [1]
    assert model_folders_of(labelled) == ["0001"]
    assert labelled._state.engine.collections() == ["v0001"]
    check_whole(labelled, 40)
    assert labelled.register(model_folders[1], force=True).number == 2  # no lock was left behind
    labelled.add([Item("new", image=pictures[100])])
    check_whole(labelled, 41)


def test_an_error_at_the_commit_changes_nothing(labelled, model_folders, monkeypatch):
    def full(collection, dim):
        raise HoldfastError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(labelled._state.engine, "create", full)
        with pytest.raises(HoldfastError, match="the disk is full"):
            labelled.register(model_folders[1], force=True)
    assert (numbers(labelled), model_folders_of(labelled)) == ([1], ["0001"])
    assert labelled.register(model_folders[1], force=True).number == 2


REGISTER = """
from holdfast.gallery import registration
torch.set_num_threads(1)
embed = registration.full_features
def slow(*arguments):
    note("embedding")
    import time
    time.sleep(60)
    return embed(*arguments)
registration.full_features = slow
with Gallery.open(folder) as gallery:
    note("open")
    gallery.register(model, force=True)
"""


def test_killed_while_it_embeds(labelled, model_folders, nursery, tmp_path):
    labelled.close()
    moments = random.Random(0)  # its first number is 2: killed after the second note
    lines = nursery.run_and_kill(REGISTER, moments, 2, folder=str(tmp_path / "g"), model=str(model_folders[1]))
    assert lines == ["embedding"]
    with Gallery.open(tmp_path / "g") as again:
        assert (numbers(again), model_folders_of(again)) == ([1], ["0001"])
        check_whole(again, 40)
        assert again.register(model_folders[1], force=True).number == 2


def test_two_registrations_come_one_after_the_other(labelled, model_folders, monkeypatch):
    held = Held(monkeypatch)
    first = Call(labelled.register, model_folders[1], force=True)
    assert held.reached.wait(SECONDS)
    same = Call(labelled.register, model_folders[1], force=True)
    other = Call(labelled.register, model_folders[2], force=True)
    same.join(0.2)
    assert same.is_alive()
    assert other.is_alive()
    held.let_go.set()
    assert first.result().number == 2
    with pytest.raises(HoldfastError, match="this model is version 2 already"):
        same.result()
    assert other.result().number == 3
    assert (numbers(labelled), model_folders_of(labelled)) == ([1, 2, 3], ["0001", "0002", "0003"])


@pytest.mark.parametrize("call", [1, 3])
def test_a_rollback_that_ends_while_a_model_embeds(labelled, model_folders, pictures, monkeypatch, call):
    """While the model embeds for version 1, or for version 2, version 2 is removed, with its verdict and bridge."""
    labelled.register(model_folders[1], force=True)
    labelled.backfill(limit=20)
    held = Held(monkeypatch, call)
    registering = Call(labelled.register, model_folders[2], force=True)
    assert held.reached.wait(SECONDS)
    assert Call(labelled.rollback).result()["finished"]
    held.let_go.set()
    version = registering.result()
    assert (version.number, [check["version"] for check in version.checks]) == (3, [1])
    assert (numbers(labelled), model_folders_of(labelled)) == ([1, 3], ["0001", "0003"])
    assert [record["version"] for record in version.bridges] == [1]
    assert sorted(path.name for path in (labelled._state.folder.version(3) / "bridges").iterdir()) == [
        "from-0001",
        "to-0001",
    ]
    check_whole(labelled, 40)


def test_a_rollback_that_begins_while_a_model_embeds(labelled, model_folders, monkeypatch):
    labelled.register(model_folders[1], force=True)
    labelled.backfill()
    held, stop = Held(monkeypatch), threading.Event()
    registering = Call(labelled.register, model_folders[2], force=True)
    assert held.reached.wait(SECONDS)
    assert not labelled.rollback(stop=stop, progress=lambda state: stop.set())["finished"]
    held.let_go.set()
    with pytest.raises(HoldfastError, match="version 2 is being rolled back; finish or cancel that first"):
        registering.result()
    assert (numbers(labelled), model_folders_of(labelled)) == ([1, 2], ["0001", "0002"])
    labelled.rollback(cancel=True)
    assert labelled.register(model_folders[2], force=True).number == 3


def test_close_waits_for_a_registration(labelled, model_folders, tmp_path, monkeypatch):
    held = Held(monkeypatch)
    registering = Call(labelled.register, model_folders[1], force=True)
    assert held.reached.wait(SECONDS)
    closing = Call(labelled.close)
    closing.join(0.2)
    assert closing.is_alive()
    held.let_go.set()
    assert registering.result().number == 2
    closing.result()
    with Gallery.open(tmp_path / "g") as again:
        assert numbers(again) == [1, 2]

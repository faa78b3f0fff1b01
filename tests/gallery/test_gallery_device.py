"""Where a gallery's models embed, and how much they do at once.

``cpu:0`` is a device of another name than the default, which every machine has.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from holdfast import Gallery
from holdfast.core.errors import HoldfastError, UnavailableError
from holdfast.embedders.image_encoder import _NO_TF32, ImageEncoder
from holdfast.gallery import Item
from holdfast.gallery.version_models import BatchSizes, batch_sizes
from holdfast.train.encoders import Encoder, encode_loop

pytest.importorskip("qdrant_edge")

OTHER = torch.device("cpu:0")


@pytest.fixture
def passes(monkeypatch):
    """What every call of ``Encoder.encode`` was given: (number of images, device)."""
    calls, encode = [], Encoder.encode

    def recorded(self, images, **options):
        calls.append((len(images), options.get("device")))
        return encode(self, images, **options)

    monkeypatch.setattr(Encoder, "encode", recorded)
    return calls


@pytest.fixture
def loads(monkeypatch):
    """The devices that models were loaded to."""
    devices, load = [], ImageEncoder.load.__func__

    def recorded(cls, folder, device):
        devices.append(device)
        return load(cls, folder, device)

    monkeypatch.setattr(ImageEncoder, "load", classmethod(recorded))
    return devices


def labelled(files):
    return [Item(file.stem, path=file, label=file.parent.name) for file in files]


def test_all_that_embeds_does_so_on_the_device(model_folders, picture_files, pictures, tmp_path, passes, loads):
    with Gallery.create(tmp_path / "g", model_folders[0], device="cpu:0") as gallery:
        assert gallery.device == "cpu:0"
        for step in (
            lambda: gallery.add(labelled(picture_files)),
            lambda: gallery.search(pictures[100]),
            lambda: gallery.register(model_folders[1], force=True),
            lambda: gallery.search(pictures[100]),
            lambda: gallery.backfill(),
            lambda: gallery.rollback(),
        ):
            passes.clear()
            step()
            assert {device for _, device in passes} == {OTHER}
    loads.clear()
    with Gallery.open(tmp_path / "g", device="cpu:0") as gallery:
        gallery.search(pictures[100])
    assert loads == ["cpu:0"]


def test_the_default_is_the_gpu_if_there_is_one(model_folders, tmp_path, monkeypatch):
    Gallery.create(tmp_path / "g", model_folders[0]).close()
    monkeypatch.setattr(Encoder, "to", lambda self, *device: self)
    for there, device in ((False, "cpu"), (True, "cuda")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        with Gallery.open(tmp_path / "g") as gallery:
            assert gallery.device == "auto"  # decided when a model is loaded
            assert gallery.models.encoder(gallery.newest()).device == device
    monkeypatch.setenv("HOLDFAST_DEVICE", "cpu")
    with Gallery.open(tmp_path / "g") as gallery:
        assert gallery.device == "cpu"


def test_a_device_that_is_not_there(model_folders, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(HoldfastError, match="device 'cuda' cannot be used: torch sees no GPU"):
        Gallery.create(tmp_path / "g", model_folders[0], device="cuda")
    assert not (tmp_path / "g").exists()
    with Gallery.create(tmp_path / "g", model_folders[0]) as gallery:
        gallery.add([Item("a", vector=np.ones(32))])
    with pytest.raises(HoldfastError, match="unknown device 'gpu'; use auto, cpu, cuda or cuda:N"):
        Gallery.open(tmp_path / "g", device="gpu")
    with Gallery.open(tmp_path / "g") as again:  # nothing was left locked
        assert again.stats()["items"] == 1


def test_batches_are_larger_on_a_gpu():
    cpu, gpu = batch_sizes(SimpleNamespace(on_gpu=False)), batch_sizes(SimpleNamespace(on_gpu=True))
    assert batch_sizes(None) == cpu
    assert (cpu.add, cpu.reembed, cpu.queries) == (256, 32, 32)
    assert gpu.add > cpu.add
    assert gpu.reembed > cpu.reembed
    assert gpu.queries > cpu.queries


def test_batches_and_passes_of_the_size_for_the_device(
    model_folders, picture_files, pictures, tmp_path, passes, monkeypatch
):
    """Batches of 7 and 5 items, passes of at most 3 images."""
    monkeypatch.setitem(encode_loop.PIXELS_AT_ONCE, "cpu", 3 * 16 * 16)
    with Gallery.create(tmp_path / "g", model_folders[0], device="cpu") as gallery:
        for module in ("gallery", "reembed"):
            sizes = BatchSizes(add=7, reembed=5, queries=2)
            monkeypatch.setattr(f"holdfast.gallery.{module}.batch_sizes", lambda encoder, sizes=sizes: sizes)
        told = []
        gallery.add(labelled(picture_files[:16]), progress=told.append)
        assert told == [7, 14, 16]
        assert [count for count, _ in passes] == [3, 3, 1, 3, 3, 1, 2]
        gallery.register(model_folders[1], force=True)
        passes.clear()
        told.clear()
        gallery.backfill(progress=lambda state: told.append(state.progress.moved))
        assert told == [0, 5, 10, 15, 16]
        assert [count for count, _ in passes] == [3, 2, 3, 2, 3, 2, 1]
        told.clear()
        gallery.add(labelled(picture_files[:16]), batch_size=16, progress=told.append)  # as the caller says
        assert told == [16]


def test_an_id_given_twice_in_several_passes(model_folders, pictures, tmp_path, monkeypatch):
    """The last good one counts, image or vector, in the same pass or another."""
    monkeypatch.setitem(encode_loop.PIXELS_AT_ONCE, "cpu", 2 * 16 * 16)
    vector, refused = np.eye(32)[0], []
    broken = np.zeros((4, 4), dtype=np.float64)
    given = [
        Item("image", vector=vector),
        Item("vector", image=pictures[0]),
        Item("vector", vector=vector),
        Item("bad last", image=pictures[1]),
        Item("other", image=pictures[2]),
        Item("image", image=pictures[3]),
        Item("bad last", image=broken),
        Item("again", image=pictures[4]),
        Item("again", image=pictures[5]),
    ]
    with Gallery.create(tmp_path / "g", model_folders[0], device="cpu") as gallery:
        assert gallery.add(given, refused=lambda item, error: refused.append(item.id)) == 5
        assert refused == ["bad last"]
        for name, picture in (("bad last", 1), ("other", 2), ("image", 3), ("again", 5)):
            best = gallery.search(pictures[picture], k=1)[0]
            assert (best.id, best.score) == (name, pytest.approx(1, abs=1e-5))
        assert gallery.search(vector=vector, k=1)[0].id == "vector"
        assert gallery.stats()["versions"][0]["vectors"] == 5


def test_a_gpu_without_free_memory(model_folders, picture_files, pictures, tmp_path, monkeypatch):
    with Gallery.create(tmp_path / "g", model_folders[0]) as gallery:
        gallery.add(labelled(picture_files))

        def full(self, images, **options):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has ...")

        with monkeypatch.context() as patch:
            patch.setattr(Encoder, "encode", full)
            for step in (
                lambda: gallery.search(pictures[0]),
                lambda: gallery.add(
                    [Item("a", image=pictures[0])], refused=lambda item, error: pytest.fail(str(error))
                ),
                lambda: gallery.register(model_folders[1]),
            ):
                with pytest.raises(UnavailableError, match=r"free memory to embed; .* \(HOLDFAST_DEVICE=cpu"):
                    step()
        assert [one.number for one in gallery.versions()] == [1]
        assert gallery.get(["a"]) == {}
        assert gallery.search(pictures[0], k=1)[0].id == "000"


def test_convolutions_are_float32_while_a_gpu_embeds():
    convolutions = torch.backends.cudnn.conv
    before = convolutions.fp32_precision
    with _NO_TF32:
        assert convolutions.fp32_precision == "ieee"
    assert convolutions.fp32_precision == before != "ieee"

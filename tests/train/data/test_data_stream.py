"""Images streamed from host memory: the same numbers, in the same order, never overrun."""

import threading
import time

import numpy as np
import pytest
import torch

from holdfast.train.data import ImageSet
from holdfast.train.data.device_images import RING_SLOTS, DeviceImages, StreamedImages, place_images

CPU = torch.device("cpu")


@pytest.fixture
def images():
    pixels = np.random.default_rng(0).integers(0, 256, (40, 4, 6, 3), dtype=np.uint8)
    return ImageSet(pixels, np.arange(40) % 5, tuple("abcde"), "random")


def test_reads_like_images_on_the_device(images):
    streamed, resident = StreamedImages(images), DeviceImages(images)
    indices = torch.tensor([3, 39, 3, 0])
    assert torch.equal(streamed[indices], resident[indices])
    assert streamed[indices].stride() == resident[indices].stride()  # a layout of its own would choose other kernels
    assert torch.equal(streamed.labels, resident.labels)
    assert len(streamed) == len(resident) == 40


@pytest.mark.parametrize("first", [0, 3, RING_SLOTS, 2 * RING_SLOTS + 1])
def test_every_step_finds_its_batch(images, first):
    rows = np.random.default_rng(1).integers(0, 40, (25, 8))
    ring = StreamedImages(images).batch_source(8)
    step, seen = torch.tensor(first), []

    def run():
        seen.append(ring.batch(torch.empty(0), step))
        step.add_(1)

    fed = ring.prefetched(run, iter(rows[first:]), first)
    for _ in rows[first:]:
        fed()
    resident = DeviceImages(images)
    assert len(seen) == 25 - first
    for found, expected in zip(seen, rows[first:]):
        assert torch.equal(found, resident[torch.from_numpy(expected)])


def test_a_place_is_not_filled_while_it_is_read(images):
    """However slow the steps, what is fetched stays at most RING_SLOTS ahead."""
    rows = np.arange(40).reshape(20, 2)
    ring = StreamedImages(images).batch_source(2)
    fetched, real = [], ring.fill
    ring.fill = lambda place, rows: (fetched.append(rows[0]), real(place, rows))
    done = [0]

    def slow():
        time.sleep(0.002)
        assert len(fetched) <= done[0] + RING_SLOTS
        done[0] += 1

    fed = ring.prefetched(slow, iter(rows), 0)
    for _ in rows:
        fed()
    assert len(fetched) == 20


def test_batches_are_fetched_in_the_background(images):
    threads = set()
    ring = StreamedImages(images).batch_source(2)
    real = ring.fill
    ring.fill = lambda place, rows: (threads.add(threading.current_thread()), real(place, rows))
    fed = ring.prefetched(lambda: None, iter(np.zeros((6, 2), int)), 0)
    for _ in range(6):
        fed()
    assert len(threads) == 1
    assert threading.main_thread() not in threads


def test_what_goes_wrong_in_the_background_is_raised(images):
    ring = StreamedImages(images).batch_source(2)
    fed = ring.prefetched(lambda: None, iter([np.zeros(2, int), np.zeros(3, int)]), 0)
    fed()
    with pytest.raises(ValueError):
        fed()


def test_a_mapped_array_is_read_where_it_is(images, tmp_path):
    np.save(tmp_path / "images.npy", images.images)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    streamed = StreamedImages(ImageSet(mapped, images.labels, images.class_names, "mapped"))
    assert streamed.host is mapped
    indices = torch.tensor([1, 7])
    assert torch.equal(streamed[indices], DeviceImages(images)[indices])
    ring = streamed.batch_source(2)
    ring.prefetched(lambda: None, iter([indices.numpy()]), 0)()
    assert torch.equal(ring.batch(indices, torch.tensor(0)), streamed[indices])


def test_placement(images, monkeypatch):
    assert isinstance(place_images(images, CPU), DeviceImages)
    assert isinstance(place_images(images, CPU, "stream"), StreamedImages)
    gpu = torch.device("cuda")
    monkeypatch.setattr("holdfast.train.data.device_images.DeviceImages", lambda images, device: "resident")
    monkeypatch.setattr("holdfast.train.data.device_images.StreamedImages", lambda images, device: "streamed")
    for free, expected in ((4 * images.images.nbytes, "resident"), (1.5 * images.images.nbytes, "streamed")):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, free))
        assert place_images(images, gpu) == expected
        assert place_images(images, gpu, "device") == "resident"


def test_what_is_ahead_is_counted(images):
    assert StreamedImages(images).prefetch_bytes(8) == RING_SLOTS * 8 * 4 * 6 * 3
    assert DeviceImages(images).prefetch_bytes(8) == 0

"""Augmentation, device images and the sampler."""

from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.train.data import canonical
from holdfast.train.data.augment import augment, random_crop, random_flip
from holdfast.train.data.device_images import DeviceImages
from holdfast.train.data.sampler import Draw, batch_shares, epoch_batches, steps_per_epoch

NEW, BUFFER = np.arange(100, 400), np.arange(40)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_device_images_are_the_set():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 4, 6, 3), dtype=np.uint8)
    images = canonical(pixels, np.array([0, 1, 0, 1, 1]), ["a", "b"], source="test")
    device = DeviceImages(images)
    assert device.pixels.shape == (5, 3, 4, 6)
    batch = device[torch.tensor([3, 0])]
    assert np.array_equal(batch.permute(0, 2, 3, 1).numpy(), images.images[[3, 0]])
    assert device.labels.tolist() == images.labels.tolist()


def test_crops_are_shifts_with_black_edges():
    images = torch.randint(1, 256, (200, 3, 5, 7), dtype=torch.uint8, generator=generator())
    cropped = random_crop(images, 2, generator(1))
    assert cropped.shape == images.shape
    seen = set()
    for image, crop in zip(images, cropped):
        padded = torch.zeros(3, 9, 11, dtype=torch.uint8)
        padded[:, 2:7, 2:9] = image
        places = [(r, c) for r in range(5) for c in range(5) if torch.equal(crop, padded[:, r : r + 5, c : c + 7])]
        assert len(places) == 1
        seen.add(places[0])
    assert len(seen) == 25  # every shift comes up


def test_about_half_are_flipped_each_on_its_own():
    images = torch.randint(0, 256, (1000, 1, 3, 4), dtype=torch.uint8, generator=generator())
    flipped = random_flip(images, generator(2))
    mirrored = sum(torch.equal(a, b.flip(-1)) and not torch.equal(a, b) for a, b in zip(flipped, images))
    untouched = sum(torch.equal(a, b) for a, b in zip(flipped, images))
    assert mirrored + untouched == 1000
    assert 400 < mirrored < 600


def test_augmentation_repeats_with_its_generator():
    images = torch.randint(0, 256, (9, 3, 8, 8), dtype=torch.uint8)
    once, again, other = (augment(images, crop_padding=2, flip=True, generator=generator(s)) for s in (3, 3, 4))
    assert torch.equal(once, again)
    assert not torch.equal(once, other)
    assert torch.equal(augment(images, crop_padding=0, flip=False, generator=generator()), images)


def test_half_buffer_half_new():
    batches = epoch_batches(NEW, BUFFER, 32, seed=0, task=2, epoch=0)
    assert batches.indices.shape == (340 // 32, 32)
    assert batches.replayed == 16
    assert np.isin(batches.indices[:, :16], BUFFER).all()
    assert np.isin(batches.indices[:, 16:], NEW).all()


def test_walk_uses_every_image_before_any_twice():
    batches = epoch_batches(NEW, BUFFER, 32, seed=0, task=2, epoch=0)
    new = batches.indices[:, 16:].flatten().tolist()
    assert len(set(new)) == len(new)
    replayed = batches.indices[:, :16].flatten().tolist()
    counts = np.bincount(replayed, minlength=40)
    assert counts.max() - counts.min() <= 1


def test_independent_never_repeats_inside_a_batch():
    batches = epoch_batches(NEW, BUFFER, 32, seed=0, task=2, epoch=0, draw="independent")
    assert all(len(set(row)) == 32 for row in batches.indices.tolist())


def test_mixed_takes_images_in_proportion_and_each_about_once():
    batches = epoch_batches(NEW, BUFFER, 32, seed=0, task=2, epoch=0, draw="mixed")
    assert batches.replayed == round(32 * 40 / 340)
    assert batches.indices.shape == (340 // 32, 32)
    assert np.isin(batches.indices[:, : batches.replayed], BUFFER).all()
    assert np.isin(batches.indices[:, batches.replayed :], NEW).all()
    seen = batches.indices.flatten().tolist()
    assert len(set(seen)) == len(seen)


def test_first_task_is_a_shuffle_without_the_short_batch():
    batches = epoch_batches(NEW, BUFFER[:0], 64, seed=0, task=1, epoch=0)
    assert batches.replayed == 0
    assert batches.indices.shape == (300 // 64, 64)
    assert len(set(batches.indices.flatten().tolist())) == batches.indices.numel()


def test_an_epoch_is_a_function_of_its_numbers():
    def batches(**numbers):
        return epoch_batches(NEW, BUFFER, 32, **{"seed": 0, "task": 2, "epoch": 0, **numbers}).indices

    assert torch.equal(batches(), batches())
    assert not any(torch.equal(batches(), batches(**other)) for other in ({"seed": 1}, {"task": 3}, {"epoch": 1}))


def test_steps_per_epoch_of_the_papers_seven_tasks():
    # 10 + 6 x 15 classes of 500 images, 20 kept of each, batches of 128: about 17 thousand steps in 40 epochs.
    steps = [steps_per_epoch(5000, 0, 128)] + [steps_per_epoch(7500, 20 * (10 + 15 * i), 128) for i in range(6)]
    assert steps == [39, 60, 62, 64, 67, 69, 71]
    assert 40 * sum(steps) == pytest.approx(17_000, abs=400)


@pytest.mark.parametrize(
    ("num_new", "num_buffer", "shares"), [(7500, 200, (3, 125)), (5000, 1, (1, 127)), (1, 999, (127, 1))]
)
def test_mixed_keeps_an_image_of_each_pool(num_new, num_buffer, shares):
    assert batch_shares(num_new, num_buffer, 128, "mixed") == shares


@settings(deadline=None)
@given(st.integers(1, 50), st.integers(0, 50), st.integers(2, 64), st.sampled_from(get_args(Draw)))
def test_small_pools_shrink_the_batch_instead_of_failing(num_new, num_buffer, batch_size, draw):
    new, buffer = np.arange(1000, 1000 + num_new), np.arange(num_buffer)
    batches = epoch_batches(new, buffer, batch_size, seed=0, task=1, epoch=0, draw=draw)
    assert len(batches.indices) == steps_per_epoch(num_new, num_buffer, batch_size)
    assert batches.replayed == batch_shares(num_new, num_buffer, batch_size, draw)[0] <= num_buffer
    if draw != "mixed":
        assert batches.replayed == min(batch_size // 2, num_buffer)
    assert 1 <= batches.indices.shape[1] <= batch_size

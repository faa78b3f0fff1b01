"""The user's own optimiser, scheduler, augmentation and DataLoader in ``fit``, and the warm-up."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from holdfast.core.errors import HoldfastError
from holdfast.train.data.readers.torch_dataset import read_dataset
from holdfast.train.engine import Cancellation, Cancelled, FitOptions, fit
from holdfast.train.engine.checkpoint import CheckpointFile
from holdfast.train.engine.schedule import RateSchedule, learning_rate
from holdfast.train.methods import METHODS

OPTIONS = FitOptions(epochs=2, batch_size=8, lr=0.1, momentum=0.9, crop_padding=1, flip=False, schedule="cosine")


class Items(Dataset):
    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images.images[i], int(self.images.labels[i])


@pytest.fixture
def trained(glyph_images, two_tasks, make_small):
    """Trains the first task; returns the weights and the rate of each epoch."""

    def train(images=None, options=OPTIONS, on_event=lambda event: None, **keywords):
        encoder, seen = make_small(), []

        def note(event):
            seen.append(event.to_json())
            on_event(event)

        data = glyph_images if images is None else images
        fit(
            encoder,
            METHODS["er"](),
            two_tasks.tasks[0],
            data,
            options=options,
            on_event=note,
            **keywords,
        )
        return encoder.state_dict(), [event["lr"] for event in seen if event["event"] == "epoch"]

    return train


def equal(one, two):
    return all(torch.equal(value, two[name]) for name, value in one.items())


def sgd(groups):
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9, fused=True)


def test_an_own_optimizer_follows_the_schedule(trained):
    assert equal(trained(optimizer=sgd)[0], trained()[0])
    assert not equal(trained(optimizer=lambda groups: torch.optim.RAdam(groups, lr=0.01))[0], trained()[0])


def test_rates_by_group_multiply_the_rates_of_an_own_optimizer(glyph_images, two_tasks, make_small):
    made, rates = [], []

    def make(groups):
        made.append(torch.optim.Adam(groups, lr=0.01))
        return made[0]

    options = FitOptions(epochs=2, batch_size=8, lr=0.5, lr_groups={"backbone.stages.0": 0.1}, schedule="cosine",
                         final_lr=0.0)  # fmt: skip
    method = METHODS["er"]()
    fit(make_small(), method, two_tasks.tasks[0], glyph_images, options=options, optimizer=make,
        on_event=lambda event: rates.append([group["lr"] for group in made[0].param_groups]))  # fmt: skip
    assert sorted(rates[-1]) == pytest.approx([0.0005, 0.005])  # half of it in the second of two epochs


def test_an_own_scheduler_takes_every_step_and_is_resumed(trained, tmp_path):
    def scheduler(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)

    weights, rates = trained(scheduler=scheduler)
    steps = 24 // 8
    assert rates == pytest.approx([0.1 * 0.9**steps, 0.1 * 0.9 ** (2 * steps)])
    cancel = Cancellation()
    checkpoint = CheckpointFile(tmp_path / "checkpoint.safetensors")
    with pytest.raises(Cancelled):
        trained(scheduler=scheduler, cancel=cancel, checkpoint=checkpoint, on_event=lambda event: cancel.cancel())
    assert equal(trained(scheduler=scheduler, checkpoint=checkpoint)[0], weights)


def test_an_own_augmentation_replaces_the_crops_and_is_resumed(trained, tmp_path):
    seen = []

    def shift(pixels, generator):
        seen.append((pixels.dtype, tuple(pixels.shape)))
        noise = torch.randint(0, 50, pixels.shape, generator=generator, dtype=torch.uint8)
        return pixels | noise

    weights, _ = trained(augment=shift)
    assert set(seen) == {(torch.uint8, (8, 1, 16, 16))}
    assert not equal(weights, trained()[0])
    cancel = Cancellation()
    checkpoint = CheckpointFile(tmp_path / "checkpoint.safetensors")
    with pytest.raises(Cancelled):
        trained(augment=shift, cancel=cancel, checkpoint=checkpoint, on_event=lambda event: cancel.cancel())
    assert equal(trained(augment=shift, checkpoint=checkpoint)[0], weights)
    unchanged = FitOptions(**{**vars(OPTIONS), "crop_padding": 0})
    assert equal(trained(augment=lambda pixels, generator: pixels)[0], trained(options=unchanged)[0])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_loader_trains_like_its_dataset(workers, trained, glyph_images):
    if workers:
        images = read_dataset(DataLoader(Items(glyph_images), batch_size=4, shuffle=True, num_workers=workers))
        assert (images.images == glyph_images.images).all()
        assert (images.labels == glyph_images.labels).all()
        return
    assert equal(trained(DataLoader(Items(glyph_images), batch_size=4, shuffle=True))[0], trained()[0])


def test_warm_up():
    options = FitOptions(epochs=4, batch_size=8, lr=0.4, schedule="constant", warmup=0.25)
    optimizer = torch.optim.SGD([{"params": [torch.zeros(1, requires_grad=True)], "factor": 0.5}], lr=1.0)
    rates = RateSchedule(optimizer, options, per_epoch=4, done=0)
    found = []
    for step in range(6):
        rates.before_step(step)
        found.append(optimizer.param_groups[0]["lr"])
    assert found == pytest.approx([0.05, 0.1, 0.15, 0.2, 0.2, 0.2])
    assert rates.rate == 0.4
    resumed = RateSchedule(optimizer, options, per_epoch=4, done=2)
    resumed.before_step(2)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.15)
    assert learning_rate(options, 0) == 0.4


class Halving(torch.optim.Optimizer):
    """Keeps a number for each parameter and one for each group, as optimisers of other libraries do."""

    def __init__(self, groups):
        super().__init__(groups, {"lr": 0.1, "calls": 0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["calls"] += 1
            for parameter in group["params"]:
                state = self.state[parameter]
                state["step"] = state.get("step", 0) + 1
                if parameter.grad is not None:
                    parameter -= group["lr"] * parameter.grad / (state["step"] + group["calls"])


def test_numbers_that_an_own_optimizer_keeps_are_resumed(trained, tmp_path):
    cancel = Cancellation()
    checkpoint = CheckpointFile(tmp_path / "checkpoint.safetensors")
    with pytest.raises(Cancelled):
        trained(optimizer=Halving, cancel=cancel, checkpoint=checkpoint, on_event=lambda event: cancel.cancel())
    assert equal(trained(optimizer=Halving, checkpoint=checkpoint)[0], trained(optimizer=Halving)[0])


def test_state_that_cannot_be_saved_is_refused(trained, tmp_path):
    class Odd(Halving):
        def step(self):
            super().step()
            self.state[self.param_groups[0]["params"][0]]["odd"] = object()

    cancel = Cancellation()
    checkpoint = CheckpointFile(tmp_path / "checkpoint.safetensors")
    with pytest.raises(HoldfastError, match=r"Odd: its state cannot be saved .*; train without a checkpoint"):
        trained(optimizer=Odd, cancel=cancel, checkpoint=checkpoint, on_event=lambda event: cancel.cancel())


def test_an_own_augmentation_may_cut_images_to_the_size_of_the_model(glyph_images, two_tasks, make_small):
    encoder = make_small()
    encoder.preprocess = type(encoder.preprocess)(size=12, mean=(0.2,), std=(0.3,), colour="grey")
    fit(encoder, METHODS["er"](), two_tasks.tasks[0], glyph_images, options=OPTIONS,
        augment=lambda pixels, generator: pixels[..., 2:14, 2:14])  # fmt: skip


def test_the_loaders_batch_size_is_used_without_options(glyph_images, two_tasks, make_small):
    began = []
    cancel = Cancellation()
    cancel.cancel()
    with pytest.raises(Cancelled):
        fit(make_small(), METHODS["er"](), two_tasks.tasks[0], DataLoader(Items(glyph_images), batch_size=12),
            on_event=began.append, cancel=cancel)  # fmt: skip
    assert began[0].steps == 70 * 24 // 12


def test_a_warm_up_of_everything_is_refused():
    with pytest.raises(HoldfastError, match="warmup must be a share of the steps"):
        FitOptions(warmup=1.0)

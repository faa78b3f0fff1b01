"""The middle of a task on disk: restored exactly, refused when damaged, never overwritten by nonsense."""

import json
import sys

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.engine import Cancellation, Cancelled, FitOptions, fit
from holdfast.train.engine.checkpoint import CheckpointFile
from holdfast.train.events import ignore_event
from holdfast.train.methods import ER, Method, SimplexHOC
from holdfast.train.tensor_files import read_torch, write_torch

EVERY_STEP = {"checkpoint_minutes": 0.0, "epochs": 3, "batch_size": 8, "crop_padding": 1}


class KilledError(Exception):
    pass


def killed():
    raise KilledError


class StopAfter:
    """Receives events and calls ``stop`` at number ``count``; by default it raises, as if the process were killed."""

    def __init__(self, count, stop=killed):
        self.left = count
        self.stop = stop
        self.events = []

    def __call__(self, event):
        self.events.append(event)
        self.left -= 1
        if self.left == 0:
            self.stop()


class RuinedAfter(Method):
    """|z|^2 for some steps, then a loss of NaN, or a finite one whose gradient is too large for a float."""

    def __init__(self, steps, what="nan"):
        super().__init__()
        self.steps, self.what = steps, what
        self.register_buffer("done", torch.zeros(()))

    def feature_dim(self, backbone_dim):
        return backbone_dim

    def begin(self, task, dim):
        pass

    def loss(self, z, batch, *, z_old=None, z_view=None, z_kept=None, progress):
        self.done += 1
        value = z.square().mean()
        if self.done > self.steps:
            value = value * float("nan") if self.what == "nan" else value + (z - z.detach()).sum() * 3e38
        return {"size": value}


@pytest.fixture(autouse=True)
def every_step_pulses(monkeypatch):
    # By module: in the package, ``fit`` is the function.
    monkeypatch.setattr(sys.modules["holdfast.train.engine.fit"], "PULSE_SECONDS", -1.0)


def trained(make_small, two_tasks, device_images, checkpoint=None, on_event=ignore_event, cancel=None, **options):
    encoder, method = make_small(5), SimplexHOC(slots=6)
    chosen = FitOptions(**{**EVERY_STEP, **options})
    arguments = {"old": make_small(5, seed=9), "options": chosen, "checkpoint": checkpoint, "cancel": cancel}
    fit(encoder, method, two_tasks.tasks[1], device_images, on_event=on_event, **arguments)
    return {**encoder.state_dict(), **method.state_dict()}


@pytest.mark.parametrize("options", [{}, {"optimizer": "adamw", "lr": 1e-3}, {"momentum": 0.0}, {"flip": True}])
@pytest.mark.parametrize("stop", [2, 3, 4, 7, 10])  # inside an epoch, at its end, at the start of the next, at the end
def test_interrupted_and_gone_on_is_bit_for_bit_the_same(stop, options, make_small, two_tasks, device_images, tmp_path):
    expected = trained(make_small, two_tasks, device_images, **options)
    file, log = CheckpointFile(tmp_path / "c.safetensors"), StopAfter(stop)
    with pytest.raises(KilledError):
        trained(make_small, two_tasks, device_images, file, log, **options)
    again = StopAfter(-1)
    found = trained(make_small, two_tasks, device_images, file, again, **options)
    # The event that killed was told before its step was saved: that step is done again.
    assert again.events[0].step == max(0, stop - 2)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("stop", [2, 4, 6, 10])  # inside an epoch, at its end, in the next, at the very end
def test_a_cancelled_task_resumes_at_the_step_it_stopped_at(stop, make_small, two_tasks, device_images, tmp_path):
    """Not only what the last checkpoint had, which here was never due."""
    rarely = {"checkpoint_minutes": 1000.0}
    whole, again = StopAfter(-1), StopAfter(-1)
    expected = trained(make_small, two_tasks, device_images, on_event=whole, **rarely)
    cancel = Cancellation()
    log = StopAfter(stop, cancel.cancel)
    file = CheckpointFile(tmp_path / "c.safetensors")
    with pytest.raises(Cancelled):
        trained(make_small, two_tasks, device_images, file, log, cancel, **rarely)
    found = trained(make_small, two_tasks, device_images, file, again, **rarely)
    assert again.events[0].step == stop - 1
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    terms = [e.terms for run in (log, again) for e in run.events if e.kind == "epoch"]
    assert terms == [e.terms for e in whole.events if e.kind == "epoch"]


def test_epoch_means_survive_an_interruption(make_small, two_tasks, device_images, tmp_path):
    whole, log, again = StopAfter(-1), StopAfter(6), StopAfter(-1)
    trained(make_small, two_tasks, device_images, on_event=whole)
    file = CheckpointFile(tmp_path / "c.safetensors")
    with pytest.raises(KilledError):
        trained(make_small, two_tasks, device_images, file, log)
    trained(make_small, two_tasks, device_images, file, again)
    terms = {e.epoch: e.terms for run in (log, again) for e in run.events if e.kind == "epoch"}
    assert terms == {e.epoch: e.terms for e in whole.events if e.kind == "epoch"}


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("nan", "loss became NaN or infinite in task 2, epoch 2, step 2"),
        ("gradient", "weights became NaN .* in task 2"),
    ],
)
def test_nan_stops_and_keeps_the_last_good_checkpoint(what, reason, make_small, two_tasks, device_images, tmp_path):
    file = CheckpointFile(tmp_path / "c.safetensors")
    task = two_tasks.tasks[1]  # three steps an epoch; the fifth step of all goes wrong
    method = RuinedAfter(4, what)
    with pytest.raises(HoldfastError, match=f"{reason}; the last good checkpoint is kept") as error:
        fit(make_small(), method, task, device_images, options=FitOptions(**EVERY_STEP), checkpoint=file)
    assert "\n" not in str(error.value)
    tensors, metadata = read_torch(file.path)
    assert '"step": 4' in metadata["position"]
    assert all(tensor.isfinite().all() for name, tensor in tensors.items() if name.startswith("encoder."))


def test_nan_in_an_epoch_without_checkpoint_names_the_first_bad_step(make_small, two_tasks, device_images):
    with pytest.raises(HoldfastError, match="task 1, epoch 1, step 2;"):
        fit(make_small(), RuinedAfter(1), two_tasks.tasks[0], device_images, options=FitOptions(epochs=1, batch_size=8))


def test_weights_ruined_by_the_last_step_are_not_handed_on(make_small, two_tasks, device_images):
    options = FitOptions(epochs=1, batch_size=24)
    with pytest.raises(HoldfastError, match="weights became NaN or infinite in task 1"):
        fit(make_small(), RuinedAfter(0, "gradient"), two_tasks.tasks[0], device_images, options=options)


@pytest.mark.parametrize("cut", [0, 7, 100, -1])
def test_truncated_checkpoint(cut, make_small, two_tasks, device_images, tmp_path):
    file = CheckpointFile(tmp_path / "c.safetensors")
    trained(make_small, two_tasks, device_images, file)
    damaged = file.path.read_bytes()[:cut]
    file.path.write_bytes(damaged)
    with pytest.raises(HoldfastError, match=r"c\.safetensors.*delete it to start task 2 from its beginning") as error:
        trained(make_small, two_tasks, device_images, file)
    assert "\n" not in str(error.value)
    assert file.path.read_bytes() == damaged


@pytest.mark.parametrize("metadata", [{}, {"position": "3"}, {"position": "{"}, {"position": '{"task": 2}'}])
def test_other_files_are_no_checkpoints(metadata, make_small, two_tasks, device_images, tmp_path):
    file = CheckpointFile(tmp_path / "c.safetensors")
    write_torch(file.path, {"x": torch.zeros(1)}, metadata)
    with pytest.raises(HoldfastError, match="delete it"):
        trained(make_small, two_tasks, device_images, file)


def test_checkpoint_of_another_model_is_refused(make_small, two_tasks, device_images, tmp_path):
    file = CheckpointFile(tmp_path / "c.safetensors")
    options = FitOptions(**EVERY_STEP)
    fit(make_small(), ER(), two_tasks.tasks[1], device_images, options=options, checkpoint=file)
    with pytest.raises(HoldfastError, match=r"checkpoint cannot be used.*delete it"):
        trained(make_small, two_tasks, device_images, file)


def test_checkpoint_of_another_task_is_ignored(make_small, two_tasks, device_images, tmp_path):
    expected = trained(make_small, two_tasks, device_images)
    file = CheckpointFile(tmp_path / "c.safetensors")
    options = FitOptions(**EVERY_STEP)
    fit(make_small(5), SimplexHOC(slots=6), two_tasks.tasks[0], device_images, options=options, checkpoint=file)
    found = trained(make_small, two_tasks, device_images, file)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_checkpoint_of_other_trained_weights_is_refused(make_small, two_tasks, device_images, tmp_path):
    file = CheckpointFile(tmp_path / "c.safetensors")
    arguments = {"options": FitOptions(**EVERY_STEP), "checkpoint": file}
    fit(make_small(), ER(), two_tasks.tasks[0], device_images, **arguments)
    encoder = make_small()
    encoder.freeze(["stages"])
    with pytest.raises(HoldfastError, match="delete it"):
        fit(encoder, ER(), two_tasks.tasks[0], device_images, **arguments)


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"seed": 1}, "another seed"), ({"epochs": 4}, "another number of steps"), ({"batch_size": 16}, "batch_size")],
)
def test_checkpoint_of_another_training_is_refused(options, reason, make_small, two_tasks, device_images, tmp_path):
    file = CheckpointFile(tmp_path / "c.safetensors")
    trained(make_small, two_tasks, device_images, file)
    with pytest.raises(HoldfastError, match=rf"c\.safetensors: .*{reason}.*delete it"):
        trained(make_small, two_tasks, device_images, file, **options)


def test_a_checkpoint_without_a_record_of_its_training_still_resumes(make_small, two_tasks, device_images, tmp_path):
    file = CheckpointFile(tmp_path / "c.safetensors")
    with pytest.raises(KilledError):
        trained(make_small, two_tasks, device_images, file, StopAfter(6))
    tensors, metadata = read_torch(file.path)
    position = json.loads(metadata["position"])
    del position["training"]  # as older versions wrote it
    write_torch(file.path, tensors, {"position": json.dumps(position)})
    again = StopAfter(-1)
    found = trained(make_small, two_tasks, device_images, file, again)
    assert again.events[0].step == position["step"] > 0
    expected = trained(make_small, two_tasks, device_images)
    assert all(torch.equal(found[name], expected[name]) for name in expected)

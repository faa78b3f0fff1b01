"""Training from streamed images: the same bits as from images on the device, resumed or not."""

import dataclasses
import sys

import pytest
import torch

from holdfast.train.data.device_images import StreamedImages, place_images
from holdfast.train.engine import FitOptions, fit
from holdfast.train.engine.checkpoint import CheckpointFile
from holdfast.train.methods import SimplexHOC

OPTIONS = FitOptions(epochs=3, batch_size=8, lr=0.02, crop_padding=0, checkpoint_minutes=0)


class Stopped(Exception):  # noqa: N818
    """What ends a task in its middle."""


@pytest.fixture
def trained(glyph_images, two_tasks, make_small):
    """Weights after the second task; crop_padding 0, where the layout of the pixels reaches the network."""

    def train(placement, padding=0, **arguments):
        encoder, method = make_small(7), SimplexHOC(slots=8)
        options = dataclasses.replace(OPTIONS, images=placement, crop_padding=padding)
        images = place_images(glyph_images, torch.device("cpu"), placement)
        assert isinstance(images, StreamedImages) == (placement == "stream")
        fit(encoder, method, two_tasks.tasks[1], images, old=make_small(7, 1), options=options, **arguments)
        return encoder.state_dict()

    return train


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("padding", [0, 2])
def test_streamed_is_resident_bit_for_bit(trained, padding):
    assert equal(trained("stream", padding), trained("device", padding))


def test_an_image_set_is_placed_as_the_options_say(glyph_images, two_tasks, make_small, trained):
    encoder = make_small(7)
    options = dataclasses.replace(OPTIONS, images="stream")
    fit(encoder, SimplexHOC(slots=8), two_tasks.tasks[1], glyph_images, old=make_small(7, 1), options=options)
    assert equal(encoder.state_dict(), trained("device"))


@pytest.mark.parametrize("stop", [2, 5, 6])
def test_goes_on_in_the_middle(trained, tmp_path, monkeypatch, stop):
    monkeypatch.setattr(sys.modules["holdfast.train.engine.fit"], "PULSE_SECONDS", -1.0)
    checkpoint = CheckpointFile(tmp_path / "checkpoint.safetensors")

    def log(event):
        if event.kind in ("pulse", "epoch") and event.step == stop:
            raise Stopped

    with pytest.raises(Stopped):
        trained("stream", checkpoint=checkpoint, on_event=log)
    assert equal(trained("stream", checkpoint=checkpoint), trained("device"))


def test_a_run_says_that_it_streams(tiny_recipe, tiny_run, tmp_path):
    from holdfast.core.run_folder import RunFolder
    from holdfast.core.storage import read_json
    from holdfast.train.events import read_events
    from holdfast.train.experiments.execute import execute
    from holdfast.train.experiments.load import read_recipe
    from holdfast.train.experiments.schema import check_recipe

    folder = RunFolder(tmp_path / "run")
    recipe = check_recipe(read_recipe(str(tiny_recipe), ["train.images=stream"]))
    metrics = execute(recipe, folder, device="cpu")
    notes = [event["text"] for event in read_events(folder.log) if event["event"] == "note"]
    assert notes == ["streaming 48 images from host memory"]
    assert metrics["protocols"] == read_json(tiny_run / "metrics.json")["protocols"]

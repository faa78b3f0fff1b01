"""Options and calls that would train something else than was meant."""

from dataclasses import replace

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.data import load_split
from holdfast.train.data.augment import centre_crop
from holdfast.train.engine import FitOptions, fit
from holdfast.train.methods import ER, SimplexHOC


def test_a_later_task_needs_the_previous_model(glyph_images, two_tasks, make_small):
    options = FitOptions(epochs=1, batch_size=8)
    with pytest.raises(HoldfastError, match="pass it as old"):
        fit(make_small(7), SimplexHOC(slots=8), two_tasks.tasks[1], glyph_images, options=options)
    fit(make_small(), ER(), two_tasks.tasks[1], glyph_images, options=options)  # reads no previous model


def test_an_old_model_of_another_size(glyph_images, two_tasks, make_small):
    options = FitOptions(epochs=1, batch_size=8)
    with pytest.raises(HoldfastError, match="an old model with features of 5 numbers, but the model in training gives"):
        fit(make_small(7), SimplexHOC(slots=8), two_tasks.tasks[1], glyph_images, old=make_small(5), options=options)


@pytest.mark.parametrize("options", [{"crop_padding": 0}, {"crop_padding": 0, "resized_crop": 12}])
def test_images_of_another_size_than_the_encoder_takes(options, two_tasks, make_small):
    larger = load_split("glyphs", "train", size=24, train_classes=6, test_classes=3, per_class_train=8)
    side = options.get("resized_crop", 24)
    with pytest.raises(HoldfastError, match=rf"pixels of {side} x {side} and the encoder's preprocess makes 16 x 16"):
        fit(make_small(), ER(), two_tasks.tasks[0], larger, options=FitOptions(epochs=1, batch_size=8, **options))


def test_the_centre_of_smaller_images():
    with pytest.raises(HoldfastError, match="images of 8 x 16 are smaller than 12 x 12"):
        centre_crop(torch.zeros(1, 1, 8, 16), 12, 12)


def test_batches_of_one_image(glyph_images, two_tasks, make_small):
    task = replace(two_tasks.tasks[0], new_indices=two_tasks.tasks[0].new_indices[:1])
    with pytest.raises(HoldfastError, match="each batch would have one image, and batch normalisation needs two"):
        fit(make_small(), ER(), task, glyph_images, options=FitOptions(epochs=1, batch_size=8))


@pytest.mark.parametrize("milestones", [(50, 64), (0.0,), (1.0,), (0.5, -0.1)])
def test_milestones_are_fractions(milestones):
    with pytest.raises(HoldfastError, match="fractions of the epochs"):
        FitOptions(milestones=milestones)


def test_negative_checkpoint_time():
    with pytest.raises(HoldfastError, match="checkpoint_minutes"):
        FitOptions(checkpoint_minutes=-1)
    with pytest.raises(HoldfastError, match="seed must be at least 0, got -1"):
        FitOptions(seed=-1)


def test_images_without_labels(glyph_images, two_tasks, make_small):
    for images in (glyph_images.images, torch.zeros(4, 1, 16, 16), [(glyph_images.images[0], 0)]):
        with pytest.raises(HoldfastError, match=r"images must be an ImageSet, .*read_dataset"):
            fit(make_small(), ER(), two_tasks.tasks[0], images)


def test_rho_and_base_have_a_sign():
    with pytest.raises(HoldfastError, match="rho"):
        SimplexHOC(slots=8, rho=-5.0)

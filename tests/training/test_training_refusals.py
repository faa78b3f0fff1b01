"""Options and calls that would train something else than was meant."""

import pytest

from holdfast.errors import HoldfastError
from holdfast.methods import ER, SimplexHOC
from holdfast.training import FitOptions, fit


@pytest.mark.parametrize("milestones", [(50, 64), (0.0,), (1.0,), (0.5, -0.1)])
def test_milestones_are_fractions(milestones):
    with pytest.raises(HoldfastError, match="fractions of the epochs"):
        FitOptions(milestones=milestones)


def test_negative_checkpoint_time():
    with pytest.raises(HoldfastError, match="checkpoint_minutes"):
        FitOptions(checkpoint_minutes=-1)


def test_a_later_task_needs_the_previous_model(glyph_images, two_tasks, make_small):
    options = FitOptions(epochs=1, batch_size=8)
    with pytest.raises(HoldfastError, match="pass it as old"):
        fit(make_small(7), SimplexHOC(slots=8), two_tasks.tasks[1], glyph_images, options=options)
    fit(make_small(), ER(), two_tasks.tasks[1], glyph_images, options=options)  # reads no previous model


def test_rho_and_base_have_a_sign():
    with pytest.raises(HoldfastError, match="rho"):
        SimplexHOC(slots=8, rho=-5.0)

"""The rows of a classifier that begins at class means, for every method that has one."""

import pytest
import torch
from test_methods_losses import FIRST, SECOND
from test_methods_others import taken_through

from holdfast.core.errors import HoldfastError
from holdfast.train.geometry import unit
from holdfast.train.losses import class_means
from holdfast.train.methods import METHODS

WITH_CLASSIFIER = [name for name in METHODS if "simplex" not in name and name != "means_hoc"]


@pytest.mark.parametrize("name", WITH_CLASSIFIER)
def test_rows_of_new_classes_begin_at_their_means(name):
    method = METHODS[name](first_rows="means")
    first, second = taken_through(method, FIRST, SECOND)
    means = [class_means(*survey.new(), task.num_seen) for survey, task in ((first, FIRST), (second, SECOND))]
    rows = method.classifier.weight.detach()
    torch.testing.assert_close(unit(rows), unit(torch.cat([means[0], means[1][FIRST.num_seen :]])))
    assert method.classifier.weight.requires_grad


@pytest.mark.parametrize("name", WITH_CLASSIFIER)
def test_rows_that_begin_at_random(name):
    torch.manual_seed(0)
    method = METHODS[name](first_rows="random")
    (survey,) = taken_through(method, FIRST)
    assert hasattr(method, "classifier")
    means = class_means(*survey.new(), FIRST.num_seen)
    assert not torch.allclose(unit(method.classifier.weight.detach()), unit(means), atol=0.1)


def test_rows_of_a_linear_classifier_keep_the_length_of_drawn_ones():
    torch.manual_seed(0)
    drawn = METHODS["er"]()
    taken_through(drawn, FIRST)
    torch.manual_seed(0)
    at_means = METHODS["er"](first_rows="means")
    taken_through(at_means, FIRST)
    lengths = at_means.classifier.weight.norm(dim=1)
    torch.testing.assert_close(lengths, drawn.classifier.weight.norm(dim=1).mean().expand(FIRST.num_seen))


def test_the_default_of_distillation_depends_on_its_softmax():
    assert METHODS["distillation"]().first_rows == "random"
    assert METHODS["distillation"](softmax="cosine").first_rows == "means"


@pytest.mark.parametrize("name", WITH_CLASSIFIER)
def test_another_word_is_refused(name):
    with pytest.raises(HoldfastError, match="first_rows must be one of random, means"):
        METHODS[name](first_rows="zero")

"""Cosine-HOC: the loss against its formula, and where the classifier's rows begin."""

import pytest
import torch
from test_methods_losses import FIRST, SECOND, Toy
from test_methods_others import BATCH, DIM, PROGRESS, Z_OLD, FakeSurvey

from holdfast.core.errors import HoldfastError
from holdfast.train.geometry import cosine_matrix, unit
from holdfast.train.losses import class_means, info_nce
from holdfast.train.methods import CosineHOC


def test_the_loss_is_ce_over_cosines_and_weighted_nce():
    torch.manual_seed(0)
    method = CosineHOC(scale=8.0, contrast=0.5, rho=4.0, negatives="masked")
    method.begin(SECOND, DIM)
    z, labels = torch.randn(12, DIM), BATCH.labels
    terms = method.loss(z, BATCH, z_old=Z_OLD, progress=PROGRESS)
    logits = 8.0 * cosine_matrix(z, method.classifier.weight)
    ce = (logits.logsumexp(1) - logits[torch.arange(12), labels]).mean()
    torch.testing.assert_close(terms["ce"], ce)
    torch.testing.assert_close(terms["nce"], 0.5 * info_nce(z, Z_OLD, labels, rho=4.0, negatives="masked"))
    assert method.loss(z, BATCH, progress=PROGRESS).keys() == {"ce"}
    assert method.num_slots is None
    assert method.feature_dim(DIM) == DIM


def test_rows_of_new_classes_begin_at_their_means():
    method, survey = CosineHOC(), FakeSurvey(FIRST)
    survey.labels[survey.labels == 2] = 1  # a class without samples
    method.begin(FIRST, DIM)
    random = method.classifier.weight.detach().clone()
    method.prepare(FIRST, survey)
    means = unit(class_means(survey.z, survey.labels, 4))
    expected = torch.stack([means[0], means[1], random[2], means[3]])
    torch.testing.assert_close(method.classifier.weight.detach(), expected)
    later = FakeSurvey(SECOND)
    method.begin(SECOND, DIM)
    method.prepare(SECOND, later)
    torch.testing.assert_close(method.classifier.weight.detach()[:4], expected)
    torch.testing.assert_close(method.classifier.weight.detach()[4:], unit(class_means(later.z, later.labels, 6))[4:])
    nothing_new = Toy(3, 0, 6)
    before = method.classifier.weight.detach().clone()
    method.begin(nothing_new, DIM)
    method.prepare(nothing_new, FakeSurvey(nothing_new))
    assert torch.equal(method.classifier.weight, before)


@pytest.mark.parametrize("options", [{"scale": 0.0}, {"rho": -1.0}, {"contrast": -0.1}])
def test_options_that_are_refused(options):
    with pytest.raises(HoldfastError, match=next(iter(options))):
        CosineHOC(**options)

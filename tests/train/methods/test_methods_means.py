"""Means-HOC: where prototypes lie, that they stay, and the loss against its formula."""

import pytest
import torch
from test_methods_losses import Toy
from test_methods_others import BATCH, DIM, PROGRESS, Z_OLD, FakeSurvey

from holdfast.core.errors import HoldfastError
from holdfast.train.geometry import cosine_matrix, unit
from holdfast.train.losses import class_means, info_nce
from holdfast.train.methods import MeansHOC

FIRST, SECOND = Toy(1, 4, 4, loaded=True), Toy(2, 2, 6)


def test_prototypes_are_the_references_class_means_and_stay():
    method = MeansHOC()
    survey = FakeSurvey(FIRST)
    method.begin(FIRST, DIM)
    method.prepare(FIRST, survey)
    expected = unit(class_means(survey.z_old, survey.labels, 4))
    torch.testing.assert_close(method.prototypes(), expected)
    method.finish(FIRST, survey)
    later = FakeSurvey(SECOND)
    method.begin(SECOND, DIM)
    method.prepare(SECOND, later)
    assert torch.equal(method.prototypes()[:4], expected)  # for ever
    torch.testing.assert_close(method.prototypes()[4:], unit(class_means(later.z_old, later.labels, 6))[4:])


def test_a_class_the_reference_never_saw_learns_its_prototype():
    method = MeansHOC()
    survey = FakeSurvey(FIRST)
    survey.z_old[survey.labels == 2] = 0
    method.begin(FIRST, DIM)
    method.prepare(FIRST, survey)
    batch = BATCH._replace(labels=BATCH.labels % 4)
    terms = method.loss(torch.randn(12, DIM), batch, z_old=Z_OLD, progress=PROGRESS)
    sum(terms.values()).backward()
    assert method.free.grad is not None
    assert method.free.grad.any(1).tolist() == [False, False, True, False]
    before = method.prototypes().detach()
    method.finish(FIRST, survey)
    assert torch.equal(method.prototypes(), before)  # fixed now
    assert method.rows.any(1).all()


def test_the_loss_is_lambda_ce_and_the_rest_nce():
    torch.manual_seed(0)
    method = MeansHOC(lambda_=0.3, rho=4.0, scale=8.0)
    survey = FakeSurvey(FIRST)
    method.begin(FIRST, DIM)
    method.prepare(FIRST, survey)
    z, labels = torch.randn(12, DIM), BATCH.labels % 4
    terms = method.loss(z, BATCH._replace(labels=labels), z_old=Z_OLD, progress=PROGRESS)
    logits = 8.0 * cosine_matrix(z, unit(class_means(survey.z_old, survey.labels, 4)))
    ce = (logits.logsumexp(1) - logits[torch.arange(12), labels]).mean()
    torch.testing.assert_close(terms["ce"], 0.3 * ce)
    torch.testing.assert_close(terms["nce"], 0.7 * info_nce(z, Z_OLD, labels, rho=4.0))


def test_without_a_reference_there_is_cross_entropy_alone():
    method = MeansHOC(dim=5)
    assert (method.feature_dim(32), MeansHOC().feature_dim(32)) == (5, 32)
    method.begin(Toy(1, 4, 4), DIM)
    batch = BATCH._replace(labels=BATCH.labels % 4)
    assert set(method.loss(torch.randn(12, DIM), batch, progress=PROGRESS)) == {"ce"}


@pytest.mark.parametrize("options", [{"lambda_": 2.0}, {"rho": 0.0}, {"scale": -1.0}, {"dim": 0}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(HoldfastError, match="got"):
        MeansHOC(**options)

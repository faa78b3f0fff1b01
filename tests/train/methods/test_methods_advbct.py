"""AdvBCT: each term, the reversal, and what is kept between tasks."""

import pytest
import torch
from test_methods_losses import FIRST, SECOND
from test_methods_others import BATCH, DIM, PROGRESS, THIRD, Z_OLD, FakeSurvey, taken_through, values

from holdfast.train import losses
from holdfast.train.methods import AdvBCT, Progress


@pytest.fixture
def z():
    return torch.randn(12, DIM, requires_grad=True)


def test_advbct_terms(z):
    method = AdvBCT(tau=0.8, limit=3.0, adversary=0.5)
    taken_through(method, FIRST, SECOND)
    method.eval()  # so that a second call of the discriminator says the same
    found = values(method.loss(z, BATCH, z_old=Z_OLD, progress=PROGRESS))
    radii = losses.elastic_radii(method.radii, method.elasticity, 0.8)
    told = losses.discrimination(method.discriminator(z), method.discriminator(Z_OLD))
    weight = (4 - 2 + 1) / 4  # epoch 2 of 4
    assert found == pytest.approx(
        {
            "ce": losses.cross_entropy(method.classifier(z), BATCH.labels).item(),
            "limit": 3 * losses.elastic_limit(z, BATCH.labels, method.centres, radii).item(),
            "adversary": 0.5 * weight * told.item(),
        }
    )


@pytest.mark.parametrize("fraction", [0.0, 0.25])
def test_advbct_turns_the_gradient_of_features_and_not_of_the_adversary(fraction, z):
    method = AdvBCT()
    taken_through(method, FIRST, SECOND)
    method.eval()
    progress = Progress(torch.tensor(fraction), torch.tensor(0.0), 4)
    adversary = list(method.discriminator.parameters())
    term = method.loss(z, BATCH, z_old=Z_OLD, progress=progress)["adversary"]
    turned, *trained = torch.autograd.grad(term, [z, *adversary])
    plain = 5 / 4 * losses.discrimination(method.discriminator(z), method.discriminator(Z_OLD))
    straight, *expected = torch.autograd.grad(plain, [z, *adversary])
    torch.testing.assert_close(turned, -losses.reversal_coefficient(torch.tensor(fraction)) * straight)
    torch.testing.assert_close(trained, expected)


def test_advbct_makes_adversary_and_elasticity_anew():
    method = AdvBCT(hidden=7)
    taken_through(method, FIRST, SECOND)
    first, elastic = method.discriminator, method.elasticity
    assert elastic.shape == (4,)
    assert elastic.abs().max() <= 1
    method.finish(SECOND, FakeSurvey(SECOND))
    method.begin(THIRD, DIM)
    assert not torch.equal(method.discriminator[0].weight, first[0].weight)
    assert method.discriminator[0].weight.shape == (7, DIM)
    assert method.elasticity.shape == method.radii.shape == (6,)
    assert not torch.equal(method.elasticity[:4], elastic)


def test_advbct_keeps_centres_and_radii_of_all_classes():
    method = AdvBCT()
    for task in (FIRST, SECOND):
        (survey,) = taken_through(method, task)
        method.finish(task, survey)
        centres = losses.class_means(survey.z, survey.labels, task.num_seen)
        assert torch.equal(method.centres, centres)
        assert torch.equal(method.radii, losses.largest_radii(survey.z, survey.labels, centres))


def test_advbct_limit_trains_the_elasticity(z):
    method = AdvBCT(tau=0.1)
    taken_through(method, FIRST, SECOND)
    method.radii.fill_(0.2)
    method.loss(z, BATCH, z_old=Z_OLD, progress=PROGRESS)["limit"].backward()
    assert method.elasticity.grad.norm() > 0

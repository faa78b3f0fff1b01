"""CVS and FAN: each term, what is kept between tasks, and the phase on features."""

import pytest
import torch
from test_methods_losses import FIRST, SECOND
from test_methods_others import BATCH, DIM, PROGRESS, THIRD, Z_OLD, taken_through, values

from holdfast.train import losses
from holdfast.train.methods import CVS, FAN


@pytest.fixture
def z():
    return torch.randn(12, DIM, requires_grad=True)


def test_cvs_terms(z):
    method = CVS(scale=8.0, coherence=7.0, centre=3.0, margin=0.4)
    taken_through(method, FIRST, SECOND)
    found = values(method.loss(z, BATCH, z_old=Z_OLD, progress=PROGRESS))
    logits = losses.cosine_logits(z, method.classifier.weight, scale=8.0)
    assert found == pytest.approx(
        {
            "ce": losses.cross_entropy(logits, BATCH.labels).item(),
            "triplet": 7 * losses.neighbour_triplet(z, Z_OLD, BATCH.labels, margin=0.4).item(),
            "centre": 3 * losses.centre_pull(z, BATCH.labels, method.centres).item(),
        }
    )


def test_cvs_centres_are_where_classes_were_when_learned():
    method = CVS()
    surveys = taken_through(method, FIRST, SECOND, THIRD)
    expected = [losses.class_means(s.z, s.labels, s.task.num_seen)[-s.task.num_new :] for s in surveys[:2]]
    assert torch.equal(method.centres, torch.cat(expected))
    before = method.centres.clone()
    method.finish(THIRD, surveys[2])
    assert method.centres.shape == (8, DIM)
    assert torch.equal(method.centres[:6], before)


def test_fan_terms(z):
    method = FAN(temperature=3.0, logits_weight=7.0, features_weight=5.0)
    taken_through(method, FIRST, SECOND)
    found = values(method.loss(z, BATCH, z_old=Z_OLD, progress=PROGRESS))
    logits = method.classifier(z)
    softened = losses.softened_distillation(logits[:, :4], Z_OLD @ method.old_rows.T, temperature=3.0)
    assert found == pytest.approx(
        {
            "ce": losses.cross_entropy(logits, BATCH.labels).item(),
            "logits": 7 * softened.item(),
            "features": 5 * losses.feature_distillation(z, Z_OLD).item(),
        }
    )


def test_fan_old_rows_are_a_frozen_copy():
    method = FAN()
    taken_through(method, FIRST)
    learned = method.classifier.weight.detach().clone()
    taken_through(method, SECOND)
    with torch.no_grad():
        method.classifier.weight.add_(1)
    assert torch.equal(method.old_rows, learned)
    assert "old_rows" not in dict(method.named_parameters())


def test_fan_has_no_map_at_the_first_task_and_a_new_one_at_each_later():
    method = FAN(widening=2)
    taken_through(method, FIRST)
    assert method.feature_phase() is None
    assert method.space_map() is None
    taken_through(method, SECOND)
    second = method.space_map()
    assert second.enter.weight.shape == (2 * DIM, DIM)
    taken_through(method, THIRD)
    assert method.space_map() is not second


def test_fan_phase_trains_the_map_and_nothing_else(z):
    method = FAN(alpha=9.0, widening=2, map_epochs=3, map_batch_size=5, map_lr=0.01)
    taken_through(method, FIRST, SECOND)
    phase = method.feature_phase()
    assert (phase.epochs, phase.batch_size, phase.lr) == (3, 5, 0.01)
    assert {id(p) for p in phase.parameters} == {id(p) for p in method.adapter.parameters()}
    terms = phase.loss(Z_OLD, z, BATCH.labels)
    mapped = method.adapter(Z_OLD)
    assert values(terms) == pytest.approx(
        {
            "map": 9 * losses.feature_distillation(mapped, z).item(),
            "map_ce": losses.cross_entropy(method.classifier(mapped), BATCH.labels).item(),
        }
    )
    sum(terms.values()).backward()
    assert z.grad is None
    assert method.classifier.weight.grad is None
    assert all(parameter.grad.norm() > 0 for parameter in phase.parameters)

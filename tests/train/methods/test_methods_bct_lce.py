"""BCT and LCE: each term, and what is kept between tasks."""

import pytest
import torch
from test_methods_losses import FIRST, SECOND
from test_methods_others import BATCH, DIM, PROGRESS, THIRD, taken_through, values

from holdfast.train import losses
from holdfast.train.geometry import unit
from holdfast.train.methods import BCT, LCE


@pytest.fixture
def z():
    return torch.randn(12, DIM, requires_grad=True)


def test_bct_terms(z):
    method = BCT(weight=3.0)
    taken_through(method, FIRST, SECOND)
    terms = method.loss(z, BATCH, progress=PROGRESS)
    expected = 3 * losses.old_class_cross_entropy(z @ method.old_rows.T, BATCH.labels)
    assert terms["old"].item() == pytest.approx(expected.item())
    assert terms["ce"].item() == pytest.approx(losses.cross_entropy(method.classifier(z), BATCH.labels).item())


def test_bct_old_rows_are_a_frozen_copy(z):
    method = BCT()
    taken_through(method, FIRST)
    with torch.no_grad():
        method.classifier.weight.add_(1)
    learned = method.classifier.weight.detach().clone()
    taken_through(method, SECOND)
    assert torch.equal(method.old_rows, learned)
    optimizer = torch.optim.SGD(method.parameters(), lr=0.5)
    sum(method.loss(z, BATCH, progress=PROGRESS).values()).backward()
    optimizer.step()
    assert torch.equal(method.old_rows, learned)
    assert not torch.equal(method.classifier.weight[:4], learned)
    assert [name for name, _ in method.named_parameters()] == ["classifier.weight"]


def test_bct_synthesises_rows_of_new_classes_only(z):
    method = BCT(synthesise=True)
    taken_through(method, FIRST)
    assert method.old_rows.shape == (0, 0)
    learned = method.classifier.weight.detach().clone()
    (survey,) = taken_through(method, SECOND)
    assert method.old_rows.shape == (6, DIM)
    assert torch.equal(method.old_rows[:4], learned)
    means = losses.class_means(survey.z_old, survey.labels, 6)[4:]
    torch.testing.assert_close(unit(method.old_rows[4:]), unit(means))
    torch.testing.assert_close(method.old_rows[4:].norm(dim=1), learned.norm(dim=1).mean().expand(2))
    method.loss(z, BATCH, progress=PROGRESS)["old"].backward()
    assert (z.grad.norm(dim=1) > 0).all()  # now images of new classes count too
    method.begin(THIRD, DIM)
    assert torch.equal(method.old_rows, method.classifier.weight[:6])


def test_lce_terms(z):
    method = LCE(scale=8.0, margin=0.1, align=7.0, bound=3.0)
    taken_through(method, FIRST, SECOND)
    found = values(method.loss(z, BATCH, progress=PROGRESS))
    rows, labels = method.classifier.weight, BATCH.labels
    logits = losses.margin_cosine_logits(z, rows, labels, scale=8.0, margin=0.1)
    assert found == pytest.approx(
        {
            "ce": losses.cross_entropy(logits, labels).item(),
            "align": 7 * losses.align_rows(rows[:4], method.centres).item(),
            "bound": 3 * losses.boundary_hinge(z, labels, method.centres, method.bounds).item(),
        }
    )


def test_lce_aligns_old_rows_only(z):
    method = LCE()
    taken_through(method, FIRST, SECOND)
    method.loss(z, BATCH, progress=PROGRESS)["align"].backward()
    assert method.classifier.weight.grad[:4].norm() > 0
    assert method.classifier.weight.grad[4:].norm() == 0


def test_lce_measures_all_classes_after_each_task():
    method = LCE()
    for task in (FIRST, SECOND):
        (survey,) = taken_through(method, task)
        method.finish(task, survey)
        expected = unit(losses.class_means(survey.z, survey.labels, task.num_seen))
        assert torch.equal(method.centres, expected)
        assert torch.equal(method.bounds, losses.least_cosines(survey.z, survey.labels, expected))
        assert len(method.bounds) == task.num_seen

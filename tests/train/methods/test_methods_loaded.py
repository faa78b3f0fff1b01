"""What each method does when it is held to a model that was brought in: at the first task and at a replacement."""

import pytest
import torch
from test_methods_losses import Toy
from test_methods_others import BATCH, DIM, PROGRESS, THIRD, Z_OLD, FakeSurvey

from holdfast.train import losses
from holdfast.train.geometry import unit
from holdfast.train.methods import (
    BCT,
    CVS,
    ER,
    FAN,
    LCE,
    METHODS,
    AdvBCT,
    CosineHOC,
    Distillation,
    SimplexFD,
    SimplexHOC,
    SimplexHOCViews,
)

FIRST, SECOND = Toy(1, 4, 4, loaded=True), Toy(2, 2, 6)
REPLACED = Toy(2, 2, 6, loaded=True)


def through(method, *tasks, buffer=True, dim=DIM):
    """Begin, prepare and finish each task but the last, which is only begun and prepared; the last survey."""
    for task in tasks:
        survey = FakeSurvey(task)
        if not buffer:
            keep = survey.labels >= task.num_seen - task.num_new
            survey.labels, survey.z, survey.z_old = survey.labels[keep], survey.z[keep], survey.z_old[keep]
        method.begin(task, dim)
        method.prepare(task, survey)
        if task is not tasks[-1]:
            method.finish(task, survey)
    return survey


def terms(method, batch=BATCH, z_old=Z_OLD):
    found = method.loss(torch.randn(12, DIM, requires_grad=True), batch, z_old=z_old, progress=PROGRESS)
    assert all(bool(term.isfinite()) for term in found.values())
    torch.stack(list(found.values())).sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in method.parameters())
    return set(found)


def made(build):
    return build(slots=DIM + 1) if build in (SimplexFD, SimplexHOC, SimplexHOCViews) else build()


@pytest.mark.parametrize(
    ("build", "first", "replaced", "rehearsal_free"),
    [
        (ER, {"ce"}, {"ce"}, {"ce"}),
        (BCT, {"ce"}, {"ce", "old"}, {"ce"}),
        (LCE, {"ce"}, {"ce", "align", "bound"}, {"ce"}),
        (AdvBCT, {"ce", "adversary"}, {"ce", "limit", "adversary"}, {"ce", "adversary"}),
        (CVS, {"ce", "triplet"}, {"ce", "triplet", "centre"}, {"ce", "triplet"}),
        (FAN, {"ce", "features"}, {"ce", "features", "logits"}, {"ce", "features"}),
        (Distillation, {"ce", "features"}, {"ce", "features", "logits"}, {"ce", "features"}),
        (SimplexHOC, {"ce", "nce"}, {"ce", "nce"}, {"ce", "nce"}),
        (SimplexHOCViews, {"ce", "nce"}, {"ce", "nce"}, {"ce", "nce"}),
        (CosineHOC, {"ce", "nce"}, {"ce", "nce"}, {"ce", "nce"}),
    ],
)
def test_terms(build, first, replaced, rehearsal_free):
    """At the first task nothing is known of older classes; without a buffer nothing is at a replacement either."""
    four = BATCH._replace(labels=BATCH.labels % 4)
    method = made(build)
    through(method, FIRST)
    assert terms(method, four) == first
    method = made(build)
    through(method, FIRST, REPLACED)
    assert terms(method) == replaced
    method = made(build)
    through(method, FIRST, REPLACED, buffer=False)
    assert terms(method) == rehearsal_free


@pytest.mark.parametrize("build", [ER, BCT, LCE, AdvBCT, CVS, FAN, Distillation, CosineHOC])
def test_classifier_rows_are_drawn_anew(build):
    method = build()
    through(method, FIRST)
    before = method.classifier.weight.detach().clone()
    method.begin(SECOND, DIM)
    assert torch.equal(method.classifier.weight[:4], before)
    method.begin(REPLACED, DIM + 2)  # another architecture
    assert method.classifier.weight.shape == (6, DIM + 2)
    method.begin(REPLACED, DIM)
    assert not torch.isclose(method.classifier.weight[:4], before).any()


@pytest.mark.parametrize("build", [BCT, LCE, AdvBCT, CVS, FAN, Distillation])
def test_what_is_kept_is_the_loaded_models_view_of_the_buffer(build):
    method = build()
    survey = through(method, FIRST, REPLACED)
    old = survey.labels < 4
    means = losses.class_means(survey.z_old[old], survey.labels[old], 4)
    if build is LCE:
        assert torch.equal(method.centres, unit(means))
        assert torch.equal(method.bounds, losses.least_cosines(survey.z_old[old], survey.labels[old], unit(means)))
    elif build in (CVS, AdvBCT):
        assert torch.equal(method.centres, means)
    else:
        torch.testing.assert_close(unit(method.old_rows), unit(means))
        length = method.classifier.weight.norm(dim=1).mean()
        torch.testing.assert_close(method.old_rows.norm(dim=1), length.expand(4))
    if build is AdvBCT:
        assert method.radii.shape == (4,)


def test_fan_has_a_map_only_from_the_model_before():
    method = FAN()
    for task, there in ((FIRST, False), (SECOND, True), (Toy(3, 2, 8, loaded=True), False)):
        through(method, task)
        assert (method.space_map() is not None) == there
        assert (method.feature_phase() is not None) == there


def test_fan_across_a_deployed_replacement_learns_a_map():
    class Deployed(Toy):
        reference = "previous"

    method = FAN()
    through(method, FIRST, Deployed(2, 2, 6, loaded=True))
    assert method.space_map() is not None
    assert method.old_rows.shape == (4, DIM)


def test_cvs_goes_on_from_the_loaded_models_centres():
    method = CVS()
    survey = through(method, FIRST, REPLACED)
    kept = method.centres.clone()
    method.finish(REPLACED, survey)
    assert method.centres.shape == (6, DIM)
    assert torch.equal(method.centres[:4], kept)
    through(method, THIRD)
    assert torch.equal(method.centres[:4], kept)


def test_fd_without_replayed_images_is_classification():
    method = SimplexFD(slots=DIM + 1)
    through(method, FIRST)
    assert terms(method, BATCH._replace(labels=BATCH.labels % 4, replayed=0), z_old=None) == {"ce"}


def test_every_method_is_tested_here():
    tested = {BCT, CVS, ER, FAN, LCE, AdvBCT, CosineHOC, Distillation, SimplexFD, SimplexHOC, SimplexHOCViews}
    assert set(METHODS.values()) == tested

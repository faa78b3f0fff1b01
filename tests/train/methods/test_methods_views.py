"""Our own method's terms, the rule for lambda, and the view contrast that ER and CVS can be given."""

import pytest
import torch
from test_methods_losses import FIRST, PROGRESS, SECOND, Toy, batch_of

from holdfast.core.errors import HoldfastError
from holdfast.train.experiments.load import read_recipe
from holdfast.train.geometry import DSimplex, unit
from holdfast.train.losses import (
    anchor_contrast,
    anchor_distillation,
    earliest_anchors,
    feature_distillation,
    hoc_terms,
    info_nce,
    known_anchors,
    simplex_cross_entropy,
    squared_distillation,
)
from holdfast.train.methods import CVS, ER, METHODS, SimplexFD, SimplexHOC, SimplexHOCViews
from papers.stationary.recipe_files import read_study_recipe

BATCH = batch_of(8, 6, 4)


@pytest.fixture
def features():
    """z, z_view and z_old of eight images; z_kept of the four replayed under two models, the first knew two of them."""
    torch.manual_seed(0)
    z, z_view, z_old = torch.randn(3, 8, 9)
    z_kept = unit(torch.randn(4, 2, 9))
    z_kept[2:, 0] = 0
    return z.requires_grad_(), z_view.requires_grad_(), z_old, z_kept


def values(terms):
    return {name: term.item() for name, term in terms.items()}


def test_first_task(features):
    z, z_view, _, _ = features
    method = SimplexHOCViews(slots=10, first_view=0.3, rho=7.0)
    method.begin(FIRST, 9)
    assert method.reads_view
    batch = batch_of(8, 4, 0)
    terms = method.loss(z, batch, z_view=z_view, progress=PROGRESS)
    contrast = info_nce(z, z_view, batch.labels, rho=7.0)
    expected = {"ce": 0.7 * simplex_cross_entropy(z, batch.labels, DSimplex(10)), "view": 0.3 * contrast}
    assert values(terms) == pytest.approx(values(expected))
    terms["view"].backward()
    assert z_view.grad.norm() > 0


def test_first_task_from_a_loaded_model(features):
    """The loaded model is the old one, so the loss is that of later tasks, with the rule's lambda for a share of 1."""
    z, z_view, z_old, _ = features
    method = SimplexHOCViews(slots=10, first_view=0.3, view_weight=0.7, rho=7.0)
    method.begin(Toy(1, 4, 4, loaded=True), 9)
    batch = batch_of(8, 4, 0)
    terms = method.loss(z, batch, z_old=z_old, z_view=z_view, progress=PROGRESS)
    expected = hoc_terms(z, z_old, batch.labels, DSimplex(10), lambda_=0.5, rho=7.0)
    expected |= {"view": 0.7 * info_nce(z, z_view, batch.labels, rho=7.0)}
    assert values(terms) == pytest.approx(values(expected))


def test_fixed_length_and_distilled_features(features):
    """CE reads features of one length in every task; the old model's features are distilled over all images."""
    z, z_view, z_old, _ = features
    method = SimplexHOCViews(slots=10, lambda_=0.4, first_view=0.3, view_weight=0.0, length=16, features_weight=2.0)
    method.begin(FIRST, 9)
    batch = batch_of(8, 4, 0)
    first = method.loss(z, batch, z_view=z_view, progress=PROGRESS)
    assert first["ce"].item() == pytest.approx(
        0.7 * simplex_cross_entropy(z, batch.labels, DSimplex(10), length=16).item()
    )
    assert set(first) == {"ce", "view"}
    method.begin(SECOND, 9)
    terms = method.loss(z, BATCH, z_old=z_old, progress=PROGRESS)
    expected = hoc_terms(z, z_old, BATCH.labels, DSimplex(10), lambda_=0.4, length=16)
    expected |= {"features": 2 * feature_distillation(z, z_old)}
    assert values(terms) == pytest.approx(values(expected))


@pytest.mark.parametrize(("first", "later"), [(0.0, 0.5), (0.5, 0.0)])
def test_a_view_is_read_where_the_loss_has_a_weight_for_it(first, later):
    method = SimplexHOCViews(slots=10, first_view=first, view_weight=later)
    for task, weight in ((FIRST, first), (SECOND, later), (Toy(1, 4, 4, loaded=True), later)):
        method.begin(task, 9)
        assert method.reads_view == (weight > 0)


@pytest.mark.parametrize("form", ["cosine", "nce"])
@pytest.mark.parametrize("which", ["all", "learned"])
def test_later_tasks(features, which, form):
    z, z_view, z_old, z_kept = features
    method = SimplexHOCViews(
        slots=10, lambda_=0.4, view_weight=0.7, anchor_weight=2.0, anchors=which, anchor_form=form, negatives="masked"
    )
    method.begin(SECOND, 9)
    terms = method.loss(z, BATCH, z_old=z_old, z_view=z_view, z_kept=z_kept, progress=PROGRESS)
    counts = known_anchors(z_kept) if which == "all" else earliest_anchors(z_kept)
    assert int(counts.sum()) == (6 if which == "all" else 4)
    anchor = (
        anchor_distillation(z, z_kept, counts)
        if form == "cosine"
        else anchor_contrast(z, z_kept, counts, BATCH.labels, rho=5.0)
    )
    expected = {
        **hoc_terms(z, z_old, BATCH.labels, DSimplex(10), lambda_=0.4, rho=5.0, negatives="masked"),
        "view": 0.7 * info_nce(z, z_view, BATCH.labels, rho=5.0, negatives="masked"),
        "anchor": 2.0 * anchor,
    }
    assert list(terms) == ["ce", "nce", "view", "anchor"]
    assert values(terms) == pytest.approx(values(expected))
    sum(terms.values()).backward()
    assert z.grad.isfinite().all()


def test_nobody_pays_for_a_term_without_weight(features):
    z, z_view, z_old, z_kept = features
    method = SimplexHOCViews(slots=10, lambda_=0.3, first_view=0.5, view_weight=0.0, anchor_weight=0.0)
    assert not method.reads_kept
    method.begin(FIRST, 9)
    assert method.reads_view
    method.begin(SECOND, 9)
    assert not method.reads_view
    plain = SimplexHOC(slots=10, lambda_=0.3)
    plain.begin(SECOND, 9)
    expected = plain.loss(z, BATCH, z_old=z_old, progress=PROGRESS)
    found = method.loss(z, BATCH, z_old=z_old, z_view=z_view, z_kept=z_kept, progress=PROGRESS)
    assert values(found) == values(expected)
    only_later = SimplexHOCViews(slots=10, first_view=0.0)
    only_later.begin(FIRST, 9)
    assert not only_later.reads_view
    only_later.begin(SECOND, 9)
    assert only_later.reads_view


def mean_lambda(tasks, **options):
    """Over the tasks after the first, for 10 classes of 100 first: what the card's table says."""
    new, found = 90 // (tasks - 1), []
    for i in range(1, tasks):
        method = SimplexHOCViews(slots=100, **options)
        method.begin(Toy(i + 1, new, 10 + new * i), 99)
        found.append(method.lambda_)
    return sum(found) / len(found)


def test_the_rule_for_lambda():
    fitted = {"lambda_scale": 0.68, "lambda_power": 0.7}
    assert [round(mean_lambda(tasks, **fitted), 3) for tasks in (2, 7, 16, 31)] == [0.632, 0.284, 0.164, 0.104]
    square_root = {"lambda_scale": 0.6, "lambda_power": 0.5}
    assert [round(mean_lambda(tasks, **square_root), 3) for tasks in (2, 7, 16, 31)] == [0.569, 0.318, 0.213, 0.154]
    assert mean_lambda(7, lambda_=0.25) == pytest.approx(0.25)
    assert mean_lambda(2, lambda_scale=3.0) == 1.0


@pytest.mark.parametrize("build", [ER, CVS])
def test_the_view_contrast_for_others(build):
    z, z_view = torch.randn(2, 8, 5)
    batch = batch_of(8, 4, 0)
    plain, method = build(), build(view_weight=0.6, rho=3.0)
    assert (plain.reads_view, method.reads_view) == (False, True)
    for one in (plain, method):
        torch.manual_seed(0)
        one.begin(FIRST, 5)
    z_view.requires_grad_()
    terms = method.loss(z, batch, z_view=z_view, progress=PROGRESS)
    assert list(plain.loss(z, batch, z_view=z_view, progress=PROGRESS)) == ["ce"]
    assert list(terms) == ["ce", "view"]
    assert terms["view"].item() == pytest.approx(0.6 * info_nce(z, z_view, batch.labels, rho=3.0).item())
    terms["view"].backward()
    assert z_view.grad.norm() > 0


@pytest.mark.parametrize("on", ["replayed", "all"])
@pytest.mark.parametrize(("distance", "term"), [("cosine", feature_distillation), ("squared", squared_distillation)])
def test_fd_switches(on, distance, term):
    method = SimplexFD(slots=10, on=on, distance=distance, base=3.0)
    assert method.old_features == on
    assert SimplexFD.old_features == "replayed"
    method.begin(SECOND, 9)
    rows = 4 if on == "replayed" else 8
    z, z_old = torch.randn(8, 9), torch.randn(rows, 9)
    found = method.loss(z, BATCH, z_old=z_old, progress=PROGRESS)["fd"]
    assert found.item() == pytest.approx(3 * 0.5**0.5 * term(z[:rows], z_old).item())


@pytest.mark.parametrize(
    ("build", "options", "reason"),
    [
        (SimplexHOCViews, {"lambda_": 1.5}, r"lambda must be in \[0, 1\], got 1.5"),
        (SimplexHOCViews, {"first_view": -0.1}, r"first_view must be in \[0, 1\]"),
        (SimplexHOCViews, {"anchor_weight": -1.0}, "anchor_weight must be at least 0"),
        (SimplexHOCViews, {"lambda_power": -1.0}, "lambda_power must be at least 0"),
        (SimplexHOCViews, {"rho": 0.0}, "rho must be above 0"),
        (SimplexHOCViews, {"anchors": "some"}, "anchors must be one of all, learned, got 'some'"),
        (SimplexHOCViews, {"anchor_form": "some"}, "anchor_form must be one of cosine, nce"),
        (SimplexFD, {"on": "new"}, "on must be one of replayed, all, got 'new'"),
        (SimplexFD, {"distance": "far"}, "distance must be one of cosine, squared"),
    ],
)
def test_refused(build, options, reason):
    with pytest.raises(HoldfastError, match=reason):
        build(slots=10, **options)


@pytest.mark.parametrize("given", [{"length": 0.0}, {"features_weight": -1.0}, {"rho": 0.0}])
def test_weights_and_lengths_out_of_range(given):
    with pytest.raises(HoldfastError, match=next(iter(given))):
        SimplexHOCViews(slots=10, **given)


def test_where_the_tries_began_is_the_best_fit_of_the_pilot():
    """Least squares in the logarithm over a grid of powers; the scale follows in closed form."""
    wanted = torch.tensor([0.57, 0.35, 0.15, 0.10]).log()

    def fit(power):
        means = torch.tensor([mean_lambda(t, lambda_scale=0.1, lambda_power=power) for t in (2, 7, 16, 31)]) / 0.1
        offset = (wanted - means.log()).mean()
        return float((means.log() + offset - wanted).square().sum()), float(offset.exp())

    powers = [0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9, 1.0]
    best = min(powers, key=lambda power: fit(power)[0])
    recipe = read_recipe("cifar100-10/simplex_hoc_views")["method"]
    assert (best, round(fit(best)[1], 2)) == (recipe["lambda_power"], recipe["lambda_scale"])


def test_the_default_is_what_the_validation_set_chose():
    chosen = read_study_recipe("cifar100-10/tuned/simplex_hoc_views")["method"]
    method = SimplexHOCViews(slots=100)
    assert (method.lambda_scale, method.lambda_power) == (chosen["lambda_scale"], chosen["lambda_power"])


@pytest.mark.parametrize("name", ["simplex_hoc", "simplex_hoc_views", "cosine_hoc"])
def test_unknown_negatives_are_refused_before_training(name):
    slots = {"slots": 10} if name.startswith("simplex") else {}
    with pytest.raises(HoldfastError, match="negatives must be one of authors, paper, masked, got 'some'"):
        METHODS[name](**slots, negatives="some")


@pytest.mark.parametrize("build", [ER, CVS])
def test_a_negative_view_weight_is_refused(build):
    with pytest.raises(HoldfastError, match="view_weight must be at least 0"):
        build(view_weight=-0.5)

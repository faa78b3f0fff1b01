"""Which terms FAN, BCT, LCE, AdvBCT and CVS have, and a survey of random features to take them through tasks."""

from dataclasses import dataclass

import pytest
import torch
from test_methods_losses import FIRST, SECOND, Toy, batch_of

from holdfast.core.errors import HoldfastError
from holdfast.train import losses
from holdfast.train.geometry import cosine_matrix, unit
from holdfast.train.methods import BCT, CVS, FAN, LCE, METHODS, AdvBCT, Distillation, Progress, SimplexFD, SimplexHOC

DIM = 5
THIRD = Toy(3, 2, 8)
PROGRESS = Progress(torch.tensor(0.25), torch.tensor(2.0), 4)


@dataclass
class FakeSurvey:
    """Random features of four images of each class, drawn once."""

    task: Toy
    has_old: bool = True

    def __post_init__(self):
        self.labels = torch.arange(4 * self.task.num_seen) % self.task.num_seen
        self.z, self.z_old = torch.randn(2, len(self.labels), DIM)

    def new(self):
        return self.z, self.labels

    def old(self):
        return (self.z_old, self.labels) if self.has_old else None


def taken_through(method, *tasks):
    """Begin, prepare and finish each task; the last one is only begun and prepared. Returns the surveys."""
    surveys = [FakeSurvey(task, has_old=task.number > 1) for task in tasks]
    for task, survey in zip(tasks, surveys):
        method.begin(task, DIM)
        method.prepare(task, survey)
        if task is not tasks[-1]:
            method.finish(task, survey)
    return surveys


@pytest.fixture
def z():
    return torch.randn(12, DIM, requires_grad=True)


Z_OLD = torch.linspace(-1, 1, 12 * DIM).sin().reshape(12, DIM)
BATCH = batch_of(12, 6, 6)


def values(terms):
    return {name: term.item() for name, term in terms.items()}


@pytest.mark.parametrize("build", [FAN, BCT, LCE, AdvBCT, CVS])
def test_the_first_task_is_classification_alone(build, z):
    method = build()
    taken_through(method, FIRST)
    terms = method.loss(z, batch_of(12, 4, 0), progress=PROGRESS)
    assert list(terms) == ["ce"]
    cosine = {"LCE": 16.0, "CVS": 20.0}.get(build.__name__)
    rows = method.classifier.weight
    logits = z @ rows.T if cosine is None else losses.cosine_logits(z, rows, scale=cosine)
    assert terms["ce"].item() == pytest.approx(losses.cross_entropy(logits, batch_of(12, 4, 0).labels).item())


@pytest.mark.parametrize(
    ("build", "without", "with_old"),
    [
        (FAN, ["ce"], ["ce", "logits", "features"]),
        (BCT, ["ce", "old"], ["ce", "old"]),
        (LCE, ["ce", "align", "bound"], ["ce", "align", "bound"]),
        (AdvBCT, ["ce"], ["ce", "limit", "adversary"]),
        (CVS, ["ce"], ["ce", "triplet", "centre"]),
    ],
)
def test_terms_of_the_second_task(build, without, with_old, z):
    method = build()
    taken_through(method, FIRST, SECOND)
    assert list(method.loss(z, BATCH, progress=PROGRESS)) == without
    terms = method.loss(z, BATCH, z_old=Z_OLD, progress=PROGRESS)
    assert list(terms) == with_old
    sum(terms.values()).backward()
    assert z.grad.isfinite().all()
    assert method.classifier.weight.shape == (6, DIM)
    assert method.classifier.weight.grad.norm() > 0


def test_reconstructions_say_what_is_inferred():
    assert {name for name, build in METHODS.items() if build.reconstruction} == {"fan", "bct", "lce", "advbct", "cvs"}


def test_distillation_is_fans_training_of_the_network_without_its_map():
    torch.manual_seed(0)
    z, z_old = torch.randn(2, 6, DIM)
    found = []
    for method in (FAN(features_weight=5.0), Distillation(features_weight=5.0)):
        torch.manual_seed(1)
        taken_through(method, FIRST, SECOND)
        found.append(method.loss(z, batch_of(6, 6, 3), z_old=z_old, progress=PROGRESS))
    assert {name: float(value) for name, value in found[0].items()} == pytest.approx(
        {name: float(value) for name, value in found[1].items()}
    )
    assert set(found[1]) == {"ce", "logits", "features"}
    assert Distillation().space_map() is None


def test_distillation_with_a_cosine_softmax():
    """Both distributions are over scale x cosine, and the rows of new classes begin at their means."""
    method = Distillation(softmax="cosine", scale=8.0, logits_weight=2.0, features_weight=3.0)
    first, second = taken_through(method, FIRST, SECOND)
    rows, old_rows = method.classifier.weight.detach(), method.old_rows
    torch.testing.assert_close(old_rows, unit(losses.class_means(first.z, first.labels, 4)))
    torch.testing.assert_close(rows[:4], old_rows)
    torch.testing.assert_close(rows[4:], unit(losses.class_means(second.z, second.labels, 6))[4:])
    z = torch.randn(12, DIM)
    terms = method.loss(z, BATCH, z_old=Z_OLD, progress=PROGRESS)
    logits = 8.0 * cosine_matrix(z, rows)
    torch.testing.assert_close(terms["ce"], losses.cross_entropy(logits, BATCH.labels))
    soft, target = (torch.softmax(one / 2.0, dim=1) for one in (logits[:, :4], 8.0 * cosine_matrix(Z_OLD, old_rows)))
    torch.testing.assert_close(terms["logits"], -2.0 * (target * soft.log()).sum(1).mean())
    torch.testing.assert_close(terms["features"], 3.0 * (1 - (unit(z) * unit(Z_OLD)).sum(1)).mean())
    for wrong in ({"softmax": "arc"}, {"scale": 0.0}):
        with pytest.raises(HoldfastError, match=next(iter(wrong))):
            Distillation(**wrong)


def test_lce_with_a_linear_softmax_uses_inner_products():
    method = LCE(softmax="linear")
    method.begin(FIRST, DIM)
    z = 3 * torch.randn(6, DIM)
    batch = batch_of(6, 4, 0)
    found = method.loss(z, batch, progress=PROGRESS)["ce"]
    torch.testing.assert_close(found, losses.cross_entropy(z @ method.classifier.weight.T, batch.labels))
    with pytest.raises(HoldfastError, match="softmax must be one of cosine, linear, got 'arc'"):
        LCE(softmax="arc")


@pytest.mark.parametrize(("make", "name"), [(SimplexHOC, "first_length"), (SimplexFD, "length")])
def test_a_fixed_length_makes_cross_entropy_of_the_first_model_ignore_lengths(make, name):
    z = torch.randn(4, 7)
    method, plain = make(slots=8, **{name: 20.0}), make(slots=8)
    for one in (method, plain):
        one.begin(FIRST, 7)

    def value(one, features):
        return one.loss(features, batch_of(4, 4, 0), progress=PROGRESS)["ce"]

    torch.testing.assert_close(value(method, z), value(method, 0.01 * z))
    torch.testing.assert_close(value(method, z), value(plain, 20 * torch.nn.functional.normalize(z)))
    with pytest.raises(HoldfastError, match=f"{name} must be above 0, got -1"):
        make(slots=8, **{name: -1.0})


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("fan", "map_batch_size", 0), ("fan", "temperature", 0.0), ("fan", "alpha", -1.0), ("fan", "map_epochs", 0),
        ("distillation", "temperature", 0.0), ("distillation", "logits_weight", -1.0), ("bct", "weight", -1.0),
        ("lce", "align", -5.0), ("lce", "scale", 0.0), ("advbct", "hidden", 0), ("advbct", "limit", -1.0),
        ("cvs", "scale", -3.0), ("cvs", "margin", -0.1), ("er", "rho", 0.0), ("cosine_hoc", "contrast", float("nan")),
    ],
)  # fmt: skip
def test_impossible_numbers_are_refused_by_name(name, option, value):
    with pytest.raises(HoldfastError, match=f"^{option} must be (above|at least) 0, got"):
        METHODS[name](**{option: value})

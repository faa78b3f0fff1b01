"""Which terms FAN, BCT, LCE, AdvBCT and CVS have, and a survey of random features to take them through tasks."""

from dataclasses import dataclass

import pytest
import torch
from test_methods_losses import FIRST, SECOND, Toy, batch_of

from holdfast import losses
from holdfast.methods import BCT, CVS, FAN, LCE, METHODS, AdvBCT, Progress

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

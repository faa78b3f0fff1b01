"""Each method's loss on random matrices: no network, no data."""

from dataclasses import dataclass

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.geometry import DSimplex
from holdfast.train.losses import cross_entropy, feature_distillation, hoc_terms, simplex_cross_entropy
from holdfast.train.methods import ER, METHODS, Batch, Method, Progress, SimplexFD, SimplexHOC, SimplexHOCViews


@dataclass
class Toy:
    """A task of ``num_new`` classes after ``num_seen - num_new`` others."""

    number: int
    num_new: int
    num_seen: int
    from_the_right: int | None = None
    loaded: bool = False

    @property
    def start(self):
        return "loaded" if self.loaded else "previous" if self.number > 1 else "scratch"

    @property
    def reference(self):
        return "loaded" if self.loaded else "previous" if self.number > 1 else "none"

    @property
    def slots(self):
        last = self.from_the_right
        return [i if last is None else last - i for i in range(self.num_seen)]


PROGRESS = Progress(torch.tensor(0.0), torch.tensor(0.0), 1)
FIRST, SECOND = Toy(1, 4, 4), Toy(2, 2, 6)


def batch_of(size: int, classes: int, replayed: int) -> Batch:
    return Batch(torch.arange(size) % classes, replayed)


def test_er_is_cross_entropy_over_the_classes_seen():
    method = ER()
    method.begin(FIRST, 5)
    z, batch = torch.randn(8, 5), batch_of(8, 4, 0)
    terms = method.loss(z, batch, progress=PROGRESS)
    assert list(terms) == ["ce"]
    assert torch.equal(terms["ce"], cross_entropy(z @ method.classifier.weight.T, batch.labels))


def test_er_keeps_old_rows_and_grows_by_the_new_classes():
    method = ER()
    method.begin(FIRST, 5)
    before = method.classifier.weight.detach().clone()
    method.begin(SECOND, 5)
    assert method.classifier.weight.shape == (6, 5)
    assert torch.equal(method.classifier.weight[:4], before)
    assert method.classifier.weight[4:].abs().max() <= 5**-0.5
    assert method.classifier.weight.requires_grad


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (FIRST, 0.0),
        (SECOND, 5 * (2 / 4) ** 0.5),
        (Toy(2, 90, 100), 15.0),
        (Toy(2, 0, 4), 5 * (1 / 4) ** 0.5),  # images of known classes only count as one new class
        (Toy(1, 4, 4, loaded=True), 5 * 4**0.5),  # a model without classes as one old class
    ],
)
def test_fd_weight_is_base_times_root_of_new_over_old(task, expected):
    method = SimplexFD(slots=100, base=5.0)
    method.begin(task, 99)
    assert method.weight == pytest.approx(expected)


def test_views_train_cross_entropy_without_new_classes():
    method = SimplexHOCViews(slots=10)
    method.begin(Toy(2, 0, 6), 9)
    without = method.lambda_
    method.begin(Toy(2, 1, 6), 9)
    assert without == method.lambda_ > 0


def test_fd_distils_the_replayed_half_only():
    method = SimplexFD(slots=10)
    method.begin(SECOND, 9)
    z, z_old, batch = torch.randn(8, 9), torch.randn(4, 9), batch_of(8, 6, 4)
    terms = method.loss(z, batch, z_old=z_old, progress=PROGRESS)
    assert terms["fd"].item() == pytest.approx((method.weight * feature_distillation(z[:4], z_old)).item())
    assert terms["ce"].item() == pytest.approx(simplex_cross_entropy(z, batch.labels, DSimplex(10)).item())
    z[4:] = 0
    assert method.loss(z, batch, z_old=z_old, progress=PROGRESS)["fd"].item() == pytest.approx(terms["fd"].item())


def test_hoc_without_an_old_model_is_cross_entropy_of_weight_one():
    method = SimplexHOC(slots=10, lambda_=0.1)
    method.begin(FIRST, 9)
    z, batch = torch.randn(8, 9), batch_of(8, 4, 0)
    terms = method.loss(z, batch, progress=PROGRESS)
    assert list(terms) == ["ce"]
    assert torch.equal(terms["ce"], simplex_cross_entropy(z, batch.labels, DSimplex(10)))


@pytest.mark.parametrize("negatives", ["authors", "paper", "masked"])
def test_hoc_with_an_old_model_is_equation_two(negatives):
    method = SimplexHOC(slots=10, lambda_=0.3, rho=7.0, negatives=negatives, scale="frobenius")
    method.begin(SECOND, 9)
    z, z_old, batch = torch.randn(8, 9), torch.randn(8, 9), batch_of(8, 6, 4)
    terms = method.loss(z, batch, z_old=z_old, progress=PROGRESS)
    simplex = DSimplex(10, scale="frobenius")
    expected = hoc_terms(z, z_old, batch.labels, simplex, lambda_=0.3, rho=7.0, negatives=negatives)
    assert {name: t.item() for name, t in terms.items()} == {name: t.item() for name, t in expected.items()}


def test_hoc_whose_cross_entropy_sees_one_length():
    method = SimplexHOC(slots=10, length=25.0)
    z, z_old, batch = torch.randn(8, 9), torch.randn(8, 9), batch_of(8, 6, 4)
    method.begin(SECOND, 9)
    long, short = (method.loss(z * by, batch, z_old=z_old, progress=PROGRESS)["ce"].item() for by in (10.0, 0.1))
    assert long == pytest.approx(short, rel=1e-5)
    method.begin(FIRST, 9)  # as ever
    first = method.loss(z, batch_of(8, 4, 0), progress=PROGRESS)["ce"]
    assert torch.equal(first, simplex_cross_entropy(z, batch_of(8, 4, 0).labels, DSimplex(10)))
    with pytest.raises(HoldfastError, match="length must be above 0, got 0"):
        SimplexHOC(slots=10, length=0.0)


def test_labels_become_the_slots_of_their_classes():
    """Fine-tuning takes slots from the right: class 0 owns the last vertex."""
    method = SimplexHOC(slots=10)
    method.begin(Toy(1, 4, 4, from_the_right=9), 9)
    z, batch = torch.randn(8, 9), batch_of(8, 4, 0)
    expected = simplex_cross_entropy(z, 9 - batch.labels, DSimplex(10))
    assert torch.equal(method.loss(z, batch, progress=PROGRESS)["ce"], expected)


def test_simplex_methods_train_no_classifier():
    for build in (SimplexFD, SimplexHOC):
        method = build(slots=10)
        method.begin(FIRST, 9)
        assert list(method.parameters()) == []
        assert method.feature_dim(64) == 9


def test_lambda_outside_its_range_is_refused():
    with pytest.raises(HoldfastError, match=r"\[0, 1\]"):
        SimplexHOC(slots=10, lambda_=1.5)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_final_and_declares_what_it_reads(name):
    build = METHODS[name]
    assert issubclass(build, Method)
    assert getattr(build, "__final__", False)
    assert build.__bases__ == (Method,)
    assert build.old_features in ("none", "replayed", "all")

"""Fit the three ways to adopt stored vectors, and measure each on classes that it was not fitted to.

The projection maps stored vectors into a simplex. The class means serve as prototypes in the vectors' own space. The
map leads a new model's features into that space. Maps and projections have no bias: they map a vector and its unit
vector to the same direction, so they can be appended to the new model's own projection and served as one model.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.evaluation import feature_set
from holdfast.evaluation.estimates import Estimate, Resampling, gain_estimate, score_estimate, units
from holdfast.evaluation.query_outcomes import ClassGroundTruth, QueryOutcomes, run_queries
from holdfast.evaluation.scores import parse_score
from holdfast.evaluation.verdict import verdict
from holdfast.geometry import DSimplex, nearest, unit
from holdfast.lifecycle.adoption_result import MAP, MEANS, PROJECTION, Later, Way
from holdfast.lifecycle.stored_vectors import ClassSplit
from holdfast.losses import class_means, cosine_logits, cross_entropy, hoc_terms, info_nce, simplex_cross_entropy

PULLS = (float("inf"), 10.0, 1.0, 0.1)
"""Weights that pull the projection to an isometry, strongest first; infinity gives the isometry itself."""
STEPS = 300
BATCH = 512
_RATE = 0.01
_FIRST_SCALE = 10.0  # with scale 1, unit vectors and unit vertices give logits of at most 1: too small to learn from

LAMBDAS = (0.1, 0.5, 0.9)
"""Weights of the cross-entropy in the HOC loss that are tried for the heads."""
_TOP1 = parse_score("top1")

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Ridge strengths that are tried, relative to the mean eigenvalue of X^T X."""
SCALE, RHO = 16.0, 5.0


@dataclass(frozen=True)
class Trial:
    """The data of an adoption and how it is measured.

    old: stored unit vectors, N x D.
    new: a new model's unit vectors of the same items, N x D', or None.
    labels: N.
    slots: the vertex of each vector's class in ``simplex``, N.
    split: rows to fit with, to choose settings by, and held out.
    confidence, resamples, min_gain: of the verdicts.
    seed: of fits and resamples.
    steps: Adam steps of each fit without a closed form.
    """

    old: Tensor
    new: Tensor | None
    labels: np.ndarray
    slots: Tensor
    simplex: DSimplex
    split: ClassSplit
    confidence: float
    resamples: int
    min_gain: float
    seed: int
    steps: int = STEPS

    def outcomes(self, queries: Tensor, gallery: Tensor) -> QueryOutcomes:
        """Held-out queries on the held-out part of the gallery; both arguments are N x d, of all items."""
        part = self.split
        truth = ClassGroundTruth(self.labels[part.queries], self.labels[part.gallery])
        stored = feature_set("stored", gallery[torch.from_numpy(part.gallery)].numpy())
        vectors = unit(queries[torch.from_numpy(part.queries)])
        return run_queries(stored, truth, [vectors], _TOP1, protocol="instance").outcomes[0]

    def resampling(self) -> Resampling:
        """Whole classes are resampled: the result is about other classes, not about other images of these."""
        return Resampling(self.confidence, self.resamples, self.seed, self.labels[self.split.queries])

    def score(self, outcomes: QueryOutcomes) -> Estimate:
        return score_estimate(outcomes, _TOP1, None, self.resampling())

    def gain(self, before: QueryOutcomes, after: QueryOutcomes) -> Estimate:
        return gain_estimate(before, after, _TOP1, (None, None), self.resampling())

    def chosen_by(self, queries: Tensor, gallery: Tensor) -> float:
        """Top-1 on the classes that settings are chosen by; arguments as for ``outcomes``."""
        part = self.split
        query_rows, gallery_rows = (torch.from_numpy(rows) for rows in (part.choose_queries, part.choose_gallery))
        found = nearest(unit(queries[query_rows]), unit(gallery[gallery_rows])).indices[:, 0].numpy()
        return float((self.labels[part.choose_gallery][found] == self.labels[part.choose_queries]).mean())

    @property
    def fit(self) -> Tensor:
        return torch.from_numpy(self.split.fit)

    def later(self, before: QueryOutcomes, queries: Tensor, gallery: Tensor, untouched: Tensor | None = None) -> Later:
        """A new model's queries against the old ones. untouched: its queries for a search without the projection."""
        after = self.outcomes(queries, gallery)
        gain = self.gain(before, after)
        decision, reason = verdict(gain, self.min_gain, units(self.resampling(), before), "classes of queries")
        as_is = None if untouched is None else self.gain(before, self.outcomes(untouched, self.old))
        return Later(self.score(after), gain, decision, reason, as_is)


def try_ways(trial: Trial) -> Iterator[Way]:
    """Each way in turn, fitted and measured; the map only with a new model's features."""
    as_stored = trial.outcomes(trial.old, trial.old)
    yield _projection(trial, as_stored)
    yield _means(trial, as_stored)
    if trial.new is not None:
        yield _map(trial, as_stored, trial.new)


def fitted_projection(trial: Trial, pull: float, rows: Tensor | slice) -> Tensor:
    """The projection fitted to these rows of the store."""
    old, slots = trial.old[rows], trial.slots[rows]
    return fit_projection(old, slots, trial.simplex, pull=pull, seed=trial.seed, steps=trial.steps)


def best_pull(trial: Trial) -> tuple[float, Tensor]:
    """The pull with the best projection on the classes for choosing, the strongest if equal, and the projection."""
    tried = [(pull, fitted_projection(trial, pull, trial.fit)) for pull in PULLS]
    return max(tried, key=lambda one: trial.chosen_by(trial.old @ one[1].T, trial.old @ one[1].T))


def _projection(trial: Trial, as_stored: QueryOutcomes) -> Way:
    pull, matrix = best_pull(trial)
    projected = unit(trial.old @ matrix.T)
    after = trial.outcomes(projected, projected)
    settings: dict[str, object] = {"pull": pull, "slots": trial.simplex.num_classes}
    later = None
    if trial.new is not None:
        fit, new = trial.fit, trial.new
        fitted = (new[fit], projected[fit], trial.slots[fit], trial.simplex)
        heads = {
            lambda_: simplex_head(*fitted, lambda_=lambda_, seed=trial.seed, steps=trial.steps) for lambda_ in LAMBDAS
        }
        lambda_ = max(heads, key=lambda one: trial.chosen_by(new @ heads[one].T, projected))
        settings["lambda"] = lambda_
        z = unit(new @ heads[lambda_].T)
        later = trial.later(as_stored, z, projected, z @ matrix)
    return Way(PROJECTION, settings, trial.score(after), trial.gain(as_stored, after), later)


def _means(trial: Trial, as_stored: QueryOutcomes) -> Way:
    if trial.new is None:
        return Way(MEANS, {})
    fit, new = trial.fit, trial.new
    labels = torch.from_numpy(trial.labels)
    heads = {
        lambda_: means_head(new[fit], trial.old[fit], labels[fit], lambda_=lambda_, seed=trial.seed, steps=trial.steps)
        for lambda_ in LAMBDAS
    }
    lambda_ = max(heads, key=lambda one: trial.chosen_by(new @ heads[one].T, trial.old))
    return Way(MEANS, {"lambda": lambda_}, later=trial.later(as_stored, new @ heads[lambda_].T, trial.old))


def best_map(trial: Trial, new: Tensor) -> tuple[dict[str, object], Tensor]:
    """The best of Procrustes and ridge maps on the classes for choosing: its settings and the map (D x D')."""
    fit = trial.fit
    maps: list[tuple[dict[str, object], Tensor]] = [
        ({"map": "procrustes"}, procrustes_map(new[fit], trial.old[fit])),
        *(({"map": "ridge", "ridge": ridge}, ridge_map(new[fit], trial.old[fit], ridge)) for ridge in RIDGES),
    ]
    return max(maps, key=lambda one: trial.chosen_by(new @ one[1].T, trial.old))


def _map(trial: Trial, as_stored: QueryOutcomes, new: Tensor) -> Way:
    settings, matrix = best_map(trial, new)
    return Way(MAP, settings, later=trial.later(as_stored, new @ matrix.T, trial.old))


def aligned_isometry(vectors: Tensor, slots: Tensor, simplex: DSimplex) -> Tensor:
    """The (K-1) x D matrix with orthonormal columns that brings class means nearest to their vertices (Procrustes).

    vectors: N x D unit.
    slots: the vertex of each, N.

    If K - 1 >= D it keeps every cosine between stored vectors. If K - 1 < D its rows are orthonormal, and the
    vectors lose D - (K - 1) dimensions.
    """
    classes, codes = slots.unique(return_inverse=True)
    means = class_means(vectors, codes, len(classes)).double()
    u, _, vh = torch.linalg.svd(_free_directions(simplex.prototypes(classes).double().T @ means), full_matrices=False)
    return (u @ vh).float()


def _free_directions(cross: Tensor) -> Tensor:
    """``cross`` plus tiny fixed noise: with fewer classes than dimensions it makes the SVD well defined."""
    noise = torch.randn(cross.shape, generator=torch.Generator().manual_seed(0), dtype=cross.dtype)
    return cross + 1e-6 * cross.abs().mean() * noise


def fit_projection(
    vectors: Tensor, slots: Tensor, simplex: DSimplex, *, pull: float, seed: int, steps: int = STEPS
) -> Tensor:
    """P, (K-1) x D: simplex cross-entropy of s A h over the stored vectors h, with A pulled to the isometry A_0.

    Minimises CE(s A h) + pull x |A - A_0|^2 / min(D, K-1) over A and the scale s by Adam; gives A, because only
    directions are compared. An infinite pull gives A_0 without any training.
    """
    start = aligned_isometry(vectors, slots, simplex)
    if pull == float("inf"):
        return start
    matrix = nn.Parameter(start.clone())
    log_scale = nn.Parameter(torch.tensor(_FIRST_SCALE).log())

    def loss(rows: Tensor) -> Tensor:
        held = (matrix - start).square().sum() / min(start.shape)
        return simplex_cross_entropy(log_scale.exp() * vectors[rows] @ matrix.T, slots[rows], simplex) + pull * held

    minimise([matrix, log_scale], loss, len(vectors), seed=seed, steps=steps)
    return matrix.detach()


def minimise(
    parameters: Sequence[nn.Parameter], loss: Callable[[Tensor], Tensor], count: int, *, seed: int, steps: int = STEPS
) -> None:
    """Minimise ``loss`` by Adam over random batches of ``count`` rows, with a cosine schedule; fixed by ``seed``."""
    draw = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(parameters, lr=_RATE)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        rows = torch.randint(count, (min(count, BATCH),), generator=draw)
        optimizer.zero_grad(set_to_none=True)
        loss(rows).backward()
        optimizer.step()
        falling.step()


def ridge_map(new: Tensor, old: Tensor, strength: float) -> Tensor:
    """D x D' with least |new M^T - old|^2 + r |M|^2, r = strength x trace(new^T new) / D'; in double inside."""
    x, y = new.double(), old.double()
    gram = x.T @ x
    penalty = strength * gram.diagonal().mean() * torch.eye(len(gram), dtype=x.dtype)
    return torch.linalg.solve(gram + penalty, x.T @ y).T.float()


def procrustes_map(new: Tensor, old: Tensor) -> Tensor:
    """D x D' with orthonormal rows or columns, whichever are fewer, that maps ``new`` nearest to ``old``."""
    u, _, vh = torch.linalg.svd(old.double().T @ new.double(), full_matrices=False)
    return (u @ vh).float()


def simplex_head(
    new: Tensor, old: Tensor, slots: Tensor, simplex: DSimplex, *, lambda_: float, seed: int, steps: int = STEPS
) -> Tensor:
    """(K-1) x D': a linear layer on new features, trained by HOC (Eq. 2) on the simplex; starts from the ridge map."""
    weight = nn.Parameter(ridge_map(new, old, 1e-2))

    def loss(rows: Tensor) -> Tensor:
        z = _scaled(new[rows] @ weight.T)
        terms = hoc_terms(z, old[rows], slots[rows], simplex, lambda_=lambda_, rho=RHO)
        return terms["ce"] + terms["nce"]

    minimise([weight], loss, len(new), seed=seed, steps=steps)
    return weight.detach()


def means_head(new: Tensor, old: Tensor, labels: Tensor, *, lambda_: float, seed: int, steps: int = STEPS) -> Tensor:
    """D x D': a linear layer on new features, trained by ``means_hoc``'s loss in the old space, from the ridge map."""
    _, codes = labels.unique(return_inverse=True)
    prototypes = unit(class_means(old, codes, int(codes.max()) + 1))
    weight = nn.Parameter(ridge_map(new, old, 1e-2))

    def loss(rows: Tensor) -> Tensor:
        z = new[rows] @ weight.T
        ce = cross_entropy(cosine_logits(z, prototypes, scale=SCALE), codes[rows])
        return lambda_ * ce + (1 - lambda_) * info_nce(z, old[rows], codes[rows], rho=RHO)

    minimise([weight], loss, len(new), seed=seed, steps=steps)
    return weight.detach()


def _scaled(z: Tensor) -> Tensor:
    """Unit rows times ``SCALE``: simplex cross-entropy depends on lengths, which a linear layer learns slowly."""
    return SCALE * unit(z)

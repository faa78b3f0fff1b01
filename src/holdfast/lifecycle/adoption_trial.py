"""Fit the ways to adopt stored vectors, and measure each on queries that it was not fitted to.

The projection maps stored vectors into a simplex. The class means serve as prototypes in the vectors' own space. A
bridge carries a new model's queries into that space. Projections have no bias: they map a vector and its unit vector to
the same direction.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.bridges import Bridge
from holdfast.bridges.choice import FEWEST_PAIRS
from holdfast.bridges.maps import ridge_weights
from holdfast.evaluation import feature_set
from holdfast.evaluation.estimates import Estimate, Resampling, gain_estimate, score_estimate, units
from holdfast.evaluation.query_outcomes import ClassGroundTruth, QueryOutcomes, run_queries
from holdfast.evaluation.scores import parse_score
from holdfast.evaluation.verdict import verdict
from holdfast.geometry import DSimplex, nearest, unit
from holdfast.lifecycle.adoption_result import BRIDGE, MEANS, PROJECTION, Later, Question
from holdfast.lifecycle.stored_vectors import Split
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

START_RIDGE = 1e-2
"""Strength of the ridge regression that heads start from."""
SCALE, RHO = 16.0, 5.0


@dataclass(frozen=True)
class Trial:
    """The data of an adoption and how one question about it is measured.

    old: stored unit vectors, N x D.
    new: a new model's unit vectors of the same items, N x D', or None.
    labels: N.
    slots: the vertex of each vector's class in ``simplex``, N.
    split: rows to fit with, to choose settings by, and to measure on.
    by_class: resample whole classes: the result is then about other classes, not about other items of these.
    confidence, resamples, min_gain: of the verdicts.
    seed: of fits and resamples.
    steps: Adam steps of each fit without a closed form.
    bridge_pairs: pairs that a bridge is fitted on, at most.
    """

    old: Tensor
    new: Tensor | None
    labels: np.ndarray
    slots: Tensor
    simplex: DSimplex
    split: Split
    by_class: bool
    confidence: float
    resamples: int
    min_gain: float
    seed: int
    steps: int = STEPS
    bridge_pairs: int = 2000

    def outcomes(self, queries: Tensor, gallery: Tensor) -> QueryOutcomes:
        """The split's queries on its gallery; both arguments are N x d, of all items."""
        part = self.split
        truth = ClassGroundTruth(self.labels[part.queries], self.labels[part.gallery])
        stored = feature_set("stored", gallery[torch.from_numpy(part.gallery)].numpy())
        vectors = unit(queries[torch.from_numpy(part.queries)])
        return run_queries(stored, truth, [vectors], _TOP1, protocol="instance").outcomes[0]

    def resampling(self) -> Resampling:
        clusters = self.labels[self.split.queries] if self.by_class else None
        return Resampling(self.confidence, self.resamples, self.seed, clusters)

    def score(self, outcomes: QueryOutcomes) -> Estimate:
        return score_estimate(outcomes, _TOP1, None, self.resampling())

    def gain(self, before: QueryOutcomes, after: QueryOutcomes) -> Estimate:
        return gain_estimate(before, after, _TOP1, (None, None), self.resampling())

    def chosen_by(self, queries: Tensor, gallery: Tensor) -> float:
        """Top-1 on the rows that settings are chosen by, 0 without any; arguments as for ``outcomes``."""
        part = self.split
        if len(part.choose_queries) == 0:
            return 0.0
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
        what = "classes of queries" if self.by_class else "queries"
        decision, reason = verdict(gain, self.min_gain, units(self.resampling(), before), what)
        as_is = None if untouched is None else self.gain(before, self.outcomes(untouched, self.old))
        return Later(self.score(after), gain, decision, reason, as_is)

    def question(self) -> Question:
        """How many queries there are, and what they score without any way."""
        rows = self.split.queries
        alone = None if self.new is None else self.score(self.outcomes(self.new, self.new))
        as_stored = self.score(self.outcomes(self.old, self.old))
        return Question(len(rows), len(np.unique(self.labels[rows])), as_stored, alone)


@dataclass(frozen=True)
class Measured:
    """One way, fitted and measured for one question; fields as in ``Way``."""

    name: str
    settings: dict[str, object]
    stored: Estimate | None = None
    stored_gain: Estimate | None = None
    later: Later | None = None


def try_ways(trial: Trial, *, bridge_only: bool = False) -> Iterator[Measured]:
    """Each way in turn, fitted and measured; the bridge only with a new model's vectors."""
    as_stored = trial.outcomes(trial.old, trial.old)
    if not bridge_only:
        yield _projection(trial, as_stored)
        yield _means(trial, as_stored)
    if trial.new is not None:
        yield _bridge(trial, as_stored, trial.new)


def fitted_projection(trial: Trial, pull: float, rows: Tensor) -> Tensor:
    """The projection fitted to these rows of the store."""
    old, slots = trial.old[rows], trial.slots[rows]
    return fit_projection(old, slots, trial.simplex, pull=pull, seed=trial.seed, steps=trial.steps)


def best_pull(trial: Trial) -> tuple[float, Tensor]:
    """The pull with the best projection on the rows for choosing, the strongest if equal, and the projection."""
    tried = [(pull, fitted_projection(trial, pull, trial.fit)) for pull in PULLS]
    return max(tried, key=lambda one: trial.chosen_by(trial.old @ one[1].T, trial.old @ one[1].T))


def _projection(trial: Trial, as_stored: QueryOutcomes) -> Measured:
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
    return Measured(PROJECTION, settings, trial.score(after), trial.gain(as_stored, after), later)


def _means(trial: Trial, as_stored: QueryOutcomes) -> Measured:
    if trial.new is None:
        return Measured(MEANS, {})
    fit, new = trial.fit, trial.new
    labels = torch.from_numpy(trial.labels)
    heads = {
        lambda_: means_head(new[fit], trial.old[fit], labels[fit], lambda_=lambda_, seed=trial.seed, steps=trial.steps)
        for lambda_ in LAMBDAS
    }
    lambda_ = max(heads, key=lambda one: trial.chosen_by(new @ heads[one].T, trial.old))
    return Measured(MEANS, {"lambda": lambda_}, later=trial.later(as_stored, new @ heads[lambda_].T, trial.old))


def _bridge(trial: Trial, as_stored: QueryOutcomes, new: Tensor) -> Measured:
    rows = trial.split.pairs
    if len(rows) < FEWEST_PAIRS:
        return Measured(BRIDGE, {})
    items = None if trial.by_class else len(trial.split.gallery)
    bridge = fit_bridge(
        new[rows], trial.old[rows], trial.labels[rows], items=items, most=trial.bridge_pairs, seed=trial.seed
    )
    later = trial.later(as_stored, bridge(new), trial.old)
    return Measured(BRIDGE, {"kind": bridge.kind, **bridge.options}, later=later)


def fit_bridge(
    new: Tensor, old: Tensor, labels: np.ndarray | None, *, items: int | None, most: int, seed: int
) -> Bridge:
    """A bridge from the new vectors to the stored ones, fitted and chosen on at most ``most`` pairs, at random.

    items: number of items in the gallery that is searched; None if none of the pairs is in it.
    """
    taken = np.sort(np.random.default_rng(seed).permutation(len(new))[:most])
    rows, known = torch.from_numpy(taken), None if labels is None else labels[taken]
    return Bridge.fit(new[rows], old[rows], labels=known, items=items, seed=seed)


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


def ridge_map(new: Tensor, old: Tensor) -> Tensor:
    """D x D', ridge regression from new to old vectors, without bias: the start of a head."""
    return ridge_weights(new.double(), old.double(), START_RIDGE).T.float()


def simplex_head(
    new: Tensor, old: Tensor, slots: Tensor, simplex: DSimplex, *, lambda_: float, seed: int, steps: int = STEPS
) -> Tensor:
    """(K-1) x D': a linear layer on new features, trained by HOC (Eq. 2) on the simplex; starts from the ridge map."""
    weight = nn.Parameter(ridge_map(new, old))

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
    weight = nn.Parameter(ridge_map(new, old))

    def loss(rows: Tensor) -> Tensor:
        z = new[rows] @ weight.T
        ce = cross_entropy(cosine_logits(z, prototypes, scale=SCALE), codes[rows])
        return lambda_ * ce + (1 - lambda_) * info_nce(z, old[rows], codes[rows], rho=RHO)

    minimise([weight], loss, len(new), seed=seed, steps=steps)
    return weight.detach()


def _scaled(z: Tensor) -> Tensor:
    """Unit rows times ``SCALE``: simplex cross-entropy depends on lengths, which a linear layer learns slowly."""
    return SCALE * unit(z)

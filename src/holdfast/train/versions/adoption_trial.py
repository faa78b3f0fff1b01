"""Fit the ways to adopt stored vectors, and measure each on queries that it was not fitted to.

The projection maps stored vectors into a simplex. The class means serve as prototypes in the vectors' own space. A
bridge carries a new model's queries into that space. Projections have no bias: they map a vector and its unit vector to
the same direction.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.bridges import Bridge
from holdfast.bridges.choice import FEWEST_PAIRS
from holdfast.bridges.maps import ridge_weights
from holdfast.checks.estimates import Estimate, Resampling, gain_estimate, mean_estimate
from holdfast.checks.query_outcomes import QueryOutcomes
from holdfast.checks.verdict import VERDICTS, better_answer
from holdfast.train.geometry import DSimplex, unit
from holdfast.train.losses import class_means, cosine_logits, cross_entropy, hoc_terms, info_nce, simplex_cross_entropy
from holdfast.train.versions.adoption_result import BRIDGE, MEANS, PROJECTION, Later, Question
from holdfast.train.versions.stored_vectors import Split
from holdfast.vectors import nearest
from holdfast.vectors.search import Progress

PULLS = (float("inf"), 10.0, 1.0, 0.1)
"""Weights that pull the projection to an isometry, strongest first; infinity gives the isometry itself."""
STEPS = 300
BATCH = 512
_RATE = 0.01
_FIRST_SCALE = 10.0  # with scale 1, unit vectors and unit vertices give logits of at most 1: too small to learn from

LAMBDAS = (0.1, 0.5, 0.9)
"""Weights of the cross-entropy in the HOC loss that are tried for the heads."""
_QUERIES_AT_ONCE = 1024

START_RIDGE = 1e-2
"""Strength of the ridge regression that heads start from."""
SCALE, RHO = 16.0, 5.0


@dataclass(frozen=True)
class Descent:
    """How a fit without a closed form is computed.

    seed: of the batches.
    steps: of Adam.
    on_step: called with the steps done and all steps, every ten steps.
    """

    seed: int
    steps: int = STEPS
    on_step: Callable[[int, int], None] = lambda done, total: None

    def minimise(self, parameters: Sequence[nn.Parameter], loss: Callable[[Tensor], Tensor], count: int) -> None:
        """Minimise ``loss`` by Adam over random batches of ``count`` rows, with a cosine schedule."""
        draw = torch.Generator().manual_seed(self.seed)
        optimizer = torch.optim.Adam(parameters, lr=_RATE)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        for step in range(self.steps):
            rows = torch.randint(count, (min(count, BATCH),), generator=draw)
            optimizer.zero_grad(set_to_none=True)
            loss(rows).backward()
            optimizer.step()
            falling.step()
            if step % 10 == 9:
                self.on_step(step + 1, self.steps)


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
    progress: called with what is being done, the amount done and the total.
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
    progress: Progress = lambda stage, done, total: None

    def outcomes(self, queries: Tensor, gallery: Tensor, what: str) -> QueryOutcomes:
        """The split's queries on its gallery; both are N x d, of all items. what: the search, for progress."""
        part = self.split
        right = self._first_hits_right(queries, gallery, (part.queries, part.gallery), what)
        hits = np.zeros((len(right), 0), np.int64)
        return QueryOutcomes(hits, right[:, None], right.astype(np.float64), np.zeros(0))

    @cached_property
    def as_stored(self) -> QueryOutcomes:
        """The old model's queries on the stored vectors."""
        return self.outcomes(self.old, self.old, "searching the stored vectors")

    def _first_hits_right(
        self, queries: Tensor, gallery: Tensor, rows: tuple[np.ndarray, np.ndarray], what: str
    ) -> np.ndarray:
        """Whether the first hit of each query has its class. rows: of the queries and of the gallery."""
        query_rows, gallery_rows = rows
        searched = unit(gallery[torch.from_numpy(gallery_rows)])
        right = np.zeros(len(query_rows), dtype=bool)
        for start in range(0, len(query_rows), _QUERIES_AT_ONCE):
            asked = query_rows[start : start + _QUERIES_AT_ONCE]
            found = nearest(unit(queries[torch.from_numpy(asked)]), searched).indices[:, 0]
            right[start : start + len(asked)] = self.labels[gallery_rows[found]] == self.labels[asked]
            self.progress(what, start + len(asked), len(query_rows))
        return right

    def descent(self, what: str) -> Descent:
        """How fits without a closed form are computed. what: the fit, for progress."""
        return Descent(self.seed, self.steps, lambda done, total: self.progress(what, done, total))

    def resampling(self) -> Resampling:
        clusters = self.labels[self.split.queries] if self.by_class else None
        return Resampling(self.confidence, self.resamples, self.seed, clusters)

    def score(self, outcomes: QueryOutcomes) -> Estimate:
        return mean_estimate(outcomes.values, self.resampling())

    def gain(self, before: QueryOutcomes, after: QueryOutcomes) -> Estimate:
        return gain_estimate(before.values, after.values, self.resampling())

    def chosen_by(self, queries: Tensor, gallery: Tensor) -> float:
        """Top-1 on the rows that settings are chosen by, 0 without any; both arguments are N x d, of all items."""
        rows = (self.split.choose_queries, self.split.choose_gallery)
        right = self._first_hits_right(queries, gallery, rows, "comparing settings")
        return float(right.mean()) if len(right) else 0.0

    @property
    def fit(self) -> Tensor:
        return torch.from_numpy(self.split.fit)

    def later(self, queries: Tensor, gallery: Tensor, what: str, untouched: Tensor | None = None) -> Later:
        """A new model's queries against the old ones. untouched: its queries for a search without the projection."""
        before, after = self.as_stored, self.outcomes(queries, gallery, what)
        gain = self.gain(before, after)
        how = self.resampling()
        answer = better_answer(gain, how.units(before.values), how.drawn)
        as_is = None if untouched is None else self.gain(before, self.outcomes(untouched, self.old, what))
        return Later(self.score(after), gain, VERDICTS[answer.answer], answer.reason, as_is)

    def question(self) -> Question:
        """How many queries there are, and what they score without any way."""
        rows = self.split.queries
        classes = len(np.unique(self.labels[rows]))
        alone = None
        if self.new is not None:
            alone = self.score(self.outcomes(self.new, self.new, "searching the new model's vectors"))
        return Question(len(rows), classes, self.score(self.as_stored), alone, self.split.held_out)


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
    if not bridge_only:
        yield _projection(trial)
        yield _means(trial)
    if trial.new is not None:
        yield _bridge(trial, trial.new)


def best_pull(trial: Trial) -> tuple[float, Tensor]:
    """The pull with the best projection on the rows for choosing, the strongest if equal, and the projection."""
    old, slots = trial.old[trial.fit], trial.slots[trial.fit]
    start = aligned_isometry(old, slots, trial.simplex)

    def fitted(number: int) -> Tensor:
        descent = trial.descent(f"fitting projection {number + 1} of {len(PULLS)}")
        return fit_projection(old, slots, trial.simplex, start, pull=PULLS[number], descent=descent)

    tried = []
    for pull, matrix in zip(PULLS, _each_on_one_thread(fitted, len(PULLS)), strict=True):
        projected = trial.old @ matrix.T
        tried.append((trial.chosen_by(projected, projected), pull, matrix))
    _, pull, matrix = max(tried, key=lambda one: one[0])
    return pull, matrix


def _each_on_one_thread(fit: Callable[[int], Tensor], count: int) -> list[Tensor]:
    """``fit`` of 0 to count - 1, as many at once as torch has threads, each on one of them.

    Their steps are short: several threads in one step would mostly wait for each other. A fit gives the same numbers
    whatever the number of threads.
    """
    threads = torch.get_num_threads()
    torch.optim.Adam([nn.Parameter(torch.zeros(1))])  # the first one imports modules, which two threads must not do
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(min(threads, count), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(fit, range(count)))
    finally:
        torch.set_num_threads(threads)


def _projection(trial: Trial) -> Measured:
    pull, matrix = best_pull(trial)
    projected = unit(trial.old @ matrix.T)
    settings: dict[str, object] = {"pull": pull, "slots": trial.simplex.num_classes}
    later = None
    if trial.new is not None:
        old = projected[trial.fit]

        def head(start: Tensor, lambda_: float, descent: Descent) -> Tensor:
            assert trial.new is not None
            slots = trial.slots[trial.fit]
            return simplex_head(
                start, trial.new[trial.fit], old, slots, trial.simplex, lambda_=lambda_, descent=descent
            )

        settings["lambda"], weight = _best_head(trial, trial.new, projected, head)
        z = unit(trial.new @ weight.T)
        later = trial.later(z, projected, "searching the projected vectors", z @ matrix)
    if not trial.by_class:  # the projection's own gain is reported for other classes only
        return Measured(PROJECTION, settings, later=later)
    after = trial.outcomes(projected, projected, "searching the projected vectors")
    return Measured(PROJECTION, settings, trial.score(after), trial.gain(trial.as_stored, after), later)


def _means(trial: Trial) -> Measured:
    if trial.new is None:
        return Measured(MEANS, {})
    labels = torch.from_numpy(trial.labels)[trial.fit]

    def head(start: Tensor, lambda_: float, descent: Descent) -> Tensor:
        assert trial.new is not None
        return means_head(start, trial.new[trial.fit], trial.old[trial.fit], labels, lambda_=lambda_, descent=descent)

    lambda_, weight = _best_head(trial, trial.new, trial.old, head)
    later = trial.later(trial.new @ weight.T, trial.old, "searching the stored vectors")
    return Measured(MEANS, {"lambda": lambda_}, later=later)


def _best_head(
    trial: Trial, new: Tensor, gallery: Tensor, fit: Callable[[Tensor, float, Descent], Tensor]
) -> tuple[float, Tensor]:
    """The weight of the cross-entropy with the best head on the rows for choosing, and the head.

    fit: makes a head from its start, the weight and how it is fitted.
    """
    start = ridge_map(new[trial.fit], gallery[trial.fit])

    def fitted(number: int) -> Tensor:
        return fit(start, LAMBDAS[number], trial.descent(f"fitting head {number + 1} of {len(LAMBDAS)}"))

    tried = []
    for lambda_, weight in zip(LAMBDAS, _each_on_one_thread(fitted, len(LAMBDAS)), strict=True):
        tried.append((trial.chosen_by(new @ weight.T, gallery), lambda_, weight))
    _, lambda_, weight = max(tried, key=lambda one: one[0])
    return lambda_, weight


def _bridge(trial: Trial, new: Tensor) -> Measured:
    rows = trial.split.pairs
    if len(rows) < FEWEST_PAIRS:
        return Measured(BRIDGE, {})
    trial.progress("fitting the bridge", 0, 1)
    items = None if trial.by_class else len(trial.split.gallery)
    bridge = fit_bridge(
        new[rows], trial.old[rows], trial.labels[rows], items=items, most=trial.bridge_pairs, seed=trial.seed
    )
    later = trial.later(torch.from_numpy(bridge(new)), trial.old, "searching with bridged queries")
    return Measured(BRIDGE, {"kind": bridge.kind, **bridge.options}, later=later)


def fit_bridge(
    new: Tensor, old: Tensor, labels: np.ndarray | None, *, items: int | None, most: int, seed: int
) -> Bridge:
    """A bridge from the new vectors to the stored ones, fitted and chosen on at most ``most`` pairs, at random.

    items: number of items in the gallery that is searched; None if none of the pairs is in it.
    """
    taken = np.sort(np.random.default_rng(seed).permutation(len(new))[:most])
    rows, known = torch.from_numpy(taken), None if labels is None else labels[taken]
    return Bridge.fit(new=new[rows], old=old[rows], labels=known, items=items, seed=seed)


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
    vectors: Tensor, slots: Tensor, simplex: DSimplex, start: Tensor, *, pull: float, descent: Descent
) -> Tensor:
    """P, (K-1) x D: simplex cross-entropy of s A h over the stored vectors h, with A pulled to the isometry A_0.

    start: A_0, from ``aligned_isometry``.

    Minimises CE(s A h) + pull x |A - A_0|^2 / min(D, K-1) over A and the scale s by Adam; gives A, because only
    directions are compared. An infinite pull gives A_0 without any training.
    """
    if pull == float("inf"):
        return start
    matrix = nn.Parameter(start.clone())
    log_scale = nn.Parameter(torch.tensor(_FIRST_SCALE).log())

    def loss(rows: Tensor) -> Tensor:
        held = (matrix - start).square().sum() / min(start.shape)
        return simplex_cross_entropy(log_scale.exp() * vectors[rows] @ matrix.T, slots[rows], simplex) + pull * held

    descent.minimise([matrix, log_scale], loss, len(vectors))
    return matrix.detach()


def ridge_map(new: Tensor, old: Tensor) -> Tensor:
    """D x D', ridge regression from new to old vectors, without bias: the start of a head."""
    return torch.from_numpy(ridge_weights(new.double().numpy(), old.double().numpy(), START_RIDGE).T)


def simplex_head(
    start: Tensor,
    new: Tensor,
    old: Tensor,
    slots: Tensor,
    simplex: DSimplex,
    *,
    lambda_: float,
    descent: Descent,
) -> Tensor:
    """(K-1) x D': a linear layer on new features, trained by HOC (Eq. 2) on the simplex, from ``ridge_map``."""
    weight = nn.Parameter(start.clone())

    def loss(rows: Tensor) -> Tensor:
        z = _scaled(new[rows] @ weight.T)
        terms = hoc_terms(z, old[rows], slots[rows], simplex, lambda_=lambda_, rho=RHO)
        return terms["ce"] + terms["nce"]

    descent.minimise([weight], loss, len(new))
    return weight.detach()


def means_head(start: Tensor, new: Tensor, old: Tensor, labels: Tensor, *, lambda_: float, descent: Descent) -> Tensor:
    """D x D': a linear layer on new features, trained by ``means_hoc``'s loss in the old space, from ``ridge_map``."""
    _, codes = labels.unique(return_inverse=True)
    prototypes = unit(class_means(old, codes, int(codes.max()) + 1))
    weight = nn.Parameter(start.clone())

    def loss(rows: Tensor) -> Tensor:
        z = new[rows] @ weight.T
        ce = cross_entropy(cosine_logits(z, prototypes, scale=SCALE), codes[rows])
        return lambda_ * ce + (1 - lambda_) * info_nce(z, old[rows], codes[rows], rho=RHO)

    descent.minimise([weight], loss, len(new))
    return weight.detach()


def _scaled(z: Tensor) -> Tensor:
    """Unit rows times ``SCALE``: simplex cross-entropy depends on lengths, which a linear layer learns slowly."""
    return SCALE * unit(z)

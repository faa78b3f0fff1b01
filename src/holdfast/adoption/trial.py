"""The three ways tried on classes that none of them was fitted to."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from holdfast.adoption.maps import RIDGES, means_head, procrustes_map, ridge_map, simplex_head
from holdfast.adoption.projection import PULLS, STEPS, fit_projection
from holdfast.adoption.result import MAP, MEANS, PROJECTION, Later, Way
from holdfast.adoption.stored import ClassSplit
from holdfast.checking import feature_set
from holdfast.checking.estimates import Estimate, Resampling, gain_estimate, score_estimate, units
from holdfast.checking.judge import Judgement, judge_gallery
from holdfast.checking.result import judge_gain
from holdfast.checking.scores import parse_score
from holdfast.checking.truth import ClassTruth
from holdfast.geometry import DSimplex, nearest, unit

LAMBDAS = (0.1, 0.5, 0.9)
"""Tried for the heads of (a) and (b): the share of cross-entropy in the HOC loss."""
_TOP1 = parse_score("top1")


@dataclass(frozen=True)
class Trial:
    """Stored unit vectors (N x D), perhaps a new model's (N x D') of the same items, and how their classes are split.

    labels: N; slots: the vertex of each vector's class in ``simplex``.
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

    def judged(self, queries: Tensor, gallery: Tensor) -> Judgement:
        """Held-out queries on the held-out part of the store, both N x d of all items."""
        part = self.split
        truth = ClassTruth(self.labels[part.queries], self.labels[part.gallery])
        stored = feature_set("stored", gallery[torch.from_numpy(part.gallery)].numpy())
        asked = unit(queries[torch.from_numpy(part.queries)])
        return judge_gallery(stored, truth, [asked], _TOP1, protocol="instance").judgements[0]

    def how(self) -> Resampling:
        """Whole classes are drawn: what is asked is how other classes would fare, not other images of these."""
        return Resampling(self.confidence, self.resamples, self.seed, self.labels[self.split.queries])

    def score(self, judgement: Judgement) -> Estimate:
        return score_estimate(judgement, _TOP1, None, self.how())

    def gain(self, before: Judgement, after: Judgement) -> Estimate:
        return gain_estimate(before, after, _TOP1, (None, None), self.how())

    def chosen_by(self, queries: Tensor, gallery: Tensor) -> float:
        """Top-1 on the classes that settings are chosen by."""
        part = self.split
        asked, searched = (torch.from_numpy(rows) for rows in (part.choose_queries, part.choose_gallery))
        found = nearest(unit(queries[asked]), unit(gallery[searched])).indices[:, 0].numpy()
        return float((self.labels[part.choose_gallery][found] == self.labels[part.choose_queries]).mean())

    @property
    def fit(self) -> Tensor:
        return torch.from_numpy(self.split.fit)

    def later(self, before: Judgement, queries: Tensor, gallery: Tensor, untouched: Tensor | None = None) -> Later:
        """untouched: the queries as they are put to the store as it is, where that is another comparison."""
        after = self.judged(queries, gallery)
        gain = self.gain(before, after)
        verdict, reason = judge_gain(gain, self.min_gain, units(self.how(), before), "classes of queries")
        as_is = None if untouched is None else self.gain(before, self.judged(untouched, self.old))
        return Later(self.score(after), gain, verdict, reason, as_is)


def try_ways(trial: Trial) -> Iterator[Way]:
    """Each way as it is done with; those that need a new model's features only where they are there for (c)."""
    as_stored = trial.judged(trial.old, trial.old)
    yield _projection(trial, as_stored)
    yield _means(trial, as_stored)
    if trial.new is not None:
        yield _map(trial, as_stored, trial.new)


def fitted_projection(trial: Trial, pull: float, rows: Tensor | slice) -> Tensor:
    """The projection fitted to these rows of the store."""
    old, slots = trial.old[rows], trial.slots[rows]
    return fit_projection(old, slots, trial.simplex, pull=pull, seed=trial.seed, steps=trial.steps)


def best_pull(trial: Trial) -> tuple[float, Tensor]:
    """The pull whose projection finds most on the choosing classes, the strongest of equals, and the projection."""
    tried = [(pull, fitted_projection(trial, pull, trial.fit)) for pull in PULLS]
    return max(tried, key=lambda one: trial.chosen_by(trial.old @ one[1].T, trial.old @ one[1].T))


def _projection(trial: Trial, as_stored: Judgement) -> Way:
    pull, matrix = best_pull(trial)
    projected = unit(trial.old @ matrix.T)
    after = trial.judged(projected, projected)
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


def _means(trial: Trial, as_stored: Judgement) -> Way:
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
    """Procrustes, or the ridge that finds most on the choosing classes: the settings and the map (D x D')."""
    fit = trial.fit
    maps: list[tuple[dict[str, object], Tensor]] = [
        ({"map": "procrustes"}, procrustes_map(new[fit], trial.old[fit])),
        *(({"map": "ridge", "ridge": ridge}, ridge_map(new[fit], trial.old[fit], ridge)) for ridge in RIDGES),
    ]
    return max(maps, key=lambda one: trial.chosen_by(new @ one[1].T, trial.old))


def _map(trial: Trial, as_stored: Judgement, new: Tensor) -> Way:
    settings, matrix = best_map(trial, new)
    return Way(MAP, settings, later=trial.later(as_stored, new @ matrix.T, trial.old))

"""Make another model version 0 from its stored vectors alone."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike

from holdfast.bridges import Bridge
from holdfast.checks.check import check_options
from holdfast.core.checksums import sha256_of
from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.core.storage import check_file_writable, check_replaceable
from holdfast.core.wording import counted, per_cent
from holdfast.metrics.resampling import RESAMPLES
from holdfast.train.encoders import Encoder
from holdfast.train.geometry import DSimplex
from holdfast.train.scenarios import SlotRegistry
from holdfast.train.versions.adopted_model import RECORD, write_adopted
from holdfast.train.versions.adoption_result import (
    BRIDGE,
    NEEDS_CLASSES,
    OTHER_CLASSES,
    PROJECTION,
    SAME_CLASSES,
    UNCHANGED,
    WAYS,
    Adoption,
    Question,
    Way,
    choose,
    choose_without_classes,
    searched,
)
from holdfast.train.versions.adoption_trial import (
    STEPS,
    Descent,
    Measured,
    Trial,
    aligned_isometry,
    fit_bridge,
    fit_projection,
    try_ways,
)
from holdfast.train.versions.stored_vectors import (
    Paired,
    StoredVectors,
    few_classes,
    paired_rows,
    read_stored,
    split_classes,
    split_items,
)
from holdfast.vectors.pairing import Source, open_features
from holdfast.vectors.search import Progress

MAX_QUERIES = 5000
"""Queries of each question, at most. At 5,000 the 95 % interval of a top-1 score is at most 1.4 points to each side."""
MAX_CHOOSING = 2000
"""Queries that settings of a way are chosen by, at most."""


def adopt(
    features: Source | ArrayLike,
    labels: str | Path | ArrayLike | None = None,
    *,
    out: str | Path | None,
    new: Source | ArrayLike | None = None,
    new_model: str | Path | None = None,
    way: str | None = None,
    slots: int | None = None,
    held_out: float = 0.3,
    confidence: float = 0.95,
    min_gain: float = 0.0,
    resamples: int = RESAMPLES,
    seed: int = 0,
    steps: int = STEPS,
    bridge_pairs: int = 2000,
    max_queries: int = MAX_QUERIES,
    progress: Progress = lambda stage, done, total: None,
) -> Adoption:
    """Compare ways to adopt stored vectors, and write the best, or ``way``, to ``out``.

    features: the stored vectors: a file (npz, npy, parquet), a ``FeatureSet``, an array, N x D, or a tuple of arrays
        (features, labels, ids), of which the last two may be None.
    labels: their classes: a file or an array; None takes those in the features' file. Classes are optional: without
        them the vectors' own space is kept, and with ``new`` a bridge is fitted.
    out: folder of the adopted model; None writes nothing.
    new: a new model's vectors of the same items, or of some of them, paired by id or row by row; of any size. With them
        the queries of the new model decide between the ways; without them only the effect of a projection on the stored
        vectors is measured.
    new_model: the folder of that model. If the way is "bridge", a copy of the model is written beside the bridge.
    way: "projection", "means", "bridge" or "unchanged"; None takes the best. The first two need classes; "unchanged"
        fits nothing and ignores ``new``.
    slots: vertices of the projection's simplex. None: twice the number of classes, and at least D + 2, below which a
        projection loses dimensions.
    held_out: share of the items, and of the classes, that nothing is fitted to, between 0 and 1.
    confidence: of the two-sided intervals, at least 0.5 and below 1.
    min_gain: a way is good enough if its gain is shown to be above this fraction of 1.
    resamples: number of bootstrap resamples.
    seed: of the splits, the fits and the resamples.
    steps: Adam steps of each fit without a closed form.
    bridge_pairs: items that a bridge is fitted on, at most; drawn at random.
    max_queries: held-out items that are searched for each question, at most; drawn at random. Everything else is in the
        gallery or fitted to, whatever its number. ``Question.held_out`` is the number of held-out items.
    progress: called with what is being done, the amount done and the total.

    With classes, two questions are answered, each by fits of its own: how unseen items of the same classes are found
    (this one decides), and how items of classes that nothing was fitted on are found. The written model is fitted again
    to everything. A new model trained as a whole may score higher than the linear layers tried here.

    >>> import numpy as np
    >>> from holdfast import adopt, read_adopted
    >>> stored = np.random.default_rng(0).standard_normal((40, 8))
    >>> result = adopt(stored, out="models/1", way="unchanged")
    >>> read_adopted("models/1").dim
    8
    """
    check_options("instance", confidence, resamples, seed)
    _refuse_options(way, new is not None, held_out, bridge_pairs, max_queries)
    if steps < 1:
        raise HoldfastError(f"steps must be at least 1, got {steps}")
    if new_model is not None and (new is None or way == UNCHANGED):
        raise HoldfastError("new_model goes with new, the vectors it made of some of the same items; give both")
    if slots is not None and (slots < 2 or way in (BRIDGE, UNCHANGED)):
        raise HoldfastError(f"slots {slots}: a number of at least 2, for the ways that use classes only")
    progress("reading", 0, 1)
    stored = read_stored(features, labels)
    if way in NEEDS_CLASSES and stored.labels is None:
        raise HoldfastError(
            f"{stored.name}: has no labels, which the way {way!r} needs; give them (--labels), or leave out the way"
        )
    if out is not None:
        check_replaceable(Path(out), ())
        check_file_writable(Path(out) / RECORD)
    model = None if new_model is None else Encoder.from_pretrained(new_model)
    paired = None if new is None or way == UNCHANGED else paired_rows(stored, open_features(new, "new", "gallery"))
    if model is not None and paired is not None and model.dim != paired.new.shape[1]:
        raise HoldfastError(f"{new_model}: gives {model.dim} numbers, but its vectors here have {paired.new.shape[1]}")
    registry = None if stored.labels is None or way in (BRIDGE, UNCHANGED) else _registry(stored, slots)
    limits = {"confidence": confidence, "resamples": resamples, "min_gain": min_gain, "seed": seed, "steps": steps}
    limits |= {"bridge_pairs": bridge_pairs}
    judging = _Judging(stored, paired, registry, held_out, max_queries, limits, progress)
    ways, questions = judging.answers()
    bridge = None
    if paired is not None:
        progress("fitting the bridge to all pairs", 0, 1)
        old = stored.vectors[torch.from_numpy(paired.rows)]
        known = None if stored.labels is None else stored.labels[paired.rows]
        bridge = fit_bridge(paired.new, old, known, items=len(stored), most=bridge_pairs, seed=seed)
        ways = _with_settings(ways, bridge)
    if questions == (None, None):
        chosen, reason, good = choose_without_classes(way, None if bridge is None else bridge.helps)
    else:
        chosen, reason, good = choose(ways, way)
    found = Adoption(
        chosen=chosen,
        reason=reason,
        good_enough=good,
        judged=_judged(stored, questions, bridge),
        vectors=len(stored),
        dim=stored.dim,
        classes=len(stored.class_names),
        pairs=None if paired is None else len(paired.rows),
        confidence=confidence,
        min_gain=min_gain,
        same_classes=questions[0],
        other_classes=questions[1],
        ways=ways,
        bridge=None if bridge is None else bridge.as_json(),
        notes=_notes(stored, registry, paired, questions),
    )
    if out is not None:
        matrix = None
        if chosen == PROJECTION:
            assert registry is not None
            descent = Descent(seed, steps, lambda done, total: progress("fitting the projection to all", done, total))
            matrix = _final_projection(stored, registry, found.way(PROJECTION).settings["pull"], descent)
        progress("writing", 0, 1)
        write_adopted(
            Path(out),
            stored,
            found,
            projection=matrix,
            registry=registry if chosen == PROJECTION else None,
            features=_origin(features, labels, stored),
            bridge=bridge if chosen == BRIDGE else None,
            new_model=model if chosen == BRIDGE else None,
        )
    return found


def _refuse_options(way: str | None, has_new: bool, held_out: float, bridge_pairs: int, max_queries: int) -> None:
    if way is not None and way not in WAYS:
        raise unknown_name("way", way, WAYS)
    if way == BRIDGE and not has_new:
        raise HoldfastError("the way 'bridge' needs a new model's vectors of some of the same items; give them as new")
    if not 0 < held_out < 1:
        raise HoldfastError(f"held-out must be a share of items and classes between 0 and 1, got {held_out:g}")
    if bridge_pairs < 1:
        raise HoldfastError(f"bridge-pairs must be a number of items, got {bridge_pairs}")
    if max_queries < 1:
        raise HoldfastError(f"max-queries must be at least 1, got {max_queries}")


def _registry(stored: StoredVectors, slots: int | None) -> SlotRegistry:
    """A slot for every class."""
    num_slots = slots if slots is not None else max(2 * len(stored.class_names), stored.dim + 2)
    if num_slots == stored.dim + 1:
        raise HoldfastError(
            f"slots {num_slots}: its simplex has the vectors' own {stored.dim} dimensions; take one more"
        )
    return SlotRegistry(num_slots).take_left(stored.class_names)


def _slot_of(stored: StoredVectors, registry: SlotRegistry) -> torch.Tensor:
    """The slot of each vector's class, N."""
    assert stored.labels is not None
    by_class = torch.tensor([registry.slot(name) for name in stored.class_names])
    return by_class[torch.from_numpy(stored.labels)]


def _final_projection(stored: StoredVectors, registry: SlotRegistry, pull: float, descent: Descent) -> torch.Tensor:
    """The projection fitted to all stored vectors."""
    simplex, slots = DSimplex(registry.num_slots), _slot_of(stored, registry)
    start = aligned_isometry(stored.vectors, slots, simplex)
    return fit_projection(stored.vectors, slots, simplex, start, pull=pull, descent=descent)


@dataclass(frozen=True)
class _Judging:
    """What the two questions are asked about.

    registry: the slots; None tries the bridge alone, which then also works with few classes.
    held_out: share of the items and of the classes.
    max_queries: of each question.
    settings: fields of ``Trial``.
    progress: called with what is being done, the amount done and the total.
    """

    stored: StoredVectors
    paired: Paired | None
    registry: SlotRegistry | None
    held_out: float
    max_queries: int
    settings: dict[str, Any]
    progress: Progress

    def answers(self) -> tuple[list[Way], tuple[Question | None, Question | None]]:
        """Every way, measured by both questions, and the questions."""
        stored = self.stored
        if stored.labels is None or (self.registry is None and self.paired is None):
            return [], (None, None)
        if self.registry is not None and len(stored.class_names) < 2:
            raise HoldfastError(
                f"{stored.name}: one class only ({stored.class_names[0]}); a space is judged by telling classes apart, "
                f"but the ways {BRIDGE!r} and {UNCHANGED!r} do without"
            )
        same = None if self.paired is None else self._trial(by_class=False)  # only new queries can be unseen
        other = self._trial(by_class=True)
        answers = [
            {} if trial is None else {one.name: one for one in try_ways(trial, bridge_only=self.registry is None)}
            for trial in (same, other)
        ]
        ways = [_joined(answers[0].get(name), answers[1].get(name)) for name in answers[1] or answers[0]]
        return ways, (None if same is None else same.question(), None if other is None else other.question())

    def _trial(self, *, by_class: bool) -> Trial | None:
        """The trial of one question; None if there are too few classes and only a bridge is judged."""
        stored, registry, seed = self.stored, self.registry, self.settings["seed"]
        assert stored.labels is not None
        old, labels, new = stored.vectors, stored.labels, None
        if self.paired is not None:  # old and new queries are compared on items that both models embedded
            old, labels, new = old[torch.from_numpy(self.paired.rows)], labels[self.paired.rows], self.paired.new
        if not by_class:
            split = split_items(labels, held_out=self.held_out, seed=seed)
        elif registry is None and few_classes(labels):
            split = None
        else:
            name = stored.name
            if self.paired is not None:
                name += f", {counted(len(labels), 'item')} that the new model has vectors of"
            split = split_classes(labels, held_out=self.held_out, seed=seed, name=name)
        if split is None:
            return None
        slots, simplex = torch.zeros(len(labels), dtype=torch.long), DSimplex(2)
        if registry is not None:
            slots, simplex = _slot_of(stored, registry), DSimplex(registry.num_slots)
            slots = slots if self.paired is None else slots[torch.from_numpy(self.paired.rows)]
        split = split.sampled(self.max_queries, MAX_CHOOSING, seed)
        question = f"question {2 if by_class else 1} of 2: " if self.paired is not None else ""

        def progress(stage: str, done: int, total: int) -> None:
            self.progress(f"{question}{stage}", done, total)

        return Trial(old, new, labels, slots, simplex, split, by_class, **self.settings, progress=progress)


def _joined(same: Measured | None, other: Measured | None) -> Way:
    """One way with its answers to both questions. Settings of a projection come from the second, as its gain does."""
    main = other or same
    assert main is not None
    answers = [None if one is None else one.later for one in (same, other)]
    stored, gain = (None, None) if other is None else (other.stored, other.stored_gain)
    return Way(main.name, main.settings, stored, gain, *answers)


def _with_settings(ways: list[Way], bridge: Bridge) -> list[Way]:
    """The bridge's entry with the settings of the bridge that is written."""
    settings = {"kind": bridge.kind, **bridge.options}
    return [replace(way, settings=settings) if way.name == BRIDGE else way for way in ways]


def _judged(stored: StoredVectors, questions: tuple[Question | None, Question | None], bridge: Bridge | None) -> str:
    asked = []
    for name, question in zip((SAME_CLASSES, OTHER_CLASSES), questions, strict=True):
        if question is not None:
            asked.append(f"{searched(question)} of {name}")
    if asked:
        return f"top-1 of {' and of '.join(asked)}"
    known = "no classes are known" if stored.labels is None else "no classes were used"
    if bridge is None:
        return f"nothing: {known}, and there are no new model's vectors to compare with"
    evidence = bridge.evidence
    value, chance = per_cent(evidence.chosen.value, 1), per_cent(evidence.chance, 1)
    held = counted(evidence.held_out, "held-out pair")
    return f"the bridge on {held}, {evidence.measure} {value} % (random hits {chance} %); {known}"


def _origin(
    features: Source | ArrayLike, labels: str | Path | ArrayLike | None, stored: StoredVectors
) -> dict[str, Any]:
    """Where the vectors are stored, for later training against them; None for arrays in memory."""
    file = Path(features).absolute() if isinstance(features, str | Path) else None
    return {
        "path": None if file is None else str(file),
        "sha256": sha256_of(file) if file is not None and file.is_file() else None,
        "labels": str(Path(labels).absolute()) if isinstance(labels, str | Path) else None,
        "vectors": len(stored),
        "dim": stored.dim,
    }


def _notes(
    stored: StoredVectors,
    registry: SlotRegistry | None,
    paired: Paired | None,
    questions: tuple[Question | None, Question | None],
) -> list[str]:
    notes = []
    if registry is not None and registry.num_slots - 1 < stored.dim:
        notes.append(
            f"{registry.num_slots} slots give {registry.num_slots - 1} dimensions, fewer than the vectors' "
            f"{stored.dim} numbers, so the projection loses some"
        )
    if not stored.has_ids:
        notes.append(
            "the vectors have no ids, so no network for images can be trained against them; a head on them can, and "
            "new models can be checked"
        )
    if paired is not None and len(paired.rows) < len(stored):
        notes.append(
            f"the new model's vectors are known of {len(paired.rows):,} of {counted(len(stored), 'item')}; only these "
            "are compared"
        )
    if paired is not None and questions[1] is not None:
        notes.append("the second answer is too high if the new model itself was trained on these classes")
    return notes

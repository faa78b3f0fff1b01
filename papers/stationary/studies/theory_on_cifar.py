"""Page ``theory``: the assumption of Theorem 1, and the constraints of Proposition 1, on models of CIFAR100/10.

Each run's record has the numbers of every pair of its models under ``theory`` (stationarity_measure.py). The page pools
them and averages over seeds.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from papers.stationary.cifar_runs import paper_run
from papers.stationary.formatting import MISSING, commit_note, method_name, missing_note, score
from papers.stationary.result_page import ResultPage, Row, Selection, Table
from papers.stationary.results import Results, row
from papers.stationary.study_runs import StudyRun

STUDY = "theory"
STAGE = 20
"""After the experiments on Table 2."""

TASKS, SEEDS = 7, (0, 1, 2)
HOC, ER = "simplex_hoc", "er"
LAMBDAS = (0.1, 0.3)
READOUTS = ("simplex", "backbone")
ANGLES = ("old_cap", "new_cap", "old_class_mean", "new_class_mean")
FEW = 0.05
"""A constraint is called nearly met if at most this share of the pairs violates it."""

ABOUT = (
    "AC: on CIFAR10, with queries from its training images and a gallery of its test images. AC by template, as in the"
    " authors' code, has one mean vector per class in the gallery; by instance it has single images. The other columns"
    " are about CIFAR100, so the table does not show why models that violate Eq. 13 are compatible.",
    "grew: share of the old classes whose cap is larger after an update than before it (Theorem 1 assumes none);"
    " nested: share whose new cap lies inside the old one, prototypes' moves included; cap: its mean angle before and"
    " after an update. A cap is the smallest angle around a class's prototype that contains 95 % of its images.",
    "class mean: mean angle between a class's mean feature and its prototype, before and after an update. Theorem 1"
    " assumes features spread evenly around the prototype; this angle would then be 0, apart from the chance of the"
    " drawn images.",
    "1a, 1b on average: pairs of models k < t for which Eq. 1a or 1b holds on average over all pairs of images; by"
    " class: share of classes (1a), or of pairs of classes (1b), for which it holds on average. Eq. 13: share of pairs"
    " of images of one class that violate Eq. 1a after an update (k = t - 1). Eq. 12: share that violate Eq. 1a, and"
    " share of pairs of two classes that violate Eq. 1b, over all k < t.",
)


def _run(method: str, seed: int, lambda_: float | None) -> StudyRun:
    change = "" if lambda_ is None else f"lambda-{lambda_:g}"
    settings = () if lambda_ is None else (f"method.lambda={lambda_}",)
    made = paper_run(method, TASKS, seed=seed, study=STUDY, change=change, settings=settings, stage=STAGE)
    return replace(made, measures=("theory",))


CASES: tuple[tuple[str, float | None], ...] = (*((HOC, value) for value in LAMBDAS), (ER, None))
"""Methods with their lambda."""


def _runs() -> list[StudyRun]:
    return [_run(method, seed, lambda_) for method, lambda_ in CASES for seed in SEEDS]


def _rows(results: Results, selection: Selection) -> list[Row]:
    """A row per method, lambda and readout. Its numbers are means over seeds; ``spread`` has standard deviations."""
    found = []
    for method, lambda_ in CASES:
        runs = selection.of([_run(method, seed, lambda_) for seed in SEEDS])
        if not runs:
            continue
        records = [record for run in runs if (record := results.record(run)) is not None]
        for readout in READOUTS if method == HOC else READOUTS[:1]:
            measured = [summary(record["theory"]["readouts"][readout]["pairs"]) for record in records]
            line = {**row(runs, results, paper=None), "lambda": lambda_, "readout": readout}
            line["images"] = sorted({_images(record["theory"]) for record in records})
            line["prototypes"] = records[0]["theory"]["readouts"][readout]["prototypes"] if records else None
            names = measured[0] if measured else {}
            line["theory"] = {name: statistics.fmean(one[name] for one in measured) for name in names}
            line["spread"] = (
                {name: statistics.stdev(one[name] for one in measured) for name in names} if len(measured) > 1 else {}
            )
            found.append(line)
    return found


def _images(measured: Mapping[str, Any]) -> str:
    return f"{measured['samples']:,} images of {measured['images']}, {measured['per_class']} of each class"


def summary(pairs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Numbers of one run and readout, from the entries of its pairs of models k < t.

    grew, nested, moved, ANGLES: over the old classes of all updates (t = k + 1); angles in degrees.
    mean_1a, mean_1b: number of pairs of models for which the equation holds on average.
    class_1a, class_1b: share of classes, or of pairs of classes, for which it holds on average.
    eq13: share of the image pairs of one class that violate Eq. 1a after an update.
    eq12a, eq12b: shares of the image pairs that violate Eq. 1a and 1b, over all k < t.
    """
    updates = [pair for pair in pairs if pair["to"] == pair["from"] + 1]

    def over_classes(name: str) -> float:
        return _mean([pair["num_classes"] for pair in updates], [pair[name] for pair in updates])

    def by_class(kind: str, weights: Sequence[int]) -> float:
        return _mean(weights, [pair[kind]["by_class"] for pair in pairs])

    def violated(kind: str, among: Sequence[Mapping[str, Any]]) -> float:
        return 1 - _mean([pair[kind]["count"] for pair in among], [pair[kind]["share"] for pair in among])

    classes = [pair["num_classes"] for pair in pairs]
    return {
        "models": float(len(pairs)),
        "grew": 1 - over_classes("shrank"),
        **{name: over_classes(name) for name in ("nested", "moved", *ANGLES)},
        "mean_1a": float(sum(pair["same"]["holds_on_average"] for pair in pairs)),
        "mean_1b": float(sum(pair["different"]["holds_on_average"] for pair in pairs)),
        "class_1a": by_class("same", classes),
        "class_1b": by_class("different", [count * (count - 1) for count in classes]),
        "eq13": violated("same", updates),
        "eq12a": violated("same", pairs),
        "eq12b": violated("different", pairs),
    }


def _mean(weights: Sequence[float], values: Sequence[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)


HEADER = (
    "method", "λ", "readout", "n", "AC", "AC by instance", "grew %", "nested %", "cap, degrees", "class mean, degrees",
    "1a on average", "1a by class %", "Eq. 13 violated %", "Eq. 12 (1a) violated %", "1b on average", "1b by class %",
    "Eq. 12 (1b) violated %",
)  # fmt: skip


def _tables(results: Results, selection: Selection) -> list[Table]:
    rows = _rows(results, selection)
    lines = [
        [
            method_name(line["method"]),
            "–" if line["lambda"] is None else f"{line['lambda']:g}",
            line["readout"] if line["method"] == HOC else "one feature",
            str(len(line["seeds"])),
            *(_cells(line) if line["seeds"] else [MISSING, *[""] * (len(HEADER) - 5)]),
        ]
        for line in rows
    ]
    title = "Theorem 1 and Proposition 1 on CIFAR100, 7 tasks"
    each = [line for line in rows if line["readout"] == READOUTS[0]]  # the other readout has the same runs
    notes = (*_verdict(rows), *_where(rows), *ABOUT, *commit_note(each), *missing_note(each))
    return [Table(title, list(HEADER), lines, right=tuple(range(3, len(HEADER))), notes=notes)]


def _cells(line: Row) -> list[str]:
    found = line["theory"]

    def per_cent(name: str) -> str:
        spread = f"±{100 * line['spread'][name]:.1f}" if line["spread"] else ""
        return f"{100 * found[name]:.1f}{spread}"

    def models(name: str) -> str:
        return f"{found[name]:.3g} of {found['models']:g}"

    compared = line["readout"] == READOUTS[0]  # the feature that the run was evaluated with
    return [
        *(score("AC", found["AC"], found["sd"]["AC"]) if compared else "–" for found in (line, line["instance"])),
        per_cent("grew"),
        per_cent("nested"),
        f"{found['old_cap']:.1f} → {found['new_cap']:.1f}",
        f"{found['old_class_mean']:.1f} → {found['new_class_mean']:.1f}",
        models("mean_1a"),
        per_cent("class_1a"),
        per_cent("eq13"),
        per_cent("eq12a"),
        models("mean_1b"),
        per_cent("class_1b"),
        per_cent("eq12b"),
    ]


def _where(rows: Sequence[Row]) -> tuple[str, ...]:
    images = sorted({words for line in rows for words in line["images"]})
    kinds = dict.fromkeys(
        f"{line['prototypes']} ({method_name(line['method'])}{_readout(line)})" for line in rows if line["prototypes"]
    )
    if not images:
        return ()
    buffer = _run(ER, SEEDS[0], None).recipe["scenario"]["buffer_per_class"]
    return (
        f"Measured on {'; '.join(images)}, drawn once for all runs, of the classes that the older model knows: training"
        f" images, because the constraints are on them. An update trains on the {buffer} images of such a class that"
        f" are in its buffer. All ordered pairs of different images. Prototypes:"
        f" {', '.join(kinds)}.",
    )


def _readout(line: Row) -> str:
    return f", {line['readout']}" if line["method"] == HOC else ""


def _verdict(rows: Sequence[Row]) -> tuple[str, ...]:
    """The paragraph below the table, worked out from its rows; none unless every row has a run."""
    if not rows or not all(line["seeds"] for line in rows):
        return ()
    caps = (
        "In no update does a cap grow, so the assumption of Theorem 1 holds."
        if all(line["theory"]["grew"] == 0 for line in rows)
        else "The caps of Theorem 1 are not nested: in an update the cap grows for"
        f" {_range(rows, 'grew')} of the old classes, depending on the row."
    )
    violated = (
        f"Of the pairs of images of one class {_range(rows, 'eq13')} violate Eq. 13 and"
        f" {_range(rows, 'eq12a')} violate the first constraint of Eq. 12."
        f" Of the pairs of two classes {_range(rows, 'eq12b')} violate its second."
    )
    averages = f"{_average(rows, '1a', 'mean_1a')} {_average(rows, '1b', 'mean_1b')}"
    return (" ".join(part for part in (caps, averages, violated, _compared(rows)) if part),)


def _range(rows: Sequence[Row], name: str) -> str:
    low, high = (f"{100 * pick(line['theory'][name] for line in rows):.0f}" for pick in (min, max))
    return f"{low} %" if low == high else f"{low} to {high} %"


def _average(rows: Sequence[Row], equation: str, name: str) -> str:
    """For how many rows the equation holds on average, in all pairs of models or in some."""
    always = sum(line["theory"][name] == line["theory"]["models"] for line in rows)
    never = sum(line["theory"][name] == 0 for line in rows)
    if always == len(rows):
        return f"On average Eq. {equation} holds for every pair of models."
    if never == len(rows):
        return f"On average Eq. {equation} holds for no pair of models."
    low, high = (pick(line["theory"][name] / line["theory"]["models"] for line in rows) for pick in (min, max))
    return f"On average Eq. {equation} holds for {100 * low:.0f} to {100 * high:.0f} % of the pairs of models."


def _compared(rows: Sequence[Row]) -> str:
    """d-Simplex-HOC against ER, by the constraint that Proposition 1 is about."""
    own = {method: [line for line in rows if line["method"] == method] for method in (HOC, ER)}
    if not all(own.values()):
        return ""
    held = "nearly meets" if max(line["theory"]["eq13"] for line in own[HOC]) <= FEW else "does not meet"
    return (
        f"d-Simplex-HOC {held} the constraint of Eq. 13: {_range(own[HOC], 'eq13')} of its pairs violate it. ER, which"
        f" has no such term, violates it for {_range(own[ER], 'eq13')}. ER also has a trainable classifier and no"
        " projection; d-Simplex with λ = 1 would be the better control and was not run with these tasks."
    )


THEORY_ON_CIFAR = ResultPage("Theorem 1 and Proposition 1 on trained models", _runs, _rows, _tables)

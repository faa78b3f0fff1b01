"""Page ``fig3``: the toy on MNIST with cross-entropy alone and with HOC, and variants that show when HOC stalls.

Stalling: the cross-entropy part of HOC ends near log K, the value of features of length 0. Each variant changes one
thing, so that the cause can be read off the table.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papers.stationary.formatting import MISSING, commit_note, missing_note
from papers.stationary.plots import save
from papers.stationary.result_page import EVERYTHING, Figure, ResultPage, Row, Selection, Table
from papers.stationary.results import Results, row
from papers.stationary.study_runs import StudyRun
from papers.stationary.theory_figures import CE_LABEL, toy_figure

STUDY, FAMILY, SOURCE, METHOD = "toy", "theory", "toy/mnist", "simplex_hoc"
STAGE = 21
FEWER = 1_000
"""Training images of each class in the variants. The figure's runs have all of MNIST."""

STALLED, SETTLED = 0.9, 0.5
"""A run stalls if the cross-entropy of the new digits ends above the first share of log K, and converges if below the
second."""


@dataclass(frozen=True)
class Variant:
    """One run of the toy.

    change: suffix of its file name.
    about: what differs from K = 10 with HOC, as the table shows it.
    settings: the changed settings, each as ``key=value``.
    slots: K.
    per_class: training images of each class; None for all.
    """

    change: str
    about: str
    settings: tuple[str, ...] = ()
    slots: int = 10
    per_class: int | None = FEWER

    @property
    def run(self) -> StudyRun:
        limit = () if self.per_class is None else (f"data.train.per_class={self.per_class}",)
        settings = (f"method.slots={self.slots}", *limit, *self.settings)
        return StudyRun(
            STUDY,
            SOURCE,
            METHOD,
            2,
            change=self.change,
            settings=settings,
            stage=STAGE,
            family=FAMILY,
            measures=("toy",),
        )


CE = ("method.lambda=1.0",)
MAIN = {
    slots: (
        Variant(f"all-K-{slots}-ce", f"K = {slots}, all images, cross-entropy alone", CE, slots, None),
        Variant(f"all-K-{slots}", f"K = {slots}, all images", (), slots, None),
    )
    for slots in (10, 100)
}
"""The runs of the figure: K -> with cross-entropy alone, and with HOC."""

BASE = Variant("K-10", f"baseline: K = 10, {FEWER:,} images of each class")
VARIANTS = (
    Variant("K-10-ce", "cross-entropy alone (λ = 1)", CE),
    BASE,
    *(Variant(f"K-10-lr-{value:g}", f"learning rate {value:g}", (f"train.lr={value}",)) for value in (0.0003, 0.003)),
    Variant("K-10-batch-32", "batches of 32", ("train.batch_size=32",)),
    Variant("K-10-momentum-0", "no momentum, learning rate 0.01", ("train.momentum=0.0", "train.lr=0.01")),
    Variant("K-10-size-2", "a layer of size 2 before the projection", ("backbone.width=2",)),
    *(Variant(f"K-10-lambda-{value:g}", f"λ = {value:g}", (f"method.lambda={value}",)) for value in (0.5, 0.9)),
    *(Variant(f"K-10-rho-{value:g}", f"ρ = {value:g}", (f"method.rho={value}",)) for value in (1.0, 20.0)),
    *(
        Variant(f"K-10-negatives-{name}", f"negatives: {name}", (f"method.negatives={name}",))
        for name in ("paper", "masked")
    ),
    Variant("K-10-buffer-20", "a buffer of 20 images of each old class", ("scenario.buffer_per_class=20",)),
    Variant("K-10-length-20", "features of length 20 in the cross-entropy", ("method.length=20.0",)),
    *(Variant(f"K-{slots}", f"K = {slots}", (), slots) for slots in (20, 100, 1000)),
)
"""One change each against ``BASE``, with fewer images."""

CHANGES = ("K-100", "K-10-lambda-0.5", "K-10-rho-1", "K-10-length-20")
"""Runs that each remove one of the three conditions of stalling; the second and third remove the same."""

EVERY = (*(one for pair in MAIN.values() for one in pair), *VARIANTS)

ABOUT = (
    "LeNet++, five digits, then the other five, 40 epochs each, seed 0; K 10, λ 0.1, ρ 5, no buffer unless the row says"
    ' otherwise. Rows without "all images" are the baseline with the change they name. CE, contrast: mean of each term'
    " over the last epoch, without its weight. /log K: the cross-entropy of the new digits after the update, divided by"
    " that of features of length 0. length: of the features of the new digits before and after the update. own vertex:"
    " their mean cosine with the vertex of their class, before and after. old feature: their mean cosine, after the"
    " update, with the first model's feature of the same image. new digits, old digits: share of images whose own"
    " vertex is the nearest of all K.",
)


def _runs() -> list[StudyRun]:
    return [variant.run for variant in EVERY]


def _rows(results: Results, selection: Selection) -> list[Row]:
    found = []
    for variant in EVERY:
        if not selection.of([variant.run]):
            continue
        record = results.record(variant.run)
        measured = None if record is None else record["toy"]
        line = {**row([variant.run], results, paper=None), "about": variant.about, "change": variant.change}
        found.append({**line, "toy": measured, "of_log_k": None if measured is None else of_log_k(measured)})
    return found


def of_log_k(measured: Mapping[str, Any]) -> float:
    """Cross-entropy of the new digits after the update, divided by log K."""
    return float(measured["after"]["ce"] / math.log(measured["slots"]))


def _tables(results: Results, selection: Selection) -> list[Table]:
    rows = _rows(results, selection)
    header = [
        "changed", "loss", "CE", "/log K", "contrast", "length", "own vertex", "old feature", "new digits %",
        "old digits %",
    ]  # fmt: skip
    lines = [[line["about"], *(_cells(line) if line["toy"] else [MISSING, *[""] * (len(header) - 2)])] for line in rows]
    notes = (*_verdict(rows), *ABOUT, *commit_note(rows), *missing_note(rows))
    return [Table("The toy on MNIST", header, lines, right=tuple(range(1, len(header))), notes=notes)]


def _cells(line: Row) -> list[str]:
    measured = line["toy"]
    curves, before, after = measured["curves"], measured["before"], measured["after"]
    return [
        f"{curves['loss'][-1]:.3f}",
        f"{curves['ce'][-1]:.3f}",
        f"{line['of_log_k']:.2f}",
        f"{curves['nce'][-1]:.3f}" if "nce" in curves else "–",
        f"{before['length']:.1f} → {after['length']:.1f}",
        f"{before['own_vertex']:.2f} → {after['own_vertex']:.2f}",
        f"{after['old_feature']:.2f}",
        f"{100 * after['accuracy']:.1f}",
        f"{100 * after['old_classes']:.1f}",
    ]


def _verdict(rows: Sequence[Row]) -> tuple[str, ...]:
    """The answer in words, worked out from the variants; none before all of them are there."""
    found = {line["change"]: line for line in rows if line["toy"]}
    if not all(variant.change in found for variant in VARIANTS):
        return ()
    base = found[BASE.change]
    before, after = base["toy"]["before"], base["toy"]["after"]
    stalls = base["of_log_k"] > STALLED
    first = (
        f"A run stalls if the cross-entropy of the new digits ends above {STALLED:g} log K, and converges if it ends"
        f" below {SETTLED:g} log K. The baseline {'stalls' if stalls else 'does not stall'}: its cross-entropy part"
        f" ends at {after['ce']:.2f} (log 10 is {math.log(10):.2f}), and {100 * after['accuracy']:.0f} % of the new"
        f" digits are nearest to their own vertex. The length of their features goes from {before['length']:.1f} to"
        f" {after['length']:.2f}, and their mean cosine with their own vertex from {before['own_vertex']:.2f} to"
        f" {after['own_vertex']:.2f}."
    )
    others = [found[variant.change] for variant in VARIANTS if variant not in (BASE, VARIANTS[0])]
    groups = {
        "These changes leave it stalled": [line for line in others if line["of_log_k"] > STALLED],
        "These make it converge": [line for line in others if line["of_log_k"] < SETTLED],
        "These are in between": [line for line in others if SETTLED <= line["of_log_k"] <= STALLED],
    }

    def shown(own: Sequence[Row]) -> str:
        return "; ".join(f"{line['about']} ({line['of_log_k']:.2f})" for line in own)

    listed = [f"{words}: {shown(own)}." for words, own in groups.items() if own]
    answer = f"{first} {' '.join(listed)} In brackets: the cross-entropy of the new digits divided by log K."
    return (answer, *_cause(found))


def _cause(found: Mapping[str, Row]) -> tuple[str, ...]:
    """What stalling needs, and its likely cause; none unless the baseline stalls and ``CHANGES`` converge."""
    if found[BASE.change]["of_log_k"] <= STALLED or any(found[name]["of_log_k"] >= SETTLED for name in CHANGES):
        return ()
    hoc = [found[variant.change] for variant in VARIANTS[1:]]
    stalled = [line["toy"]["after"]["old_feature"] for line in hoc if line["of_log_k"] > STALLED]
    converged = [line["toy"]["after"]["old_feature"] for line in hoc if line["of_log_k"] < SETTLED]
    base, alone = (found[name]["toy"]["after"]["old_feature"] for name in (BASE.change, VARIANTS[0].change))
    share = 100 * found["K-10-length-20"]["toy"]["after"]["accuracy"]
    cosines = {slots: found[f"K-{slots}"]["toy"]["before"]["own_vertex"] for slots in (10, 20, 100)}
    return (
        "In these runs HOC stalls when three things come together: few vertices, a contrast that outweighs the"
        " cross-entropy, and a cross-entropy that depends on the length of the features. It converges when one of them"
        " is changed: with K = 100, with λ = 0.5 or ρ = 1, or with features of length 20 in the cross-entropy. In the"
        f" last of these runs {share:.1f} % of the new digits are nearest to their own vertex.",
        "Directions, with 1,000 images of each class: in the baseline the cosine of a new digit's feature with its old"
        f" feature ends at {base:.2f}, which is about {math.degrees(math.acos(base)):.0f} degrees. It is"
        f" {min(stalled):.2f} to {max(stalled):.2f} in all runs with HOC that stall, and {min(converged):.2f} to"
        f" {max(converged):.2f} in those that converge. With cross-entropy alone it is {alone:.2f}. So HOC keeps a part"
        " of the old direction, also where it converges.",
        "Likely cause, which no run tests alone: the contrast ignores lengths and pulls a feature towards its old"
        " direction. At length 0 the cross-entropy is log K, and it falls with the length only if the feature's cosine"
        f" with its own vertex is positive. After the first task that cosine is {cosines[10]:.2f} with K = 10 and"
        f" {cosines[20]:.2f} with K = 20. With K = 100 it is {cosines[100]:.2f}. While it is negative, a"
        " shorter feature has a lower cross-entropy; the more negative it is, the larger is the effect. The cosines of"
        " a feature with all vertices sum to zero. If it is close to the five old vertices, the others have negative"
        " cosines on average: five share them with K = 10, ninety-five with K = 100.",
    )


def _figures(results: Results) -> list[Figure]:
    """The two losses with K = 100, and HOC with K = 10; none before these runs are there."""
    found = {line["change"]: line["toy"] for line in _rows(results, EVERYTHING) if line["toy"]}
    wanted = {
        f"{CE_LABEL}, K = 100": MAIN[100][0],
        "HOC (λ = 0.1), K = 100": MAIN[100][1],
        "HOC (λ = 0.1), K = 10": MAIN[10][1],
    }
    if not all(variant.change in found for variant in wanted.values()):
        return []
    curves = {label: found[variant.change]["curves"] for label, variant in wanted.items()}
    caption = (
        "The toy on all of MNIST: cross-entropy alone with K = 100 against HOC with K = 100 and K = 10, one run each;"
        " the loss that is minimised, and its cross-entropy part."
    )
    return [Figure("fig3", caption, curves, _draw)]


def _draw(curves: Mapping[str, Mapping[str, Sequence[float]]], path: Path) -> None:
    save(toy_figure(curves, "MNIST"), path, curves)


FIG3 = ResultPage("Figure 3: the toy on MNIST", _runs, _rows, _tables, _figures)

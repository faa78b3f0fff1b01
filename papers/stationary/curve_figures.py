"""Figures 6, 8 and 9: AA after each task, with and without replacements.

Figures 6 and 9 have 31 tasks of CIFAR100R/10; in Figure 9 models of other architectures come in. Figure 8 has 16 tasks
of 512 people of CelebA with DINOv3 ViT-B/16; it has not been run. ``hours_of_fig8`` estimates its cost from what
``bench/large_step.py`` measured of two methods.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.core.storage import read_json
from holdfast.train.methods import METHODS
from papers.stationary.cifar_runs import PAPER_METHODS
from papers.stationary.formatting import MISSING, commit_note, method_name, missing_note, score
from papers.stationary.iam_runs import (
    LAST,
    LONG,
    LONG_TASKS,
    REPLACED_AT,
    TITLES,
    deviation_notes,
    iam_run,
    our_settings_note,
    with_ours,
)
from papers.stationary.plots import DASHED, aa_panel, draw_aa_panels
from papers.stationary.result_page import Figure, ResultPage, Row, Selection, Table
from papers.stationary.results import Results, row
from papers.stationary.study_runs import StudyRun


@dataclass(frozen=True)
class AAOverTasks:
    """A figure with one panel per study.

    name: name of the figure.
    data: data set, for headings.
    tasks: number of tasks.
    methods: methods to show; ours is added.
    studies: study -> title of its panel.
    replaced: study -> tasks that begin with a replacement.
    stage: position of its runs in the running order.
    notes: returns the notes for all numbers of the given runs.
    needed: returns a note on what missing runs need.
    replacement: what comes in at a replacement, for the caption.
    """

    name: str
    data: str
    tasks: int
    methods: tuple[str, ...]
    studies: Mapping[str, str]
    replaced: Mapping[str, tuple[int, ...]]
    stage: int
    notes: Callable[[Results, Sequence[StudyRun]], tuple[str, ...]]
    needed: Callable[[Results], str] | None = None
    replacement: str = "a model trained elsewhere"

    def page(self, about: str) -> ResultPage:
        return ResultPage(about, self.runs, self.rows, self.tables, self.figures)

    def runs(self) -> list[StudyRun]:
        return [run for study in self.studies for run in self._of(study)]

    def _of(self, study: str) -> list[StudyRun]:
        return [iam_run(study, method, self.tasks, stage=self.stage) for method in with_ours(self.methods)]

    def rows(self, results: Results, selection: Selection) -> list[Row]:
        found = []
        for run in selection.of(self.runs()):
            record = results.record(run)
            up_to = None if record is None else record["protocols"]["template"]["AA_tau"]
            found.append({**row([run], results, paper=None), "study": run.study, "AA_tau": up_to})
        return found

    def tables(self, results: Results, selection: Selection) -> list[Table]:
        every = self.rows(results, selection)
        replaced = max(self.replaced.values(), key=len)
        marks = [*(task for at in replaced for task in (at - 1, at)), self.tasks]
        lines = []
        for r in every:
            known = (
                [score("AA", r["AA_tau"][task - 1]) for task in marks]
                if r["AA_tau"]
                else [MISSING] + [""] * (len(marks) - 1)
            )
            lines.append([self.studies[r["study"]], method_name(r["method"]), *known])
        header = ["", "method", *(f"AA_{task} %" for task in marks)]
        if len(self.studies) == 1:  # needs no column
            header, lines = header[1:], [line[1:] for line in lines]
        absent = missing_note(every)
        notes = (
            "AA of the models up to a task: before and at each replacement"
            f" (tasks {' and '.join(map(str, replaced))}), and at the end. The paper has curves without numbers.",
            *self.notes(results, selection.of(self.runs())),
            *our_settings_note(every),
            *commit_note(every),
            *absent,
            *([self.needed(results)] if absent and self.needed else []),
        )
        title, right = f"{self.data}, {self.tasks} tasks: AA over time", range(len(header) - len(marks), len(header))
        return [Table(title, header, lines, right=right, notes=notes)]

    def figures(self, results: Results) -> list[Figure]:
        panels = [
            aa_panel(title, results, self._of(study), self.replaced.get(study, ()))
            for study, title in self.studies.items()
        ]
        panels = [panel for panel in panels if panel["lines"]]
        caption = (
            f"AA up to each task, {self.data}, {self.tasks} tasks, seed 0; dotted: {self.replacement} comes in;"
            f" {DASHED}."
        )
        return [Figure(self.name, caption, panels, draw_aa_panels)] if panels else []


FIG6 = AAOverTasks(
    name="fig6",
    data="CIFAR100R/10",
    tasks=LONG_TASKS,
    methods=PAPER_METHODS,
    studies=TITLES,
    replaced={"replaced": REPLACED_AT[LONG_TASKS]},
    stage=LONG,
    notes=deviation_notes,
).page("Figure 6: AA over 31 tasks, with replacements and without")


FIG9 = AAOverTasks(
    name="fig9",
    data="CIFAR100R/10",
    tasks=LONG_TASKS,
    methods=PAPER_METHODS,
    studies={"architectures": "Three architectures"},
    replaced={"architectures": REPLACED_AT[LONG_TASKS]},
    stage=LAST,
    notes=lambda results, runs: (
        "ResNet-18, then SENet-18, then RegNetY-400MF, whose features are shorter: a dash where models cannot be"
        " compared.",
        *deviation_notes(results, runs),
    ),
    replacement="a model of another architecture",
).page("Figure 9: AA over tasks with three architectures")


def _needed(results: Results) -> str:
    return (
        "They need CelebA and CASIA-WebFace below `--data`, DINOv3's weights, and the six models of `holdfast pretrain"
        f" pretrain/casia_webface --methods simplex_hoc,er --classes 3525,7050,10575`; {hours_of_fig8(results)}."
    )


FIG8 = AAOverTasks(
    name="fig8",
    data="CelebA",
    tasks=16,
    methods=PAPER_METHODS,
    studies={"celeba": "Two replacements", "celeba-none": "No replacement"},
    replaced={"celeba": (5, 10)},
    stage=LAST + 2,
    notes=lambda results, runs: (
        "Models pre-trained on 3,525, 7,050 and 10,575 people of CASIA-WebFace, as the paper's. Of each test identity a"
        " seeded half of the images is query, the rest gallery; the paper does not say.",
    ),
    needed=_needed,
).page("Figure 8: AA over 16 tasks of CelebA, with replacements and without")


SCENARIOS = 2
"""With and without replacements. A replacement costs no step, so both take equally long."""

DISTILLED, ALONE = "simplex_hoc", "er"
"""The measured methods: one that also runs the old model in a step, and one that does not."""

MEASURED = "bench/large_step-h200.json"


def resembles(method: str) -> str:
    """The measured method with the same cost: it depends on whether the loss needs the old model's features."""
    return ALONE if METHODS[method].old_features == "none" else DISTILLED


def whole_experiment(hours: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Hours of the paper's eight methods in both scenarios and of the two sets of pre-trained models.

    hours: one entry per measured ``method`` and ``step`` (fine-tuning, pre-training), as the bench records them.
    Returns None if an entry of the two measured methods is missing.
    """
    known = {(one["method"], one["step"]): float(one["hours"]) for one in hours}
    if any((method, step) not in known for method in (DISTILLED, ALONE) for step in ("fine-tuning", "pre-training")):
        return None
    groups = {one: [method for method in PAPER_METHODS if resembles(method) == one] for one in (DISTILLED, ALONE)}
    fine_tuning = SCENARIOS * sum(len(group) * known[one, "fine-tuning"] for one, group in groups.items())
    pretraining = known[DISTILLED, "pre-training"] + known[ALONE, "pre-training"]  # into slots, and with a classifier
    names = {one: ", ".join(map(method_name, group)) for one, group in groups.items()}
    return {
        "hours": fine_tuning + pretraining,
        "fine_tuning_hours": fine_tuning,
        "pretraining_hours": pretraining,
        "runs": SCENARIOS * len(PAPER_METHODS),
        "counted_as": groups,
        "assumption": (
            f"losses with the old model ({names[DISTILLED]}) count as {method_name(DISTILLED)}, the others"
            f" ({names[ALONE]}) as {method_name(ALONE)}; evaluation, reading and waiting are not in it"
        ),
    }


def hours_of_fig8(results: Results) -> str:
    """A clause with the hours of Figure 8 by the committed measurements, or how to measure them."""
    path = results.root / MEASURED
    record = read_json(path) if path.is_file() else {"hours": []}
    whole = whole_experiment(record["hours"])
    if whole is None:
        return "`bench/large_step.py` says how many hours that is"
    each = {one["method"]: one["hours"] for one in record["hours"] if one["step"] == "fine-tuning"}
    return (
        f"on one {record['environment']['gpu']} about {whole['hours']:.0f} hours for the paper's eight methods in both"
        f" scenarios, {whole['fine_tuning_hours']:.0f} for the {whole['runs']} runs ({each[DISTILLED]:.1f} for one of"
        f" {method_name(DISTILLED)}, {each[ALONE]:.1f} of {method_name(ALONE)}) and {whole['pretraining_hours']:.0f}"
        f" for the six models (`bench/large_step.py`; {whole['assumption']})"
    )

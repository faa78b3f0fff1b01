"""AA after each task, with replacements and without: what figures 6 and 8 share.

Figure 6: AA after each of 31 tasks, with two replacements and with none.

Figure 8: the large scale, CelebA in 16 tasks of 512 people with DINOv3 ViT-B/16; ready for whoever has the data.

The hours that the whole of Figure 8 would take, from what ``bench/large_step.py`` measured of two methods.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.methods import METHODS
from holdfast.storage import read_json
from papers.stationary.cells import Cell
from papers.stationary.cifar_cells import OURS, PAPER_METHODS
from papers.stationary.exhibit import Exhibit, Figure, Row, Selection, Table
from papers.stationary.iam_cells import (
    LAST,
    LONG,
    LONG_TASKS,
    MAIN,
    OUR_SETTING,
    REPLACED_AT,
    TITLES,
    iam_cell,
    pretrained,
    with_ours,
)
from papers.stationary.layout import MISSING, method_name, score, still_missing
from papers.stationary.pictures import after_each_task, draw_after_each_task
from papers.stationary.results import Results, row


@dataclass(frozen=True)
class AAOverTasks:
    """name: of the figure. studies: study -> its panel's title. replaced: study -> tasks that begin with a replacement.

    note: what belongs to every number; needed: what whoever wants to run what is missing must have.
    """

    name: str
    data: str
    tasks: int
    methods: tuple[str, ...]
    studies: Mapping[str, str]
    replaced: Mapping[str, tuple[int, ...]]
    stage: int
    note: Callable[[Results], str]
    needed: Callable[[Results], str] | None = None

    def exhibit(self, about: str) -> Exhibit:
        return Exhibit(about, self.cells, self.rows, self.tables, self.figures)

    def cells(self) -> list[Cell]:
        return [cell for study in self.studies for cell in self._of(study)]

    def _of(self, study: str) -> list[Cell]:
        return [iam_cell(study, method, self.tasks, stage=self.stage) for method in with_ours(self.methods)]

    def rows(self, results: Results, selection: Selection) -> list[Row]:
        found = []
        for cell in selection.of(self.cells()):
            record = results.record(cell)
            up_to = None if record is None else record["protocols"]["template"]["AA_tau"]
            found.append({**row([cell], results, paper=None), "study": cell.study, "AA_tau": up_to})
        return found

    def tables(self, results: Results, selection: Selection) -> list[Table]:
        every = self.rows(results, selection)
        replaced = max(self.replaced.values(), key=len)
        marks = [*(task for at in replaced for task in (at - 1, at)), self.tasks]
        lines = []
        for r in every:
            known = [score("AA", r["AA_tau"][task - 1]) for task in marks] if r["AA_tau"] else [MISSING] + [""] * 4
            lines.append([self.studies[r["study"]], method_name(r["method"]), *known])
        header = ["", "method", *(f"AA_{task} %" for task in marks)]
        absent = still_missing(every)
        notes = (
            "AA of the models up to a task: before and at each replacement"
            f" (tasks {' and '.join(map(str, replaced))}), and at the end. The paper has curves without numbers.",
            self.note(results),
            *([OUR_SETTING] if any(r["method"] == OURS and r["seeds"] for r in every) else []),
            *absent,
            *([self.needed(results)] if absent and self.needed else []),
        )
        return [Table(f"{self.data}, {self.tasks} tasks: AA over time", header, lines, right=range(2, 7), notes=notes)]

    def figures(self, results: Results) -> list[Figure]:
        panels = [
            after_each_task(title, results, self._of(study), self.replaced.get(study, ()))
            for study, title in self.studies.items()
        ]
        panels = [panel for panel in panels if panel["lines"]]
        caption = (
            f"AA up to each task, {self.data}, {self.tasks} tasks, seed 0; dotted: a model trained elsewhere comes in."
        )
        return [Figure(self.name, caption, panels, draw_after_each_task)] if panels else []


FIG6 = AAOverTasks(
    name="fig6",
    data="CIFAR100R/10",
    tasks=LONG_TASKS,
    methods=MAIN,
    studies=TITLES,
    replaced={"replaced": REPLACED_AT[LONG_TASKS]},
    stage=LONG,
    note=pretrained,
).exhibit("Figure 6: AA over 31 tasks, with replacements and without")


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
    note=lambda results: (
        "Models pre-trained on 3,525, 7,050 and 10,575 people of CASIA-WebFace, as the paper's. Of each test identity a"
        " seeded half of the images is query, the rest gallery; the paper does not say."
    ),
    needed=_needed,
).exhibit("Figure 8: AA over 16 tasks of CelebA, with replacements and without")


SCENARIOS = 2
"""With replacements and without; a replacement costs no step, so a run of either takes as long."""

HELD, ALONE = "simplex_hoc", "er"
"""The measured methods: a step that asks the old model too, and one that does not."""

MEASURED = "bench/large_step-h200.json"


def resembles(method: str) -> str:
    """The measured method that another one counts as: by whether its loss asks the old model for features."""
    return ALONE if METHODS[method].old_features == "none" else HELD


def whole_experiment(hours: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The sum for the paper's eight methods in both scenarios and the two sets of pre-trained models they need.

    hours: of each measured method (``method``) and part (``step``: fine-tuning, pre-training), as the bench records
    them. None where a part of the two methods that stand for the others is not among them.
    """
    known = {(one["method"], one["step"]): float(one["hours"]) for one in hours}
    if any((method, step) not in known for method in (HELD, ALONE) for step in ("fine-tuning", "pre-training")):
        return None
    groups = {one: [method for method in PAPER_METHODS if resembles(method) == one] for one in (HELD, ALONE)}
    fine_tuning = SCENARIOS * sum(len(group) * known[one, "fine-tuning"] for one, group in groups.items())
    pretraining = known[HELD, "pre-training"] + known[ALONE, "pre-training"]  # into slots, and with a classifier
    names = {one: ", ".join(map(method_name, group)) for one, group in groups.items()}
    return {
        "hours": fine_tuning + pretraining,
        "fine_tuning_hours": fine_tuning,
        "pretraining_hours": pretraining,
        "runs": SCENARIOS * len(PAPER_METHODS),
        "counted_as": groups,
        "assumption": (
            f"methods whose loss asks the old model ({names[HELD]}) count as {method_name(HELD)}, the others"
            f" ({names[ALONE]}) as {method_name(ALONE)}; evaluation, reading and waiting are not in it"
        ),
    }


def hours_of_fig8(results: Results) -> str:
    """One clause: how long all of it would take by the committed figures, or who can tell where there are none."""
    path = results.root / MEASURED
    record = read_json(path) if path.is_file() else {"hours": []}
    whole = whole_experiment(record["hours"])
    if whole is None:
        return "`bench/large_step.py` says how many hours that is"
    each = {one["method"]: one["hours"] for one in record["hours"] if one["step"] == "fine-tuning"}
    return (
        f"on one {record['environment']['gpu']} about {whole['hours']:.0f} hours for the paper's eight methods in both"
        f" scenarios, {whole['fine_tuning_hours']:.0f} for the {whole['runs']} runs ({each[HELD]:.1f} for one of"
        f" {method_name(HELD)}, {each[ALONE]:.1f} of {method_name(ALONE)}) and {whole['pretraining_hours']:.0f} for the"
        f" six models (`bench/large_step.py`; {whole['assumption']})"
    )

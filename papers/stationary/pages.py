"""``PAGES``: every table, figure and further study that can be reproduced, by name."""

from pathlib import Path
from typing import Any

from holdfast.core.errors import unknown_name
from papers.stationary.curve_figures import FIG6, FIG8, FIG9
from papers.stationary.fig10 import FIG10
from papers.stationary.matrix_figures import FIG4, FIG7
from papers.stationary.result_page import Figure, ResultPage
from papers.stationary.settings_tables import TABLE1, TABLE5
from papers.stationary.studies.feature_length import FEATURE_LENGTH
from papers.stationary.studies.lambda_tradeoff import LAMBDA_TRADEOFF
from papers.stationary.studies.method_parts import METHOD_PARTS
from papers.stationary.studies.mixed_galleries import MIXED_GALLERIES
from papers.stationary.studies.open_details import OPEN_DETAILS
from papers.stationary.studies.replacement_details import REPLACEMENT_DETAILS
from papers.stationary.studies.table2_experiments import TABLE2_EXPERIMENTS
from papers.stationary.studies.theory_on_cifar import THEORY_ON_CIFAR
from papers.stationary.studies.toy import FIG3
from papers.stationary.studies.update_gain import UPDATE_GAIN
from papers.stationary.studies.validation_tries import VALIDATION_TRIES
from papers.stationary.study_runs import StudyRun
from papers.stationary.table2 import TABLE2
from papers.stationary.table6 import TABLE6
from papers.stationary.table7 import TABLE7
from papers.stationary.table8 import TABLE8
from papers.stationary.tables3_4 import TABLE3, TABLE4
from papers.stationary.theory_figures import PAPER_FIGURES

CAPTIONS = {
    "fig1": "An update seen from the prototypes: caps before and after, with points sampled on them.",
    "fig2": "Pairs of the same and of different classes before and after an update, with their expected distances.",
    "fig5": "The slot of each class: the slot registry over 7 tasks with two replacements.",
    "fig11": "Proposition 2: the density at the expected angle, over dimensions and numbers of classes.",
    "fig12": "Theorem 1: expected distances over dimensions, Monte Carlo beside the closed form.",
}


def _drawing(name: str) -> ResultPage:
    def draw(data: Any, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        PAPER_FIGURES[name](path)

    return ResultPage(
        f"Figure {name.removeprefix('fig')}: drawn, not trained",
        runs=list,
        rows=lambda results, selection: [],
        tables=lambda results, selection: [],
        figures=lambda results: [Figure(name, CAPTIONS[name], None, draw)],
    )


DRAWINGS = {name: _drawing(name) for name in CAPTIONS}
"""Figures without runs: schematics and theory."""

PAGES: dict[str, ResultPage] = {
    "table1": TABLE1,
    "table2": TABLE2,
    "table8": TABLE8,
    "fig4": FIG4,
    "front": LAMBDA_TRADEOFF,
    "parts": METHOD_PARTS,
    "search": VALIDATION_TRIES,
    "questions": OPEN_DETAILS,
    "experiments": TABLE2_EXPERIMENTS,
    "stride": UPDATE_GAIN,
    "theory": THEORY_ON_CIFAR,
    "fig3": FIG3,
    "length": FEATURE_LENGTH,
    "table3": TABLE3,
    "table4": TABLE4,
    "table5": TABLE5,
    "table6": TABLE6,
    "fig6": FIG6,
    "fig7": FIG7,
    "mixed": MIXED_GALLERIES,
    "replacing": REPLACEMENT_DETAILS,
    "table7": TABLE7,
    "fig9": FIG9,
    "fig10": FIG10,
    "fig8": FIG8,
    **DRAWINGS,
}


def pages_named(name: str) -> dict[str, ResultPage]:
    """The page of that name, or every page for ``all``."""
    if name == "all":
        return PAGES
    if name not in PAGES:
        raise unknown_name("table or figure", name, [*PAGES, "all"])
    return {name: PAGES[name]}


def in_running_order(runs: list[StudyRun]) -> list[StudyRun]:
    """Each result file once, by stage. Within a stage long runs come first, so that parallel runs end together."""
    by_path: dict[str, StudyRun] = {}
    for run in runs:
        path = run.path.as_posix()
        if path not in by_path or run.stage < by_path[path].stage:
            by_path[path] = run
    return sorted(by_path.values(), key=lambda run: (run.stage, -(run.steps or 0)))

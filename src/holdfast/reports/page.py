"""The report: everything about one or several runs on one page that needs nothing but itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.reports.curves import Line, chart
from holdfast.reports.document import document
from holdfast.reports.headline import brought_in, carried, closed_set, headline, obstacles
from holdfast.reports.heatmap import heatmap, legend
from holdfast.reports.mixed import mixed_section
from holdfast.reports.records import RunRecord, read_run
from holdfast.reports.stationarity import stationarity_section
from holdfast.reports.style import style
from holdfast.reports.tables import differences, labels, methods_table, text
from holdfast.reports.training import facts, loss_chart, task_tables
from holdfast.storage import write_text

_WHAT_IS_SHOWN = (
    "Each model in a sequence took over from the one before it, and no gallery was re-indexed. Every matrix below asks"
    " what that did to search: each row is a model as the query side, each column the gallery an earlier model left"
    " behind, each number the share of searches, in per cent, that found the right class first. A red cell is a"
    " failure: there the newer model searches an old gallery no better than the model that built it."
)
_TERMS = (
    "<dl><dt>AC</dt><dd>Average compatibility: the share of pairings of a newer model with an older gallery that beat"
    " the old model on its own gallery. A tie does not count.</dd>"
    "<dt>AA</dt><dd>Average accuracy: the mean of all cells of the matrix.</dd>"
    "<dt>ACA</dt><dd>Average compatible accuracy: the mean over those pairings, a failure counting as zero.</dd></dl>"
)
_PROTOCOLS = {
    "template": "Template protocol: the gallery holds one vector per class, the mean of its images.",
    "instance": "Instance protocol: the gallery holds every image; the nearest one decides.",
}


def write_report(folders: Sequence[Path], out: Path, title: str | None = None) -> None:
    """Read the run folders and write the page to ``out`` in one step."""
    write_text(Path(out), render([read_run(folder) for folder in folders], title))


def render(runs: Sequence[RunRecord], title: str | None = None) -> str:
    """The whole page as HTML. Runs keep their order; scores are ranked only if the runs can be compared."""
    if not runs:
        raise HoldfastError("a report needs at least one run; give one or more run folders")
    protocols = sorted({name for run in runs for name in run.protocols}, key=lambda name: (name != "template", name))
    names = labels(runs)
    title = title or (f"{names[0]}: compatibility report" if len(runs) == 1 else "Compatibility report")
    body = [
        f"<h1>{text(title)}</h1><p>{_WHAT_IS_SHOWN}</p>",
        headline(runs, protocols[0]),
        closed_set(runs),
        carried(runs),
        brought_in(runs),
        "<h2>Scores</h2>",
        methods_table(runs, protocols, rank=len(runs) > 1 and not obstacles(runs)),
        _TERMS,
        "<h2>Model by model</h2>",
        _switch(runs, protocols),
        mixed_section(runs, names),
        loss_chart(runs, names),
        stationarity_section(runs, names),
        "<h2>Settings</h2>",
        differences([run.recipe for run in runs], names, "Settings"),
        "<h2>Where the numbers come from</h2>",
        differences([facts(run) for run in runs], names, "Facts"),
        task_tables(runs, names),
    ]
    return document(title, style(len(protocols)), body, "Made with Holdfast from the records of the runs named above.")


def _switch(runs: Sequence[RunRecord], protocols: Sequence[str]) -> str:
    """One view per protocol; radio buttons, not a script, choose which one is seen."""
    lone = " hidden" if len(protocols) == 1 else ""
    buttons = "".join(
        f'<input type="radio" name="protocol" id="protocol-{i}"{" checked" if i == 0 else ""}{lone}>'
        f'<label for="protocol-{i}"{lone}>{text(name.capitalize())}</label>'
        for i, name in enumerate(protocols)
    )
    views = "".join(
        f'<div class="view view-{i}"><h3>{text(name.capitalize())}</h3>{_view(runs, name)}</div>'
        for i, name in enumerate(protocols)
    )
    return f'<div class="switch">{buttons}{views}</div>'


def _view(runs: Sequence[RunRecord], protocol: str) -> str:
    shown = [(slot, run, name) for slot, (run, name) in enumerate(zip(runs, labels(runs))) if protocol in run.protocols]
    records = [(slot, name, run.protocols[protocol]) for slot, run, name in shown]
    accuracy = [Line(name, slot, _tasks(r.AA_tau), [100 * v for v in r.AA_tau]) for slot, name, r in records]
    compatibility = [Line(name, slot, _tasks(r.AC_tau), r.AC_tau) for slot, name, r in records]
    charts = (
        chart(compatibility, "Compatibility so far (AC after each task)", "task", top=1.0)
        + chart(accuracy, "Accuracy so far, % (AA after each task)", "task", from_zero=False)
        if max(len(r.matrix) for _, _, r in records) > 1
        else ""
    )
    explained = f'<p class="note">{_PROTOCOLS[protocol]}</p>' if protocol in _PROTOCOLS else ""
    measured = [(name, r.matrix, _kept_note(r.compatible, r.pairs)) for _, name, r in records]
    extras = sorted({extra for _, _, r in records for extra in r.extras})
    folded = "".join(
        f"<details><summary>Also measured: {text(extra)}</summary>"
        f"{_matrices([(name, r.extras[extra], '') for _, name, r in records if extra in r.extras])}</details>"
        for extra in extras
    )
    return f'{explained}{_matrices(measured)}<div class="charts">{charts}</div>{folded}'


def _matrices(measured: Sequence[tuple[str, Any, str]]) -> str:
    known = np.concatenate([matrix[~np.isnan(matrix)] for _, matrix, _ in measured])
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    drawn = "".join(heatmap(matrix, name, note, low, high) for name, matrix, note in measured)
    return f'{legend(low, high)}<div class="matrices">{drawn}</div>'


def _kept_note(compatible: np.ndarray, pairs: int) -> str:
    return f"{int(compatible.sum())} of {pairs} compatible" if pairs else ""


def _tasks(values: Sequence[float]) -> list[float]:
    return [float(task) for task in range(1, len(values) + 1)]

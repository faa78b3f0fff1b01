"""Figures of the results, drawn with matplotlib without a screen.

Each PNG file contains a fingerprint of the numbers it was drawn from, so that a test can tell whether it is up to date.
"""

import hashlib
import json
import math
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.storage import replacing
from papers.stationary.cifar_runs import OURS
from papers.stationary.formatting import method_name
from papers.stationary.results import SCORES, Results
from papers.stationary.study_runs import StudyRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# The first three are Okabe and Ito's. The others were found by a random search for colours that differ from each other
# for all readers, also colour-blind ones; a test checks the differences.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#780064", "#dc78f0", "#c8a050", "#505014", "#a08cb4", "#003ca0", "#1d2327")
MARKERS = "osv^D<*PX>"
METHODS = ("simplex_hoc", "simplex_fd", "distillation", "lce", "fan", "advbct", "er", "bct", "cvs", OURS)
"""Methods in the order of their colours and markers."""

ON_THE_SIMPLEX = ("simplex_hoc", "simplex_fd", OURS)
"""Methods with solid lines; those of the others are dashed."""

DASHED = "dashed: methods with a trainable classifier"
"""For the caption of a figure with lines of both kinds."""

FAILS = "#f3b4a6"
IN_THE_PAPER = " in the paper"
"""Suffix of the name of a line with the paper's numbers."""


def fingerprint(data: Any) -> str:
    """A hash of a picture's numbers."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:32]


def draw_matrices(panels: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Compatibility matrices, up to three in a row, with one colour bar, in per cent.

    panels: each with a "title"; "matrix", scores in [0, 1], None if undefined; and "replaced", tasks that begin with a
        replacement: their indices get a box. A row is a query model, a column the gallery of a model. Red: the query
        model is not better on an old gallery than the model that embedded it.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    shown = [100 * value for panel in panels for line in panel["matrix"] for value in line if value is not None]
    norm = Normalize(math.floor(min(shown)), math.ceil(max(shown)))
    shades = LinearSegmentedColormap.from_list("holdfast", ["#f2f8fc", "#0072b2"])
    rows = math.ceil(len(panels) / 3)
    columns = math.ceil(len(panels) / rows)
    figure = new_figure(2.7 * columns + 1.0, 3.1 * rows + 0.3)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis, panel in zip(axes.flat, panels):
        _matrix(axis, panel, shades, norm)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis in axes[:, 0]:
        axis.set_ylabel("query model", labelpad=8)
    bar = figure.colorbar(ScalarMappable(norm, shades), ax=axes, fraction=0.03, pad=0.02)
    bar.set_label("top-1, %")
    bar.outline.set_visible(False)
    save(figure, path, panels)


def _matrix(axis: "Axes", panel: Mapping[str, Any], shades: Any, norm: Any) -> None:
    matrix = panel["matrix"]
    size = len(matrix)
    for t, line in enumerate(matrix):
        for k in range(t + 1):
            value, own = line[k], matrix[k][k]
            # An undefined score is not compatible, and neither is a tie.
            fails = t > k and (value is None or own is None or not value > own)
            colour = FAILS if fails else "#eeeeee" if value is None else shades(norm(100 * value))
            axis.add_patch(_square(k, t, colour))
            if size <= 16:
                dark = not fails and value is not None and norm(100 * value) > 0.6
                shown = "–" if value is None else f"{100 * value:.1f}" if size <= 8 else f"{100 * value:.0f}"
                axis.text(k, t, shown, ha="center", va="center", fontsize=7.5, color="white" if dark else "#1d2327")
    axis.set(xlim=(-0.55, size - 0.45), ylim=(size - 0.45, -0.55), aspect="equal")
    axis.set_xlabel("gallery of model", labelpad=8)
    axis.set_title(panel["title"], fontsize=10)
    replaced = {task - 1 for task in panel["replaced"]}
    ticks = sorted({*range(0, size, 1 if size <= 8 else 5), *replaced})
    for one in (axis.xaxis, axis.yaxis):
        one.set_ticks(ticks, [str(i + 1) for i in ticks])
        for tick, label in zip(ticks, one.get_ticklabels()):
            if tick in replaced:
                label.set_bbox({"boxstyle": "square,pad=0.25", "facecolor": "none", "edgecolor": "#1d2327"})
    axis.tick_params(length=0, pad=5)
    axis.spines[:].set_visible(False)


def _square(x: float, y: float, colour: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.47, y - 0.47), 0.94, 0.94, facecolor=colour, edgecolor="white")


def draw_over_tasks(lines: Mapping[str, Mapping[str, Sequence[float | None]]], path: Path) -> None:
    """AC, AA and ACA against the number of tasks, one panel each; scores in [0, 1], a gap for a missing one."""
    figure = new_figure(10.5, 3.4)
    for axis, (name, label, factor) in zip(
        figure.subplots(1, 3), (("AC", "AC", 1), ("AA", "AA, %", 100), ("ACA", "ACA, %", 100))
    ):
        for i, (method, line) in enumerate(lines.items()):
            values = [math.nan if value is None else factor * value for value in line[name]]
            axis.plot(line["tasks"], values, label=method, linewidth=1.6, markersize=4.5, **look_of(method, i))
        ticks = sorted({tasks for line in lines.values() for tasks in line["tasks"] if tasks is not None})
        axis.set_xscale("log")
        axis.set_xticks(ticks, [f"{tasks:g}" for tasks in ticks])
        axis.minorticks_off()
        plain_axis(axis, "tasks", label)
        if name == "AC":
            axis.set_ylim(-0.03, 1.03)
    _legend_beside(figure)
    save(figure, path, lines)


def draw_tradeoff(lines: Mapping[str, Sequence[Sequence[float]]], path: Path) -> None:
    """AC against AA. Each point is (setting, AC, AA), scores in [0, 1], and is labelled with its setting."""
    figure = new_figure(6.2, 4.2)
    axis = figure.subplots()
    for i, (name, points) in enumerate(lines.items()):
        known = [point for point in points if point[1] is not None and point[2] is not None]
        style = look_of(name.removesuffix(IN_THE_PAPER), i)
        if name.endswith(IN_THE_PAPER):
            style |= {"linestyle": "--", "alpha": 0.6}
        axis.plot([100 * p[2] for p in known], [p[1] for p in known], label=name, linewidth=1.4, **style)
        for dial, ac, aa in known:
            axis.annotate(
                f"{dial:g}", (100 * aa, ac), xytext=(4, 4), textcoords="offset points", fontsize=7, color=style["color"]
            )
    plain_axis(axis, "AA, %", "AC")
    axis.set_ylim(-0.03, 1.06)
    figure.legend(loc="outside upper center", ncols=len(lines), frameon=False, fontsize=8)
    save(figure, path, lines)


def look_of(name: str, place: int) -> dict[str, Any]:
    """Colour, marker and line style of a method, the same in every figure; for other names those of index ``place``."""
    names = [method_name(method) for method in METHODS]
    if name not in names:
        return look(place)
    at = names.index(name)
    return look(at) | {"linestyle": "-" if METHODS[at] in ON_THE_SIMPLEX else "--"}


def look(i: int) -> dict[str, Any]:
    return {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}


def plain_axis(axis: "Axes", x: str, y: str) -> None:
    axis.set(xlabel=x, ylabel=y)
    axis.grid(color="#e2e5e7", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def new_figure(width: float, height: float) -> "Figure":
    # Not through pyplot, which would keep the figure and choose a screen if there is one.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: "Figure", path: Path, data: Any) -> None:
    with replacing(path) as temporary:
        about = {"Description": fingerprint(data), "Software": None}
        figure.savefig(temporary, format="png", bbox_inches="tight", metadata=about)


Panel = dict[str, Any]
"""title; replaced: tasks that begin with a replacement; lines: label -> AA in [0, 1] up to each task, or None."""


def aa_panel(
    title: str, results: Results, runs: Sequence[StudyRun], replaced: Sequence[int], labels: Sequence[str] = ()
) -> Panel:
    """The panel of the finished ones of ``runs``. A line is named by its method, or by ``labels``."""
    lines = {}
    for i, run in enumerate(runs):
        record = results.record(run)
        if record is not None:
            name = labels[i] if labels else method_name(run.method)
            lines[name] = record["protocols"]["template"]["AA_tau"]
    return {"title": title, "replaced": list(replaced), "lines": lines}


def draw_aa_panels(panels: Sequence[Panel], path: Path) -> None:
    """Panels side by side on one scale; a dotted line marks a replacement."""
    figure = new_figure(4.6 * len(panels) + 1.8, 3.4)
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    places = {name: i for i, name in enumerate(dict.fromkeys(name for panel in panels for name in panel["lines"]))}
    for axis, panel in zip(axes, panels):
        _curves(axis, panel, places)
    axes[0].set_ylabel("AA up to the task, %")
    _legend_beside(figure)
    save(figure, path, panels)


def _legend_beside(figure: "Figure") -> None:
    """A legend with the lines of all panels, each name once, long enough to show dashes."""
    known = {label: line for axis in figure.axes for line, label in zip(*axis.get_legend_handles_labels())}
    figure.legend(known.values(), known.keys(), loc="outside right center", frameon=False, fontsize=8, handlelength=3.6)


def _curves(axis: Any, panel: Panel, places: Mapping[str, int]) -> None:
    for name, values in panel["lines"].items():
        shown = [math.nan if value is None else 100 * value for value in values]
        style = look_of(name, places[name])
        # A marker at every third of 31 points, so that dashes stay visible between them.
        every = max(1, len(shown) // 10)
        axis.plot(range(1, len(shown) + 1), shown, label=name, linewidth=1.4, markersize=4.5, markevery=every, **style)
    for task in panel["replaced"]:
        axis.axvline(task, color="#8a9196", linewidth=0.9, linestyle=":")
    plain_axis(axis, "task", "")
    axis.set_title(panel["title"], fontsize=9)


def draw_ablation(panels: Sequence[Panel], path: Path) -> None:
    """Panels side by side, named (a), (b) and so on.

    panels: each either as for ``draw_aa_panels``, or scores against a setting: "title", the setting, and "points", each
        [label of the value, AC, AA, ACA] in the order of the values, which are spaced evenly.
    """
    figure = new_figure(3.5 * len(panels), 3.8)
    for letter, axis, panel in zip(string.ascii_lowercase, figure.subplots(1, len(panels)), panels):
        if "lines" in panel:
            _curves(axis, panel, {name: i for i, name in enumerate(panel["lines"])})
            axis.set_ylabel("AA up to the task, %")
        else:
            _scores(axis, panel["points"])
        axis.set_title(f"({letter}) {panel['title']}", fontsize=10)
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, frameon=False, fontsize=8)
    save(figure, path, panels)


def _scores(axis: "Axes", points: Sequence[Sequence[Any]]) -> None:
    places = range(len(points))
    for i, score in enumerate(SCORES):
        heights = [math.nan if point[i + 1] is None else 100 * point[i + 1] for point in points]
        axis.plot(places, heights, label=score, linewidth=1.4, markersize=4.5, **look(i))
    axis.set_xticks(places, ["\n".join(point[0].partition(" ")[::2]) for point in points])  # two lines each, so level
    axis.tick_params(axis="x", labelsize=9)
    plain_axis(axis, "", "AC, AA and ACA, %")

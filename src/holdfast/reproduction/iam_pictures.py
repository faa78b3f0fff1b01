"""Curves of IAM-CL2R: AA after each task, and scores against one setting."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.reproduction.cells import Cell
from holdfast.reproduction.layout import method_name
from holdfast.reproduction.pictures import blank, look, look_of, plain_axis, save
from holdfast.reproduction.results import SCORES, Results

Panel = dict[str, Any]
"""title; replaced: tasks that begin with a replacement; lines: label -> AA in [0, 1] up to each task, None for none."""


def after_each_task(
    title: str, results: Results, cells: Sequence[Cell], replaced: Sequence[int], labels: Sequence[str] = ()
) -> Panel:
    """The panel of those of ``cells`` that were run; a line is called by its method, or by its place in ``labels``."""
    lines = {}
    for i, cell in enumerate(cells):
        record = results.record(cell)
        if record is not None:
            name = labels[i] if labels else method_name(cell.method)
            lines[name] = record["protocols"]["template"]["AA_tau"]
    return {"title": title, "replaced": list(replaced), "lines": lines}


def draw_after_each_task(panels: Sequence[Panel], path: Path) -> None:
    """Panels side by side on one scale; a dotted line where a replacement took place."""
    figure = blank(4.6 * len(panels) + 1.8, 3.4)
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    places = {name: i for i, name in enumerate(dict.fromkeys(name for panel in panels for name in panel["lines"]))}
    for axis, panel in zip(axes, panels):
        _curves(axis, panel, places)
    axes[0].set_ylabel("AA up to the task, %")
    known = {label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels())}
    figure.legend(known.values(), known.keys(), loc="outside right center", frameon=False, fontsize=8)
    save(figure, path, panels)


def _curves(axis: Any, panel: Panel, places: Mapping[str, int]) -> None:
    for name, values in panel["lines"].items():
        shown = [math.nan if value is None else 100 * value for value in values]
        style = look_of(name, places[name])
        axis.plot(range(1, len(shown) + 1), shown, label=name, linewidth=1.4, markersize=3, **style)
    for task in panel["replaced"]:
        axis.axvline(task, color="#8a9196", linewidth=0.9, linestyle=":")
    plain_axis(axis, "task", "")
    axis.set_title(panel["title"], fontsize=9)


def draw_ablation(data: Mapping[str, Any], path: Path) -> None:
    """Scores against a setting, a panel each, and AA after each task for each size of the buffer.

    data: axes, name -> list of [value, AC, AA, ACA]; curves, a panel of ``draw_after_each_task``.
    """
    figure = blank(12.5, 3.4)
    *scored, last = figure.subplots(1, len(data["axes"]) + 1)
    for axis, (name, points) in zip(scored, data["axes"].items()):
        for i, score in enumerate(SCORES):
            heights = [math.nan if point[i + 1] is None else 100 * point[i + 1] for point in points]
            axis.plot([point[0] for point in points], heights, label=score, linewidth=1.4, markersize=4, **look(i))
        axis.set_xscale("log")
        values = sorted(point[0] for point in points)
        axis.set_xticks(values, [f"{value:g}" for value in values])
        axis.set_xticks([], minor=True)
        plain_axis(axis, name, "AC, AA and ACA, %")
    scored[0].legend(frameon=False, fontsize=8)
    curves = data["curves"]
    _curves(last, curves, {name: i for i, name in enumerate(curves["lines"])})
    last.set_ylabel("AA up to the task, %")
    last.legend(frameon=False, fontsize=8, ncols=2)
    save(figure, path, data)

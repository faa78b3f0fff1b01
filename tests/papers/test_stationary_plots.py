"""Pictures: what is red, where lines break, and whose colour is whose."""

import numpy as np
import pytest
from PIL import Image

from holdfast.reports import METHOD_NAMES
from papers.stationary import plots
from papers.stationary.cifar_runs import OURS, PAPER_METHODS
from papers.stationary.plots import draw_matrices, draw_over_tasks, draw_tradeoff


def test_failing_cells_are_red(tmp_path):
    """One pair; drawn with and without a failure, only the failing one has the colour of failure."""
    for name, cross, red in (("good", 0.5, False), ("tie", 0.4, True), ("none", None, True)):
        panel = {"title": "m", "matrix": [[0.4, None], [cross, 0.6]], "replaced": []}
        draw_matrices([panel], tmp_path / f"{name}.png")
        pixels = np.asarray(Image.open(tmp_path / f"{name}.png").convert("RGB"))
        assert (pixels == (0xF3, 0xB4, 0xA6)).all(axis=2).any() == red, name


def axes_of(draw, data, monkeypatch):
    """The axes of the figure that would be saved."""
    kept = []
    monkeypatch.setattr(plots, "save", lambda figure, path, data: kept.append(figure))
    draw(data, None)
    return kept[0].axes


def drawn(draw, data, monkeypatch):
    """The lines of a figure, by label."""
    return {str(line.get_label()): line for axis in axes_of(draw, data, monkeypatch) for line in axis.get_lines()}


@pytest.mark.parametrize("replaced", [[], [2, 3]])
def test_indices_of_replaced_models_are_boxed(replaced, monkeypatch):
    matrix = [[0.4 if k <= t else None for k in range(3)] for t in range(3)]
    axis = axes_of(draw_matrices, [{"title": "m", "matrix": matrix, "replaced": replaced}], monkeypatch)[0]
    for labels in (axis.get_xticklabels(), axis.get_yticklabels()):
        assert [int(label.get_text()) for label in labels if label.get_bbox_patch()] == replaced


def test_values_of_a_setting_are_spaced_evenly(monkeypatch):
    points = [["5", 0.5, 0.4, 0.2], ["300 (paper's)", 0.5, 0.4, 0.2], ["500", None, 0.4, None]]
    curves = {"title": "buffer", "replaced": [2], "lines": {"20 (paper's)": [0.4, 0.5]}}
    first, second = axes_of(plots.draw_ablation, [{"title": "images", "points": points}, curves], monkeypatch)
    assert [axis.get_title() for axis in (first, second)] == ["(a) images", "(b) buffer"]
    assert list(first.get_xticks()) == [0, 1, 2]
    assert [label.get_text().split("\n") for label in first.get_xticklabels()] == [
        ["5", ""],
        ["300", "(paper's)"],
        ["500", ""],
    ]


def test_a_method_has_one_colour_in_every_figure(monkeypatch):
    line = {"tasks": [2, 7, 16], "AC": [1.0, None, 0.5], "AA": [0.4, None, 0.5], "ACA": [0.4, None, 0.5]}
    names = [METHOD_NAMES[method] for method in (*PAPER_METHODS, OURS, "distillation")]
    whole = drawn(draw_over_tasks, dict.fromkeys(names, line), monkeypatch)
    assert len({(line.get_color(), line.get_marker()) for line in whole.values()}) == len(names) == 10
    some = [names[i] for i in (8, 3, 7)]
    panel = {"title": "", "replaced": [], "lines": {name: [0.4, 0.5] for name in some}}
    dials = {name: [[0.1, 0.9, 0.4]] for name in (*some, f"{names[7]} in the paper")}
    for found in (
        drawn(draw_over_tasks, dict.fromkeys(some, line), monkeypatch),
        drawn(plots.draw_aa_panels, [panel], monkeypatch),
        drawn(draw_tradeoff, dials, monkeypatch),
    ):
        for name, one in found.items():
            assert one.get_color() == whole[name.removesuffix(" in the paper")].get_color()
        assert set(some) <= set(found)
    assert np.isnan(whole[names[0]].get_ydata()[1])  # a line is broken there, not drawn across


def test_pictures_take_gaps_and_many_models(tmp_path):
    line = {"tasks": [2, 7], "AC": [1.0, None], "AA": [0.4, 0.5], "ACA": [0.4, None]}
    draw_over_tasks({"one": line}, tmp_path / "a.png")
    draw_tradeoff(
        {"one": [[0.1, None, None], [0.2, 0.9, 0.4]], "x in the paper": [[0.1, 0.9, 0.47]]}, tmp_path / "b.png"
    )
    big = [[0.3 + 0.01 * k if k <= t else None for k in range(31)] for t in range(31)]
    draw_matrices([{"title": "m", "matrix": big, "replaced": [11, 21]}] * 4, tmp_path / "c.png")
    assert all(Image.open(tmp_path / f"{name}.png").width > 200 for name in "abc")

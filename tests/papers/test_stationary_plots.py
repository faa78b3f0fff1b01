"""Pictures: what is red, where lines break, and whose colour is whose."""

import numpy as np
import pytest
from PIL import Image

from papers.run_pages import METHOD_NAMES
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
    assert len({line.get_color() for line in whole.values()}) == len(names) == 10
    assert len({line.get_marker() for line in whole.values()}) == 10
    solid = {name for name, line in whole.items() if line.get_linestyle() == "-"}
    assert solid == {METHOD_NAMES[method] for method in ("simplex_fd", "simplex_hoc", OURS)}
    some = [names[i] for i in (8, 3, 7)]
    panel = {"title": "", "replaced": [], "lines": {name: [0.4, 0.5] for name in some}}
    dials = {name: [[0.1, 0.9, 0.4]] for name in (*some, f"{names[7]} in the paper")}
    for found in (
        drawn(draw_over_tasks, dict.fromkeys(some, line), monkeypatch),
        drawn(plots.draw_aa_panels, [panel], monkeypatch),
        drawn(draw_tradeoff, dials, monkeypatch),
    ):
        for name, one in found.items():
            same = whole[name.removesuffix(" in the paper")]
            assert (one.get_color(), one.get_marker()) == (same.get_color(), same.get_marker())
        assert set(some) <= set(found)
    assert np.isnan(whole[names[0]].get_ydata()[1])  # a line is broken there, not drawn across


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
COLOUR_BLIND = {
    "none": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]


@pytest.mark.parametrize("sight", COLOUR_BLIND)
def test_colours_differ_for_all_readers(sight):
    """At least 15 in CIELAB between any two colours; the same two colours twice would be 0."""
    rgb = np.array([[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in plots.COLOURS])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ np.transpose(COLOUR_BLIND[sight]), 0, 1)
    x, y, z = np.cbrt((seen @ np.transpose(TO_XYZ)) / (0.9505, 1, 1.089)).T
    lab = np.stack([116 * y, 500 * (x - y), 200 * (y - z)], axis=1)
    apart = np.linalg.norm(lab[:, None] - lab[None], axis=2)
    assert apart[np.triu_indices(len(lab), 1)].min() > 15


def test_pictures_take_gaps_and_many_models(tmp_path):
    line = {"tasks": [2, 7], "AC": [1.0, None], "AA": [0.4, 0.5], "ACA": [0.4, None]}
    draw_over_tasks({"one": line}, tmp_path / "a.png")
    draw_tradeoff(
        {"one": [[0.1, None, None], [0.2, 0.9, 0.4]], "x in the paper": [[0.1, 0.9, 0.47]]}, tmp_path / "b.png"
    )
    big = [[0.3 + 0.01 * k if k <= t else None for k in range(31)] for t in range(31)]
    draw_matrices([{"title": "m", "matrix": big, "replaced": [11, 21]}] * 4, tmp_path / "c.png")
    assert all(Image.open(tmp_path / f"{name}.png").width > 200 for name in "abc")

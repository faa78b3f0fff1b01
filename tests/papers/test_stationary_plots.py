"""Pictures: what is red, where lines break, and whose colour is whose."""

import numpy as np
from PIL import Image

from papers.stationary import plots
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


def test_pictures_take_gaps_and_many_models(tmp_path):
    line = {"tasks": [2, 7], "AC": [1.0, None], "AA": [0.4, 0.5], "ACA": [0.4, None]}
    draw_over_tasks({"one": line}, tmp_path / "a.png")
    draw_tradeoff(
        {"one": [[0.1, None, None], [0.2, 0.9, 0.4]], "x in the paper": [[0.1, 0.9, 0.47]]}, tmp_path / "b.png"
    )
    big = [[0.3 + 0.01 * k if k <= t else None for k in range(31)] for t in range(31)]
    draw_matrices([{"title": "m", "matrix": big, "replaced": [11, 21]}] * 4, tmp_path / "c.png")
    assert all(Image.open(tmp_path / f"{name}.png").width > 200 for name in "abc")

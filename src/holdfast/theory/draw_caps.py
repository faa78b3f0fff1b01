"""Figures 1 and 2: what an update does to a class, drawn from points sampled on real caps in three dimensions."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.geometry import DSimplex
from holdfast.theory.caps import Floats, sample_cap
from holdfast.theory.drawing import INK, NEW, OLD, new_figure, save, schematic
from holdfast.theory.theorem1 import study_caps

OLD_ANGLE, NEW_ANGLE = math.radians(50), math.radians(30)
_POLE = np.array([0.0, 0.0, 1.0])


def draw_update(path: Path, *, seed: int = 2) -> None:
    """Fig. 1: the caps of one class before and after an update, seen from above the prototype.

    (a) one feature, (b) many. In three dimensions a cap seen from above is the disc that the paper draws.
    """
    random = np.random.default_rng(seed)
    old, new = sample_cap(_POLE, OLD_ANGLE, 26, random), sample_cap(_POLE, NEW_ANGLE, 26, random)
    figure, axes = new_figure(7.4, 3.9, 2)
    for axis, count, title in zip(axes, (1, 26), ("(a) one feature", "(b) many features")):
        schematic(axis)
        _discs(axis, label=count == 1)
        for before, after in zip(old[:count], new[:count]):
            _arrow(axis, before, after)
        axis.plot(*old[:count, :2].T, "o", color=OLD, markersize=5 if count > 1 else 7)
        axis.plot(*new[:count, :2].T, "o", color=NEW, markersize=5 if count > 1 else 7)
        _title(axis, title)
    _note(axes[0], old[0], r"$\phi_{\rm old}(x)$", OLD)
    _note(axes[0], new[0], r"$\phi_{\rm new}(x)$", NEW)
    save(figure, path)


def draw_pairs(path: Path, *, seed: int = 11) -> None:
    """Fig. 2: distances before (red) and after (blue) an update; pairs that break the inequality are pale.

    The means under the panels are Theorem 1's, in closed form; the shares are of 100,000 sampled pairs.
    """
    random = np.random.default_rng(seed)
    figure, axes = new_figure(8.8, 4.7, 2)
    first, second = _two_vertices()
    study = study_caps(3, OLD_ANGLE, NEW_ANGLE, samples=2)
    cases = (
        (axes[0], _POLE, _POLE, "(a) one class: Eq. 1a", study.same, "≤"),
        (axes[1], first, second, "(b) two classes: Eq. 1b", study.different, "≥"),
    )
    for axis, from_axis, to_axis, title, exact, sign in cases:
        schematic(axis)
        anchors = sample_cap(from_axis, OLD_ANGLE, 100_000, random)
        before = sample_cap(to_axis, OLD_ANGLE, 100_000, random)
        after = sample_cap(to_axis, NEW_ANGLE, 100_000, random)
        kk, kt = 1 - (anchors * before).sum(1), 1 - (anchors * after).sum(1)
        holds = kt <= kk if sign == "≤" else kt >= kk
        if from_axis is to_axis:
            _discs(axis, label=False)
        else:
            _globe(axis, (from_axis, to_axis))
        good, bad = np.flatnonzero(holds)[:3], np.flatnonzero(~holds)[:2]
        for i in (*bad, *good):
            _segments(axis, anchors[i], before[i], after[i], alpha=1.0 if holds[i] else 0.28)
        means = f"mean {exact.kt.exact:.3f} {sign} {exact.kk.exact:.3f}"
        _title(axis, f"{title}\n{means}, holds for {100 * holds.mean():.0f} % of pairs")
    axes[0].plot([], [], color=OLD, label="old to old")
    axes[0].plot([], [], color=NEW, label="old to new")
    axes[0].legend(loc="lower left", frameon=False, fontsize=9)
    save(figure, path)


def _discs(axis: Any, *, label: bool) -> None:
    from matplotlib.patches import Circle

    for angle, colour in ((OLD_ANGLE, OLD), (NEW_ANGLE, NEW)):
        axis.add_patch(Circle((0, 0), math.sin(angle), facecolor=_pale(colour), edgecolor=colour, linewidth=1.3))
    axis.plot(0, 0, marker="*", color=INK, markersize=9)
    axis.annotate(r"$w_y$", (0, 0), (6, -10), textcoords="offset points", fontsize=11, color=INK)
    if label:
        edge = math.radians(38)
        for angle, colour, name in ((OLD_ANGLE, OLD, "old"), (NEW_ANGLE, NEW, "new")):
            at = (math.sin(angle) * math.cos(edge), math.sin(angle) * math.sin(edge))
            axis.annotate(
                rf"$\theta_{{\rm {name}}}$", at, (5, 3), textcoords="offset points", color=colour, fontsize=11
            )
    axis.set_xlim(-0.95, 0.95)
    axis.set_ylim(-0.85, 1.1)


def _two_vertices() -> tuple[Floats, Floats]:
    """Two vertices of the simplex in three dimensions, turned so that both face the reader, left and right."""
    first, second = DSimplex(4).dense().numpy()[:2]
    half = math.acos(float(first @ second)) / 2
    return np.array([-math.sin(half), 0, math.cos(half)]), np.array([math.sin(half), 0, math.cos(half)])


def _globe(axis: Any, prototypes: tuple[Floats, Floats]) -> None:
    from matplotlib.patches import Circle

    axis.add_patch(Circle((0, 0), 1, facecolor="#f6f7f8", edgecolor="#c9ced3", linewidth=1))
    around = np.linspace(0, 2 * math.pi, 200)
    for prototype, name in zip(prototypes, ("i", "j")):
        aside = np.cross(prototype, [0.0, 1.0, 0.0])
        aside /= np.linalg.norm(aside)
        up = np.cross(aside, prototype)
        for angle, colour in ((OLD_ANGLE, OLD), (NEW_ANGLE, NEW)):
            rim = math.cos(angle) * prototype + math.sin(angle) * (
                np.cos(around)[:, None] * aside + np.sin(around)[:, None] * up
            )
            near = np.where(rim[:, 2:] >= 0, rim, np.nan)
            axis.plot(near[:, 0], near[:, 1], color=colour, linewidth=1.3)
        axis.plot(prototype[0], prototype[1], marker="*", color=INK, markersize=9)
        axis.annotate(rf"$w_{name}$", prototype[:2], (5, -12), textcoords="offset points", fontsize=11, color=INK)
    axis.set_xlim(-1.05, 1.05)
    axis.set_ylim(-1.02, 1.32)


def _segments(axis: Any, anchor: Floats, before: Floats, after: Floats, *, alpha: float) -> None:
    for end, colour in ((before, OLD), (after, NEW)):
        axis.plot(*zip(anchor[:2], end[:2]), color=colour, linewidth=1.4, alpha=alpha)
        axis.plot(end[0], end[1], "o", color=colour, markersize=5, alpha=alpha)
    axis.plot(anchor[0], anchor[1], "o", color=OLD, markersize=5, alpha=alpha)


def _title(axis: Any, words: str) -> None:
    """Inside the axes: without its frame a panel keeps no room above."""
    axis.text(0.5, 1.0, words, transform=axis.transAxes, ha="center", va="top", fontsize=10)


def _arrow(axis: Any, start: Floats, end: Floats) -> None:
    style = {"arrowstyle": "-|>", "color": "#6b7177", "linewidth": 0.9, "shrinkA": 3, "shrinkB": 3}
    axis.annotate("", end[:2], start[:2], arrowprops=style)


def _note(axis: Any, at: Floats, words: str, colour: str) -> None:
    axis.annotate(words, at[:2], (9, 1), textcoords="offset points", color=colour, fontsize=11)


def _pale(colour: str) -> tuple[float, ...]:
    from matplotlib.colors import to_rgb

    return tuple(1 - 0.1 * (1 - part) for part in to_rgb(colour))

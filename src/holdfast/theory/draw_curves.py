"""Figures 11 and 12, and two that the paper does not have: where Theorem 1 stops, and Proposition 3 watched."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from holdfast.theory.closed_form import different_class, same_class
from holdfast.theory.drawing import INK, NEW, OLD, QUIET, SERIES, new_figure, save
from holdfast.theory.limits import gap_map, largest_moves
from holdfast.theory.proposition2 import expected_angle, log_density_at_expected_angle
from holdfast.theory.proposition3 import Collapse, watch_collapse
from holdfast.theory.theorem1 import CapStudy, study_caps

DIMS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
COUNTS = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
OLD_DEGREES, NEW_DEGREES = 60.0, 40.0


def draw_densities(path: Path, *, counts: Sequence[int] = COUNTS, smallest: int = 3, largest: int = 1_000) -> None:
    """Fig. 11: the density at the expected angle (Eq. 8); beside it that angle, which grows with d (an erratum)."""
    dims = np.unique(np.geomspace(smallest, largest, 80).round().astype(int))
    figure, (density, angle) = new_figure(9.0, 3.9, 2)
    for colour, n in zip(itertools.cycle(SERIES), counts):
        logs = [log_density_at_expected_angle(n, int(d)) / math.log(10) for d in dims]
        density.plot(dims, logs, color=colour, label=f"n = {n:,}")
        angle.plot(dims, [expected_angle(n, int(d)) for d in dims], color=colour)
    density.set(xscale="log", xlabel="dimension d", ylabel=r"$\log_{10} f_\Theta(\bar\theta(n, d))$")
    density.set_title("the density at the expected angle falls with d and n", fontsize=10)
    density.legend(frameon=False, fontsize=8.5)
    angle.axhline(1, color=QUIET, linewidth=0.9, linestyle=(0, (4, 3)))
    angle.set(xscale="log", xlabel="dimension d", ylabel=r"$\bar\theta(n, d)$, radians")
    angle.set_title("the expected angle itself falls with n only", fontsize=10)
    save(figure, path)


def draw_theorem1(path: Path, studies: Sequence[CapStudy] | None = None, *, old: float = 0.0, new: float = 0.0) -> None:
    """Fig. 12: Monte-Carlo estimates with two standard errors on the closed form, (a) one class, (b) two classes.

    (b) shows the distance less 1 on a logarithmic scale: it falls as 1/d, and on a plain one both lines would be 1.
    old, new: the caps' angles in radians; 60 and 40 degrees unless given with ``studies``.
    """
    if studies is None:
        old, new = math.radians(OLD_DEGREES), math.radians(NEW_DEGREES)
        studies = [study_caps(d, old, new) for d in DIMS]
    dims = np.array([study.d for study in studies])
    fine = np.unique(np.geomspace(dims.min(), dims.max(), 120).astype(int))
    figure, axes = new_figure(9.0, 3.9, 2)
    for axis, kind, exact, less in zip(axes, ("same", "different"), (same_class, different_class), (0.0, 1.0)):
        for name, colour, label in (("kk", OLD, r"$E[D_{k,k}]$"), ("kt", NEW, r"$E[D_{k,t}]$")):
            axis.plot(fine, [getattr(exact(int(d), old, new), name) - less for d in fine], color=colour, linewidth=1.2)
            found = [getattr(getattr(study, kind), name) for study in studies]
            means, errors = np.array([f.mean for f in found]) - less, 2 * np.array([f.se for f in found])
            axis.errorbar(dims, means, errors, fmt="o", color=colour, markersize=4.5, capsize=2, label=label)
        axis.set(xscale="log", xlabel="dimension d")
        axis.set_xscale("log", base=2)
        axis.legend(frameon=False, fontsize=10)
    axes[0].set(ylabel="expected cosine distance")
    axes[1].set(ylabel="expected cosine distance − 1", yscale="log")
    caps = f"caps of {math.degrees(old):g}° and {math.degrees(new):g}°"
    axes[0].set_title(f"(a) one class, {caps}", fontsize=10)
    axes[1].set_title(f"(b) two classes, {caps}", fontsize=10)
    save(figure, path)


def draw_limits(path: Path, *, old_degrees: float = OLD_DEGREES, dims: Sequence[int] = (2, 9, 99, 1023)) -> None:
    """Where Theorem 1 stops: the gap of Eq. 1a over new cap and prototype's move, and the move that is allowed.

    The first is for the middle one of ``dims``.
    """
    d = dims[len(dims) // 2]
    old = math.radians(old_degrees)
    new = np.radians(np.linspace(1, min(1.5 * old_degrees, 179), 140))
    moves = np.radians(np.linspace(0, 90, 120))
    gaps = gap_map(d, old, new, moves)
    figure, (left, right) = new_figure(9.4, 3.9, 2)
    bound = float(np.abs(gaps).max())
    mesh = left.pcolormesh(
        np.degrees(new), np.degrees(moves), gaps, cmap="RdBu", vmin=-bound, vmax=bound, rasterized=True
    )
    left.contour(np.degrees(new), np.degrees(moves), gaps, levels=[0], colors=INK, linewidths=1.4)
    left.axvline(old_degrees, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    figure.colorbar(mesh, ax=left, label=r"$E[D_{k,k}] - E[D_{k,t}]$, one class")
    left.set(xlabel="new cap, degrees", ylabel="prototype moved by, degrees")
    left.set_title(f"old cap {old_degrees:g}°, d = {d}: holds inside the line", fontsize=10)
    shrunk = np.linspace(0.02, 1, 200)
    for colour, dim in zip(itertools.cycle(SERIES[1:]), dims):
        limits = [largest_moves(dim, old, float(share * old)) for share in shrunk]
        right.plot(shrunk, np.degrees([limit.average for limit in limits]), color=colour, label=f"d = {dim}")
        right.plot(shrunk, np.degrees([limit.towards for limit in limits]), color=colour, linestyle=(0, (3, 2)))
    right.set(yscale="log", ylim=(1e-3, 90), xlabel="new cap / old cap", ylabel="move allowed, degrees")
    right.set_title("solid: on average; dashed: straight at one class", fontsize=10)
    right.legend(frameon=False, fontsize=9)
    save(figure, path)


def draw_collapse(path: Path, collapse: Collapse | None = None) -> None:
    """Proposition 3: angles between trainable prototypes of classes that have no samples, beside the fixed simplex."""
    found = collapse or watch_collapse()
    figure, (axis,) = new_figure(5.6, 3.8)
    steps = [max(step, 0.5) for step in found.steps]
    axis.axhline(math.degrees(found.fixed), color=INK, linewidth=1.2, label="fixed simplex, all classes")
    axis.plot(steps, np.degrees(found.seen_mean), color=NEW, label="trainable, classes with samples (mean)")
    axis.plot(steps, np.degrees(found.unseen_smallest), color=OLD, label="trainable, classes to come (smallest)")
    axis.set(xscale="log", xlabel="gradient step", ylabel="angle between prototypes, degrees", ylim=(-3, 112))
    axis.legend(frameon=False, fontsize=8.5, loc="lower left")
    save(figure, path)

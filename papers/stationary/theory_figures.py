"""Figures of the theory. ``PAPER_FIGURES`` has those of the paper by name; each is a function of the file to write.

Figures 1 and 2 show an update of a class, with points sampled on caps in three dimensions. Figure 3 is the loss of
fine-tuning with cross-entropy alone and with HOC. Figure 5 is the slot registry over several replacements. Figures 11
and 12 belong to Proposition 2 and Theorem 1. Two more are not in the paper: the limits of Theorem 1, and Proposition 3.
Figures are made without pyplot: no window, no global state.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.storage import replacing
from holdfast.train.geometry import DSimplex
from holdfast.train.scenarios import SlotRegistry
from papers.stationary.theorems.caps import Floats, sample_cap
from papers.stationary.theorems.closed_form import different_class, same_class
from papers.stationary.theorems.propositions import (
    Collapse,
    expected_angle,
    log_density_at_expected_angle,
    simulate_collapse,
)
from papers.stationary.theorems.theorem1 import CapStudy, gap_map, largest_moves, study_caps

if TYPE_CHECKING:
    from matplotlib.figure import Figure


OLD_ANGLE, NEW_ANGLE = math.radians(50), math.radians(30)
_POLE = np.array([0.0, 0.0, 1.0])


def draw_update(path: Path) -> None:
    """Fig. 1: the caps of one class before and after an update, seen from above the prototype.

    (a) one feature, (b) many. In three dimensions a cap seen from above is the disc that the paper draws.
    """
    random = np.random.default_rng(2)
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


def draw_pairs(path: Path) -> None:
    """Fig. 2: distances before (red) and after (blue) an update; pairs that break the inequality are pale.

    The means under the panels are Theorem 1's, in closed form; the shares are of 100,000 sampled pairs.
    """
    random = np.random.default_rng(11)
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
    found = collapse or simulate_collapse()
    figure, (axis,) = new_figure(5.6, 3.8)
    steps = [max(step, 0.5) for step in found.steps]
    axis.axhline(math.degrees(found.fixed), color=INK, linewidth=1.2, label="fixed simplex, all classes")
    axis.plot(steps, np.degrees(found.seen_mean), color=NEW, label="trainable, classes with samples (mean)")
    axis.plot(steps, np.degrees(found.unseen_smallest), color=OLD, label="trainable, classes to come (smallest)")
    axis.set(xscale="log", xlabel="gradient step", ylabel="angle between prototypes, degrees", ylim=(-3, 112))
    axis.legend(frameon=False, fontsize=8.5, loc="lower left")
    save(figure, path)


class SlotRow(NamedTuple):
    """One model: its name, and the slots that pre-training and fine-tuning own in it."""

    name: str
    pretrained: Sequence[int]
    finetuned: Sequence[int]
    replacement: bool


def draw_slots(path: Path, rows: Sequence[SlotRow], num_slots: int) -> None:
    """A strip of slots per model, oldest on top; pre-training grows from the left, fine-tuning from the right."""
    figure, (axis,) = new_figure(8.4, 0.9 + 0.52 * len(rows))
    axis.grid(visible=False)
    axis.spines[["left", "bottom"]].set_visible(False)
    for at, row in enumerate(rows):
        axis.barh(at, num_slots, left=0, height=0.62, color="#eef0f2", edgecolor="#c9ced3", linewidth=0.8)
        for slots, colour in ((row.pretrained, NEW), (row.finetuned, OLD)):
            for start, length in _stretches(slots):
                axis.barh(at, length, left=start, height=0.62, color=colour)
        if row.pretrained:
            _count(axis, max(row.pretrained) + 1, at, len(row.pretrained), NEW, "left")
        if row.finetuned:
            _count(axis, min(row.finetuned), at, len(row.finetuned), OLD, "right")
    axis.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=9)
    for label, row in zip(axis.get_yticklabels(), rows):
        label.set_fontweight("bold" if row.replacement else "normal")
    axis.tick_params(length=0, colors=INK)
    axis.set_xticks([0, num_slots - 1], ["slot 0", f"slot {num_slots - 1}"], fontsize=9)
    axis.invert_yaxis()
    axis.barh(0, 0, color=NEW, label="pre-training classes, left to right")
    axis.barh(0, 0, color=OLD, label="fine-tuning classes, right to left")
    axis.barh(0, 0, color="#eef0f2", label="free")
    axis.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=3, frameon=False, fontsize=9)
    save(figure, path)


def _stretches(slots: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of neighbouring slots as (first, how many): a bar each, not one per slot."""
    runs: list[tuple[int, int]] = []
    for slot in sorted(slots):
        if runs and sum(runs[-1]) == slot:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((slot, 1))
    return runs


def _count(axis: object, x: float, y: float, number: int, colour: str, side: str) -> None:
    axis.annotate(  # type: ignore[attr-defined]
        str(number), (x, y), (5 if side == "left" else -5, 0), textcoords="offset points", va="center", ha=side,
        fontsize=9, color=colour,
    )  # fmt: skip


def draw_slot_registry(path: Path) -> None:
    """Fig. 5 by the real registry, at the paper's size: K = 1024, 7 tasks, replacements with 300 and 600 classes."""
    pretrained, finetuned = 100, 0
    registry = SlotRegistry(1024).take_left(_names("p", 0, 100))
    rows = [_row("φ*₀, pre-trained", registry, replacement=True)]
    for task in range(1, 8):
        if task in (3, 5):
            larger = {3: 300, 5: 600}[task]
            registry = registry.take_left(_names("p", pretrained, larger))
            pretrained = larger
            rows.append(_row(f"φ*{'₁' if task == 3 else '₂'}, replacement", registry, replacement=True))
        more = 10 if task == 1 else 15
        registry = registry.take_right(_names("f", finetuned, finetuned + more))
        finetuned += more
        rows.append(_row(f"task {task}, fine-tuned", registry, replacement=False))
    draw_slots(path, rows, registry.num_slots)


PAPER_FIGURES: dict[str, Callable[[Path], None]] = {
    "fig1": draw_update,
    "fig2": draw_pairs,
    "fig5": draw_slot_registry,
    "fig11": draw_densities,
    "fig12": draw_theorem1,
}


def _names(kind: str, start: int, end: int) -> list[str]:
    return [f"{kind}{number}" for number in range(start, end)]


def _row(name: str, registry: SlotRegistry, *, replacement: bool) -> SlotRow:
    def owned(kind: str) -> list[int]:
        return [slot for owner, slot in registry.owners.items() if owner.startswith(kind)]

    return SlotRow(name, owned("p"), owned("f"), replacement)


OLD, NEW, QUIET, INK = "#c0392b", "#1487a8", "#9aa0a6", "#22262a"
SERIES = ("#22262a", "#1487a8", "#c0392b", "#d18b00", "#5b7f2b", "#7b4fa3")
SUFFIXES = (".png", ".svg", ".pdf")


def new_figure(width: float, height: float, panels: int = 1) -> tuple["Figure", list[Any]]:
    """A white figure of ``width`` x ``height`` inches with ``panels`` axes side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    axes = [figure.add_subplot(1, panels, i + 1) for i in range(panels)]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color="#e8eaed", linewidth=0.7)
        axis.set_axisbelow(True)
    return figure, axes


def schematic(axis: Any) -> None:
    """Take away what a picture without scales does not need."""
    axis.set_aspect("equal")
    axis.axis("off")


def save(figure: "Figure", path: Path) -> None:
    """Write the figure in one step; the name's ending says how."""
    if path.suffix.lower() not in SUFFIXES:
        raise HoldfastError(f"{path}: a figure ends in one of {', '.join(SUFFIXES)}")
    with replacing(path) as temporary:
        # No date and no version in the file: the same numbers give the same bytes.
        plain = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        figure.savefig(temporary, metadata=plain[path.suffix.lower()])


CE_LABEL = "cross-entropy (λ = 1)"


def toy_figure(curves: Mapping[str, Mapping[str, Sequence[float]]], title: str) -> "Figure":
    """The toy of Fig. 3: the minimised loss, and its cross-entropy part alone.

    The runs minimise different losses, so their totals have no common scale; the cross-entropy part does.

    curves: label -> "loss" and "ce", one value per epoch; the label of the run with cross-entropy alone
        begins with ``CE_LABEL``.
    title: name of the data.
    """
    figure, axes = new_figure(9.0, 3.7, 2)
    others = iter(itertools.cycle((NEW, QUIET, *SERIES[3:])))
    looks = {label: OLD if label.startswith(CE_LABEL) else next(others) for label in curves}
    for axis, part, heading in zip(axes, ("loss", "ce"), ("the loss that is minimised", "its cross-entropy part")):
        for label, values in curves.items():
            axis.plot(range(1, len(values[part]) + 1), values[part], color=looks[label], label=label)
        axis.set(xlabel="epoch of fine-tuning", ylabel="training loss")
        axis.set_title(f"{heading}, {title}", fontsize=10)
    axes[0].legend(frameon=False, fontsize=9)  # its lines are those of both panels
    axes[0].set_ylim(bottom=min(0, axes[0].get_ylim()[0]))
    axes[1].set_yscale("log")
    return figure
